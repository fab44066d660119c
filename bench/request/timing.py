"""CPU time of the cases, in rounds that alternate, and beside another checkout.

The least of the rounds is what a case costs when nobody disturbs it; the median tells
how much it was disturbed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import thread_time_ns

from bench.request.cases import Case

ROOT = Path(__file__).resolve().parents[2]
#: Case -> microseconds of each round, for one request (or chunk).
Figures = Mapping[str, Sequence[float]]
#: Rounds in one process, when two checkouts take turns.
_AT_A_TIME = 5


def rounds(cases: Sequence[Case], count: int, requests: int) -> Figures:
    """Runs every case `requests` times in each of `count` rounds."""
    figures: dict[str, list[float]] = {case.name: [] for case in cases}
    for case in cases:
        case.run(requests)
    for _ in range(count):
        for case in cases:
            begin = thread_time_ns()
            case.run(requests)
            figures[case.name].append((thread_time_ns() - begin) / 1e3 / requests)
    return figures


def to_json(figures: Figures) -> str:
    """For the process that started this one."""
    return json.dumps(figures)


def table(figures: Figures) -> str:
    """Markdown: least and median microseconds."""
    lines = ["| CPU us | least | median |", "|---|---:|---:|"]
    for name, seen in figures.items():
        lines.append(f"| {name} | {min(seen):.2f} | {statistics.median(seen):.2f} |")
    return "\n".join(lines)


def compared(other: Path, count: int, requests: int) -> str:
    """Markdown: this checkout and another one, process by process in turn."""
    sides: dict[Path, dict[str, list[float]]] = {ROOT: {}, other: {}}
    for _ in range(max(1, count // _AT_A_TIME)):
        for checkout, figures in sides.items():
            for name, seen in _ran(checkout, requests).items():
                figures.setdefault(name, []).extend(seen)
    lines = ["| CPU us, least | this | other | this / other |", "|---|---:|---:|---:|"]
    for name, seen in sides[ROOT].items():
        this, that = min(seen), min(sides[other][name])
        lines.append(f"| {name} | {this:.2f} | {that:.2f} | {this / that:.3f} |")
    return "\n".join(lines)


def _ran(checkout: Path, requests: int) -> Figures:
    """This benchmark on the router of a checkout."""
    source = checkout / "src"
    if not any(source.glob("router/_core.*.so")):
        raise SystemExit(f"{checkout} is not built: make build")
    argv = [sys.executable, "-m", "bench.request", "--json"]
    argv += ["--rounds", str(_AT_A_TIME), "--count", str(requests)]
    env = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures
