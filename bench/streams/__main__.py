"""Thousands of open streams through one router.

    python -m bench.streams --streams 4500
    python -m bench.streams --streams 9000 --processes 2

All streams are open at once and each gets a chunk every `--gap-ms`. In a window of
`--seconds` CPU per chunk, memory of each process and the time of GET /liveness are
taken; then all streams run to their end, and every byte of each must be the engine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench.rig import processes
from bench.rig.__main__ import build_mock
from bench.rig.engines import HERE, PORT
from bench.rig.processes import LOAD_CPU, raise_descriptor_limit
from bench.rig.running import Running
from bench.streams.clients import Clients, streamed

_SYSTEMS = {1: "fleetrouter", 2: "fleetrouter-2"}
#: Seconds that opening all streams may take of their life.
_OPENING = 12
#: Processes of the mock fleet: each stream is a descriptor of one.
_MOCKS = 4


def main() -> int:
    """Runs rounds, prints a table; 1 where a stream was not relayed whole."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--streams", type=int, default=4500)
    add("--processes", type=int, default=1, choices=_SYSTEMS)
    add("--gap-ms", type=int, default=500)
    add("--seconds", type=int, default=10)
    add("--rounds", type=int, default=1)
    add("--out", type=Path, help="JSON lines file to add to")
    args = parser.parse_args()
    build_mock()
    raise_descriptor_limit()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.sched_setaffinity(0, {LOAD_CPU})
    records = []
    for _ in range(args.rounds):
        records.append(measured(args))
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(records[-1]) + "\n")
    print(table(records))
    return int(any(record["broken"] for record in records))


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """The figures of one round."""
    chunks = (args.seconds + _OPENING) * 1000 // args.gap_ms
    directory = HERE / "run" / "streams"
    with Running(
        _SYSTEMS[args.processes],
        "rr",
        16,
        1,
        directory=directory,
        health_s=10,
        mocks=_MOCKS,
    ) as system:
        system.preflight()
        system.engines.set(chunks=chunks, gap_us=0, delay_us=0)
        expected = {where: streamed(where) for where in system.engines.addresses}
        system.engines.set(chunks=chunks, gap_us=args.gap_ms * 1000, delay_us=0)
        figures = uvloop.run(_round(system, args, expected))
    return {
        "scenario": "streams",
        "streams": args.streams,
        "processes": args.processes,
        "gap_ms": args.gap_ms,
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        **figures,
    }


async def _round(
    system: Running, args: argparse.Namespace, expected: dict[str, bytes]
) -> dict[str, Any]:
    clients = Clients(PORT, args.streams, expected)
    await clients.open()
    seconds = args.seconds
    asking = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.streams.liveness", str(PORT), str(seconds)),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    family = system.family()
    # Else its times are those for which the engines and the clients have its core.
    processes.prefer([asking.pid, *family], True)
    before = _Reading(system, family)
    await asyncio.sleep(seconds)
    after = _Reading(system, family)
    whole_at_once = clients.whole == 0
    memory = sorted(processes.rss_mb([pid]) for pid in family)
    answer, _ = await asking.communicate()
    times = json.loads(answer)
    why = ""
    try:
        await clients.ended()
    except RuntimeError as error:
        why = str(error)
    relayed = after.chunks - before.chunks
    cpu = after.cpu - before.cpu
    return {
        "chunk_us": cpu / relayed * 1e6,
        "chunks_per_s": relayed / (after.time - before.time),
        "router_cores": cpu / (after.time - before.time),
        "all_open": whole_at_once,
        "rss_mb": memory,
        "liveness_ms": sorted(times),
        "whole": clients.whole,
        "broken": len(clients.broken),
        "why": why,
    }


class _Reading:
    """CPU seconds of the router and chunks that the engines sent, at one moment."""

    def __init__(self, system: Running, family: list[int]) -> None:
        self.time = time.time()
        self.cpu, _ = processes.cpu_of(family)
        self.chunks = system.engines.stats()["chunks"]


def table(records: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line a round."""
    columns = ["streams", "processes", "whole", "CPU us/chunk", "chunks/s"]
    columns += ["RSS MB of each process", "/liveness p50 ms", "p99 ms", "ulimit -Hn"]
    lines = [" | ".join(columns), "|".join(["---:"] * len(columns))]
    for record in records:
        times = record["liveness_ms"]
        cells = [
            f"{record['streams']:,}",
            str(record["processes"]),
            f"{record['whole']:,}",
            f"{record['chunk_us']:.1f}",
            f"{record['chunks_per_s']:,.0f}",
            " + ".join(f"{size:.0f}" for size in record["rss_mb"]),
            f"{statistics.median(times):.1f}",
            f"{statistics.quantiles(times, n=100)[-1]:.1f}",
            f"{record['limit']:,}",
        ]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
