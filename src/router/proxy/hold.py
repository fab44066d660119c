"""Requests that wait for a worker.

Owns the queue of those that found no worker available and may wait for one: bounded,
first come first served, each with its own end. Knows neither workers nor HTTP: each
who waits brings the look that may find a slot, and a slot that is found is handed
over in that very call, so that nobody who comes later can have it.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from router._core import Slot
from router.errors import RouterError

#: Finds a slot or None; raises a RouterError where further waiting is vain.
Look = Callable[[], Slot | None]


class Kind(NamedTuple):
    """What somebody waits for. Where one finds nothing, none of its kind would."""

    model: str | None
    provider: str | None
    rank: str | None
    has_body: bool


class _Place:
    """One who waits."""

    __slots__ = ("future", "look", "number")

    def __init__(
        self, number: int, look: Look, future: asyncio.Future[Slot | None]
    ) -> None:
        self.number = number
        self.look = look
        self.future = future


class HoldQueue:
    """At most `size` requests wait, each `timeout` seconds at most (0: not at all)."""

    def __init__(self, *, size: int, timeout: float) -> None:
        self.size = size
        self.timeout = timeout
        self._numbers = count()
        # Each line in the order of arrival. There are no empty lines.
        self._lines: dict[Kind, dict[_Place, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether nobody more may wait."""
        return self.timeout <= 0 or self._count >= self.size

    async def wait(
        self, kind: Kind, look: Look, give_back: Callable[[Slot], None]
    ) -> Slot | None:
        """The slot that `look` finds when it is its turn; None: it took too long.

        Raises what `look` raises. A slot that was found for somebody who left at that
        moment goes to `give_back`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Slot | None] = loop.create_future()
        place = _Place(next(self._numbers), look, future)
        self._lines.setdefault(kind, {})[place] = None
        self._count += 1
        timer = loop.call_later(self.timeout, self._give_up, kind, place)
        try:
            return await future
        except BaseException:
            slot = None
            if future.done() and not future.cancelled() and not future.exception():
                slot = future.result()
            if slot is not None:
                give_back(slot)
            raise
        finally:
            timer.cancel()
            self._leave(kind, place)

    def wake(
        self, *, most: float = math.inf, who: Callable[[Kind], bool] = lambda _: True
    ) -> None:
        """Something changed: those who wait look, in the order they came.

        `most`: there is something for so many. `who`: which kinds it may be for.
        """
        heads = [
            (next(iter(line)).number, kind)
            for kind, line in self._lines.items()
            if who(kind)
        ]
        heapq.heapify(heads)
        while heads and most > 0:
            _, kind = heapq.heappop(heads)
            place = next(iter(self._lines[kind]))
            try:
                slot = place.look()
            except RouterError as error:
                place.future.set_exception(error)
            else:
                if slot is None:
                    continue
                place.future.set_result(slot)
                most -= 1
            self._leave(kind, place)
            if kind in self._lines:
                heapq.heappush(heads, (next(iter(self._lines[kind])).number, kind))

    def end(self, error: RouterError) -> None:
        """Whoever waits gets `error` instead of a slot."""
        for kind, line in list(self._lines.items()):
            for place in list(line):
                if not place.future.done():
                    place.future.set_exception(error)
                self._leave(kind, place)

    def _give_up(self, kind: Kind, place: _Place) -> None:
        if not place.future.done():
            place.future.set_result(None)
        self._leave(kind, place)

    def _leave(self, kind: Kind, place: _Place) -> None:
        line = self._lines.get(kind)
        if line is not None and place in line:
            del line[place]
            self._count -= 1
            if not line:
                del self._lines[kind]
