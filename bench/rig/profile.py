"""Where a router's CPU time goes: perf samples, and system calls per request.

python -m bench.rig.profile smg [rr|sticky|cache] [options of chat.lua] [--workers 16]

Needs perf and strace; not part of the measured figures.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from pathlib import Path

from bench.rig.__main__ import build_mock
from bench.rig.engines import HERE
from bench.rig.measure import measure, warm
from bench.rig.running import Running
from bench.rig.scenarios import Row
from bench.rig.systems import SYSTEMS


def main() -> None:
    """Profile one router under one kind of load."""
    parser = argparse.ArgumentParser(prog="python -m bench.rig.profile")
    parser.add_argument(
        "system", choices=[name for name in SYSTEMS if name != "direct"]
    )
    parser.add_argument("policy", nargs="?", default="rr")
    parser.add_argument("options", nargs="*", default=["size=300"])
    parser.add_argument("--workers", type=int, default=16)
    args = parser.parse_args()
    build_mock()
    row = Row("profile", 64, 5, " ".join(args.options), key=args.policy == "sticky")
    with Running(
        args.system,
        args.policy,
        args.workers,
        1,
        directory=HERE / "run" / "profile",
        health_s=10,
    ) as system:
        warm(system)
        _samples(system, row)
        _system_calls(system, row)


def _samples(system: Running, row: Row) -> None:
    data = system.dir / "perf.data"
    pids = ",".join(map(str, system.family()))
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-g", "-p", pids]
    perf = subprocess.Popen(
        [*record, "-o", data, "--", "sleep", str(row.seconds - 1)],
        stderr=subprocess.DEVNULL,
    )
    figures = measure(system, row)
    perf.wait()
    print(
        f"{system.name} {row.options}: {figures['rps']:.0f} req/s, "
        f"{figures['cpu_us']:.1f} us CPU per request, {figures['sys_us']:.1f} in the "
        f"kernel, {figures['threads']} threads"
    )
    for sort, lines in (("dso", 6), ("symbol", 30)):
        report = ["perf", "report", "--no-children", "-g", "none", "--stdio", "-q"]
        text = subprocess.run(
            [*report, "--sort", sort, "-i", str(data)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        print("\n".join([line for line in text.splitlines() if line.strip()][:lines]))


def _system_calls(system: Running, row: Row) -> None:
    log = system.dir / "strace.txt"
    attach = [word for pid in system.family() for word in ("-p", str(pid))]
    strace = subprocess.Popen(
        ["strace", "-f", "-c", "-o", log, *attach], stderr=subprocess.DEVNULL
    )
    time.sleep(0.5)  # until it is attached
    requests = measure(system, row)["requests"] or 1
    strace.terminate()
    strace.wait()
    calls = sorted(_counts(log).items(), key=lambda call: -call[1])[:9]
    each = ", ".join(f"{name} {count / requests:.2f}" for name, count in calls)
    print(f"system calls per request: {each}")


def _counts(log: Path) -> dict[str, int]:
    """Name -> calls, from the table that strace -c writes."""
    found = {}
    for line in log.read_text().splitlines():
        words = line.split()
        if len(words) >= 5 and re.match(r"\d+\.\d+$", words[0]):
            found[words[-1]] = int(words[3])
    found.pop("total", None)
    return found


if __name__ == "__main__":
    main()
