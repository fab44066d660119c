"""Side-by-side benchmark of LLM HTTP routers on one two-core Linux machine.

python -m bench.rig                                 every system and scenario
python -m bench.rig --systems smg,nginx --scenarios S1,S5 --rounds 3
python -m bench.rig --list
python -m bench.rig --report bench/rig/results/NAME.jsonl

The router runs on core 0; the mock engines (mockd) and the load (wrk) on core 1. CPU
per request is the CPU time of the router's whole process tree over the measured
window, divided by the requests that completed in it. Tables give medians.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.rig.driver import Bench, Options
from bench.rig.engines import HERE
from bench.rig.processes import LOAD_CPU, raise_descriptor_limit
from bench.rig.report import report
from bench.rig.scenarios import FLEET_TITLES, FLEETS, SCENARIOS
from bench.rig.systems import SYSTEMS


def main() -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = _parser()
    args = parser.parse_args()
    if args.list:
        _list()
        return 0
    if args.report:
        lines = [line for path in args.report for line in path.read_text().splitlines()]
        print(report([json.loads(line) for line in lines]))
        return 0
    options = _options(parser, args)
    build_mock()
    raise_descriptor_limit()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.sched_setaffinity(0, {LOAD_CPU})
    bench = Bench(options)
    bench.run()
    print(report(bench.records, options.systems))
    print(f"\nrecords: {options.out}")
    return 0


def build_mock() -> None:
    """Compile the mock engines where their source is newer than the program."""
    sources = sorted(HERE.glob("mockd*.c"))
    program, newest = (
        HERE / "mockd",
        max(s.stat().st_mtime for s in HERE.glob("*.[ch]")),
    )
    if not program.exists() or program.stat().st_mtime < newest:
        flags = ["-O2", "-flto", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["gcc", *flags, "-o", program, *sources], check=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rig",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    lock = os.path.join(tempfile.gettempdir(), "router-bench.lock")
    add = parser.add_argument
    add("--systems", default=",".join(SYSTEMS))
    add("--scenarios", default=",".join([*SCENARIOS, *FLEET_TITLES]))
    add("--rounds", type=int, default=3)
    add("--fleets", help="sizes as WORKERSxMODELS, for example 16x1,512x8")
    add("--health-s", type=int, default=10, help="seconds between health checks")
    add("--idle-s", type=int, default=10, help="seconds for which S7 looks on")
    add("--lock", default=lock, help="machine lock file; '' for none")
    add("--out", type=Path, help="JSON lines file (default results/TIME.jsonl)")
    add("--dir", type=Path, default=HERE / "run", help="logs, configurations, commands")
    add("--report", nargs="+", type=Path, help="print the tables of these results")
    add("--list", action="store_true", help="print systems and scenarios")
    return parser


def _options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Options:
    systems, scenarios = args.systems.split(","), args.scenarios.split(",")
    unknown = [name for name in systems if name not in SYSTEMS]
    known = {*SCENARIOS, *FLEET_TITLES}
    unknown += [name for name in scenarios if name not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    if (os.cpu_count() or 1) < 2:
        parser.error("needs two cores")
    fleets = FLEETS
    if args.fleets:
        pairs = [fleet.split("x") for fleet in args.fleets.split(",")]
        fleets = [(int(workers), int(models)) for workers, models in pairs]
    out = args.out or HERE / "results" / time.strftime("%Y%m%d-%H%M%S.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    return Options(
        systems=systems,
        scenarios=scenarios,
        rounds=args.rounds,
        fleets=fleets,
        health_s=args.health_s,
        idle_s=args.idle_s,
        lock=args.lock,
        out=out,
        dir=args.dir.resolve(),
    )


def _list() -> None:
    for name, system in SYSTEMS.items():
        print(f"{name:16s} {system.title}")
    for name, scenario in SCENARIOS.items():
        rows = "; ".join(row.label for row in scenario.rows)
        print(f"{name:16s} {scenario.title}: {rows}")
    for name, title in FLEET_TITLES.items():
        print(f"{name:16s} {title}")


if __name__ == "__main__":
    sys.exit(main())
