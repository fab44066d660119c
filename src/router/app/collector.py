"""The garbage collector, kept off the way of requests.

Owns when Python looks for cycles. A look at all that a fleet of 10,000 workers is made
of takes 100 ms, in which no request moves, and finds nothing: what lives long is freed
by its counts of references. So only what is young is looked at, some thousands of
objects at a time; what has lived through that is put aside. All of it is looked at
once a million objects were put aside, for cycles that may be among them.
"""

from __future__ import annotations

import asyncio
import gc

#: Objects made until the youngest are looked at, and how many such looks until their
#: survivors are looked at once more. A look at 3,000 objects takes 1 to 2 ms.
_THRESHOLDS = (700, 3, 1_000)
#: Objects put aside until all are looked at.
_MOST_ASIDE = 1_000_000


class Collector:
    """Puts aside what lives long, while it runs, on one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._aside = 0

    def start(self) -> None:
        """What is there now is put aside, too."""
        gc.set_threshold(*_THRESHOLDS)
        gc.freeze()
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Leaves the collector as it is, and puts nothing more aside."""
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] == 0:
            return
        self._aside += len(gc.get_objects(generation=2))
        gc.freeze()
        if self._aside >= _MOST_ASIDE:
            self._aside = 0
            # Not from within a collection.
            self._loop.call_soon(_look_at_all)


def _look_at_all() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()
