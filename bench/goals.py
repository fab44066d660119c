"""What the router must show, and what the records of a run say of it. Values only.

Each goal is a bound on a figure, almost always a ratio of two medians of one run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figure = Callable[["Results"], float | None]


class Results:
    """The records of a run, by part."""

    def __init__(self, records: dict[str, list[dict[str, Any]]]) -> None:
        self._records = records

    @classmethod
    def read(cls, directory: Path) -> Results:
        """All parts that have results in this directory."""
        return cls(
            {
                path.stem: [json.loads(line) for line in path.read_text().splitlines()]
                for path in directory.glob("*.jsonl")
            }
        )

    def every(self, part: str, key: str, **wanted: object) -> list[Any]:
        """The values of a key in the records that have what is wanted."""
        return [
            record[key]
            for record in self._records.get(part, ())
            if record.get(key) is not None
            and all(record.get(name) == value for name, value in wanted.items())
        ]

    def median(self, part: str, key: str, **wanted: object) -> float | None:
        """Of those values; None where there are none."""
        values = self.every(part, key, **wanted)
        return statistics.median(values) if values else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure and the most that it may be."""

    what: str
    most: float
    figure: Figure


def report(results: Results) -> str:
    """Markdown: each goal, its figure, and whether it is reached."""
    lines = ["| what | seen | at most | |", "|---|---:|---:|---|"]
    for goal in goals():
        seen = goal.figure(results)
        text = "-" if seen is None else f"{seen:.3g}"
        verdict = "" if seen is None else "yes" if seen <= goal.most else "**no**"
        lines.append(f"| {goal.what} | {text} | {goal.most:.3g} | {verdict} |")
    return "\n".join(lines)


def goals() -> Iterator[Goal]:
    """All of them, in the order of the parts."""
    yield from _ends()
    yield from _fleets()
    yield from _processes()
    yield from _streams()


def _ends() -> Iterator[Goal]:
    for row in ("64 connections", "512 connections"):
        yield Goal(f"S1, {row}: CPU / nginx", 1.3, _beside("nginx", "S1", row))
        yield Goal(f"S1, {row}: CPU / vllm-router", 1 / 3, _vllm("S1", row))
    yield Goal("S1, 1 connection: added p50 / nginx", 1.3, _added)
    yield Goal("S2, 64 connections: CPU / own S1", 1.05, _sticky)
    for row, nginx, vllm in (("8 KB body", 1.3, 0.4), ("64 KB body", 1.5, 0.5)):
        yield Goal(f"S4, {row}: CPU / nginx", nginx, _beside("nginx", "S4", row))
        yield Goal(f"S4, {row}: CPU / vllm-router", vllm, _vllm("S4", row))
    for row in ("no gap, 64 streams", "10 ms gap, 256 streams"):
        chunk = "chunk_us"
        nginx_figure = _beside("nginx", "S5", row, chunk)
        yield Goal(f"S5, {row}: CPU per chunk / nginx", 1.0, nginx_figure)
        yield Goal(f"S5, {row}: / vllm-router", 0.7, _vllm("S5", row, chunk))


def _fleets() -> Iterator[Goal]:
    what = "a model of 16 workers, fleet of 10,000 / of 16"
    yield Goal(f"{what}: CPU", 1.05, _growth("model", "cpu_us", 10_000))
    yield Goal(f"{what}: p99", 1.2, _growth("model", "p99_us", 10_000))
    for size in (2_000, 10_000):
        ours = _growth("used", "cpu_us", size)
        theirs = _growth("used", "cpu_us", size, "haproxy")
        what = f"all of {size:,} workers used: growth of CPU / haproxy's"
        yield Goal(what, 1.0, _ratio(ours, theirs))
    what = "200 requests/s, 4,000 workers / 16: p99"
    yield Goal(what, 1.2, _growth("quiet", "p99_us", 4_000))
    yield Goal(
        "512 workers, idle: % of a core", 1.0, lambda r: r.median("idle", "idle_pct")
    )


def _processes() -> Iterator[Goal]:
    for row in ("64 connections", "512 connections"):
        two = _cpu("processes", "fleetrouter-2", "S1", row)
        one = _cpu("processes", "fleetrouter", "S1", row)
        yield Goal(f"{row}: CPU of 2 processes / of 1", 1.1, _ratio(two, one))
        yield Goal(f"{row}: CPU, busier process / other", 2.0, _evenness(row))


def _streams() -> Iterator[Goal]:
    for part, what in (
        ("streams", "4,500 streams"),
        ("streams-2", "9,000 streams, 2 processes"),
    ):
        yield Goal(f"{what}: not relayed whole", 0, _not_whole(part))
        yield Goal(f"{what}: RSS MB of the largest process", 200, _largest(part))
        yield Goal(f"{what}: /liveness p99 ms", 20, _liveness(part))


# --- figures --------------------------------------------------------------------------


def _ratio(above: Figure, below: Figure) -> Figure:
    def figure(results: Results) -> float | None:
        a, b = above(results), below(results)
        return None if a is None or not b else a / b

    return figure


def _cpu(
    part: str, system: str, scenario: str, row: str, key: str = "cpu_us"
) -> Figure:
    return lambda r: r.median(part, key, system=system, scenario=scenario, row=row)


def _beside(system: str, scenario: str, row: str, key: str = "cpu_us") -> Figure:
    ours = _cpu("ends", "fleetrouter", scenario, row, key)
    return _ratio(ours, _cpu("ends", system, scenario, row, key))


def _vllm(scenario: str, row: str, key: str = "cpu_us") -> Figure:
    return _beside("vllm-router", scenario, row, key)


def _sticky(results: Results) -> float | None:
    row = "64 connections"
    sticky = _cpu("ends", "fleetrouter", "S2", row)
    return _ratio(sticky, _cpu("ends", "fleetrouter", "S1", row))(results)


def _added(results: Results) -> float | None:
    """What the router adds to the time of a request without it, against nginx."""
    direct, ours, nginx = (
        results.median(
            "ends", "p50_us", system=system, scenario="S1", row="1 connection"
        )
        for system in ("direct", "fleetrouter", "nginx")
    )
    if direct is None or ours is None or nginx is None:
        return None
    return (ours - direct) / (nginx - direct)


def _growth(part: str, key: str, size: int, system: str = "fleetrouter") -> Figure:
    """From a fleet of 16 to one of `size`."""
    return _ratio(
        lambda r: r.median(part, key, system=system, n=size),
        lambda r: r.median(part, key, system=system, n=16),
    )


def _evenness(row: str) -> Figure:
    """How much more the busiest of two processes did than the other one."""

    def figure(results: Results) -> float | None:
        wanted = {"system": "fleetrouter-2", "row": row}
        shares = results.every("processes", "shares", **wanted)
        # The least of all is the supervisor, which serves nothing.
        ratios = [s[-1] / s[-2] for s in shares if len(s) > 1 and s[-2]]
        return statistics.median(ratios) if ratios else None

    return figure


def _not_whole(part: str) -> Figure:
    def figure(results: Results) -> float | None:
        asked = results.every(part, "streams")
        whole = results.every(part, "whole")
        return float(sum(asked) - sum(whole)) if asked else None

    return figure


def _largest(part: str) -> Figure:
    return lambda r: max(map(max, r.every(part, "rss_mb")), default=None)


def _liveness(part: str) -> Figure:
    def figure(results: Results) -> float | None:
        rounds = [
            statistics.quantiles(times, n=100)[-1]
            for times in results.every(part, "liveness_ms")
        ]
        return statistics.median(rounds) if rounds else None

    return figure
