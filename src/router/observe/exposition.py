"""Prometheus text: how families and samples are written.

Owns the format and nothing that is counted. The largest fleets have tens of thousands
of series, written on the loop that also serves requests: here line by line, so that
requests come in between. `prometheus_client` writes a page in one piece and takes
several times as long; it gives only what is told of the process.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Upper ends of the buckets in seconds: from a router's own error to a long stream.
BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
_ENDS = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Histogram:
    """How often values fell into each of BOUNDS' buckets."""

    def __init__(self) -> None:
        #: Per bucket, the last one without an upper end; not cumulative.
        self.counts = [0] * (len(BOUNDS) + 1)
        #: Sum of all values, in seconds.
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one value."""
        low, high = 0, len(BOUNDS)
        while low < high:
            # As bisect_left does it, but compiled.
            middle = (low + high) // 2
            bound: float = BOUNDS[middle]
            if bound < seconds:
                low = middle + 1
            else:
                high = middle
        self.counts[low] += 1
        self.total += seconds

    def take(self) -> tuple[list[int], float]:
        """Counts and sum so far; begins again from zero."""
        taken = (self.counts, self.total)
        self.counts, self.total = [0] * len(self.counts), 0.0
        return taken

    def add(self, counts: Iterable[int], total: float) -> None:
        """What another one counted."""
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
        self.total += total

    def samples(self, name: str) -> Iterator[str]:
        """Its lines of text."""
        for end, count in zip(_ENDS, accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{le="{end}"}} {count}'
        yield f"{name}_sum {self.total!r}"
        yield f"{name}_count {sum(self.counts)}"


def labels(**values: str) -> str:
    """`name="value",...`, without the braces, so that it can be put beside others."""
    return ",".join(
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items()
    )


def family(name: str, kind: str, help: str, samples: Iterable[str]) -> Iterator[str]:
    """The lines of one metric: its head, then its samples.

    `kind`: counter, gauge or histogram.
    """
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    yield from samples
