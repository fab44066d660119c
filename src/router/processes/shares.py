"""What a data process knows of the others while it serves: loads, and shared bounds.

Owns the one tick in which it looks at their rows and totals. So a pick goes by loads
that are exact for its own requests and at most that old for those of others, and a
bound on all processes together is kept but for what came in since the last tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router._core import Slots
from router.processes.memory import Memory

#: Seconds between two looks. Picks by loads of 50 ms ago are as good as by exact ones,
#: as long as a process's own are exact.
REFRESH_SECONDS = 0.04
#: The same while nothing goes on: each look wakes a process that sleeps.
QUIET_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Bound:
    """Something of which all processes together may hold `most`, as TOTALS lists it.

    `held`: how much this process holds. `allow`: sets how much it may hold.
    """

    most: int
    held: Callable[[], int]
    allow: Callable[[int], None]


class Shares:
    """Looks at the others from time to time. Lives on one event loop."""

    def __init__(
        self,
        memory: Memory,
        row: int,
        slots: Slots,
        bounds: Sequence[Bound],
        in_flight: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        """`bounds`: one for each of TOTALS. `in_flight`: requests of this process.
        `changed`: loads of others are not as they were: there may be room where there
        was none."""
        self._memory = memory
        self._row = row
        self._slots = slots
        self._bounds = bounds
        self._in_flight = in_flight
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Looks now, and again until `stop`."""
        quiet = False
        try:
            quiet = self._look() == 0 and self._in_flight() == 0
        finally:
            self._timer = self._loop.call_later(
                QUIET_SECONDS if quiet else REFRESH_SECONDS, self.start
            )

    def _look(self) -> int:
        """How many loads of others changed, and of how many bounds they use a part."""
        used = 0
        totals = self._memory.totals
        for number, bound in enumerate(self._bounds):
            totals[self._row, number] = bound.held()
            others = int(totals[:, number].sum()) - bound.held()
            bound.allow(max(0, bound.most - others))
            used += others != 0
        changed = self._slots.refresh()
        if changed:
            self._changed()
        return used + changed

    def stop(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
