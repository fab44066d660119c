"""Requests that wait for a worker.

Owns the queue of those that found no worker available and may wait for one: bounded,
first come first served, each with its own end. Knows neither workers nor HTTP; it is
woken whenever a worker may have become free.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class HoldQueue:
    """At most `size` requests wait, each `timeout` seconds at most (0: not at all)."""

    def __init__(self, *, size: int, timeout: float) -> None:
        self.size = size
        self.timeout = timeout
        self._tickets = count()
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether nobody more may wait."""
        return self.timeout <= 0 or len(self._waiting) >= self.size

    def ticket(self) -> int:
        """A place in the queue, kept by one who was woken in vain and waits again."""
        return next(self._tickets)

    async def wait(self, ticket: int, deadline: float) -> bool:
        """Waits until a worker may be free: True; or until `deadline`: False.

        `deadline` is on the loop's clock.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_at(deadline, _resolve, future, False)
        entry = (ticket, future)
        heapq.heappush(self._waiting, entry)
        try:
            return await future
        finally:
            timer.cancel()
            future.cancel()
            if entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)

    def wake(self) -> None:
        """The fleet changed: everybody looks again, in the order they came."""
        waiting, self._waiting = sorted(self._waiting), []
        for _, future in waiting:
            _resolve(future, True)

    def wake_one(self) -> None:
        """A worker has one request less: the first in the queue looks again."""
        if self._waiting:
            _resolve(heapq.heappop(self._waiting)[1], True)


def _resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
