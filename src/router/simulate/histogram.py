"""A histogram of seconds, as Prometheus counts them. Knows nothing of what is timed."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

#: Upper bounds in seconds, chosen for latencies of tokens and of requests alike.
BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Histogram:
    """Counts of observed seconds by bucket."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as the exposition format wants them."""
        names = [*map(str, BOUNDS), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))
