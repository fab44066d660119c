"""What one process counted, to be added to what the others did.

Owns the value: increments since the last one, so that adding them up is all there is to
do, and what a process counted is not lost with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """Increments by the names that Metrics has for them; what did not change is out."""

    counters: dict[str, int]
    #: Counts by bucket, and the sum of seconds.
    duration: tuple[list[int], float]
    first_byte: tuple[list[int], float]
    retries: dict[str, int]
    upstream_errors: dict[str, int]
    #: By model; by worker's id.
    answers: dict[str, list[int]]
    attempts: dict[str, list[int]]
    #: Not increments: what the gauges show now.
    gauges: dict[str, int]


def taken(rows: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """The rows, of one length, that are not zero; they begin again from zero."""
    zeros = [0] * len(next(iter(rows.values()), ()))
    # Lists compare fast: this is asked of each of 10,000 workers, every second.
    taken = {name: list(row) for name, row in rows.items() if row != zeros}
    for name in taken:
        rows[name][:] = zeros
    return taken


def taken_once(counts: dict[str, int]) -> dict[str, int]:
    """As `taken`, for single numbers."""
    taken = {name: count for name, count in counts.items() if count}
    counts.update(dict.fromkeys(taken, 0))
    return taken


def add(row: list[int], counts: Sequence[int]) -> None:
    """Adds to a row in place."""
    row[:] = [a + b for a, b in zip(row, counts, strict=True)]
