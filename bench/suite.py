"""What `python -m bench` runs: the parts, in order, each a command of its own.

A part writes its records to results/NAME.jsonl and its tables to results/NAME.md.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.rig.systems import SYSTEMS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
_ONE_MODEL = "16x1,128x8,512x32,2000x125,4000x250,10000x625"
_ALL_USED = "16x1,128x1,512x1,2000x1,4000x1,10000x1"


@dataclass(frozen=True, slots=True)
class Part:
    """A command below `python -m`; placeholders {rounds}, {out}."""

    title: str
    command: str
    #: Of the rig: the systems, those that are not installed left out.
    systems: str = ""
    #: Rounds of its own; 0: as many as are asked for.
    rounds: int = 0

    def argv(self, rounds: int, out: Path) -> list[str]:
        """The words of the command."""
        words = self.command.format(rounds=self.rounds or rounds, out=out).split()
        if self.systems:
            words += ["--systems", ",".join(installed(self.systems.split(",")))]
        return [sys.executable, "-m", *words]


_RIG = "bench.rig --rounds {rounds} --out {out}"
_STREAMS = "bench.streams --rounds {rounds} --out {out}"
PARTS = {
    "request": Part("a request inside the process", "bench.request"),
    "ratios": Part("what CI holds", "pytest -q bench/selection bench/request"),
    "ends": Part(
        "end to end, beside other routers",
        f"{_RIG} --scenarios S1,S2,S4,S5",
        "direct,fleetrouter,nginx,haproxy,vllm-router",
    ),
    "model": Part(
        "one model of 16 workers in a growing fleet",
        f"{_RIG} --scenarios S9 --fleets {_ONE_MODEL}",
        "fleetrouter",
    ),
    "used": Part(
        "a growing fleet, all used",
        f"{_RIG} --scenarios S6 --fleets {_ALL_USED}",
        "fleetrouter,haproxy",
    ),
    "quiet": Part(
        "200 requests a second in a large fleet",
        f"{_RIG} --scenarios S10 --fleets 16x1,4000x1",
        "fleetrouter",
    ),
    "idle": Part(
        "512 idle workers",
        f"{_RIG} --scenarios S7 --fleets 512x1 --idle-s 60",
        "fleetrouter",
        rounds=1,
    ),
    "processes": Part(
        "two processes beside one",
        f"{_RIG} --scenarios S1",
        "fleetrouter,fleetrouter-2",
    ),
    "streams": Part("4,500 open streams", f"{_STREAMS} --streams 4500"),
    "streams-2": Part(
        "9,000 open streams in two processes",
        f"{_STREAMS} --streams 9000 --processes 2",
    ),
}


def run(name: str, rounds: int) -> int:
    """Runs a part, its earlier results replaced; the command's exit status."""
    part, out = PARTS[name], RESULTS / f"{name}.jsonl"
    RESULTS.mkdir(exist_ok=True)
    out.unlink(missing_ok=True)
    argv, begin = part.argv(rounds, out), time.monotonic()
    print(f"{time.strftime('%H:%M:%S')} {name}: {part.title}", flush=True)
    with out.with_suffix(".md").open("w") as tables:
        shown = " ".join([".venv/bin/python", *argv[1:]]).replace(f"{ROOT}/", "")
        tables.write(f"## {part.title}\n\n    {shown}\n\n")
        tables.flush()
        status = subprocess.run(argv, cwd=ROOT, stdout=tables, check=False).returncode
    seconds = time.monotonic() - begin
    print(f"{time.strftime('%H:%M:%S')} {name}: {status}, {seconds:.0f} s", flush=True)
    return status


def installed(systems: Sequence[str]) -> list[str]:
    """Those of the rig's systems that are there."""
    return [name for name in systems if SYSTEMS[name].installed]
