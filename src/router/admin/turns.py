"""Long pages, written while requests go on.

Owns how long a piece of writing may hold the loop. Knows nothing of what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from time import perf_counter
from typing import TypeVar

from router.fleet.snapshot import Snapshot

#: Seconds of work between two turns of the loop, looked at after so many parts.
SLICE_SECS = 0.001
_STRIDE = 50

T = TypeVar("T")
R = TypeVar("R")


async def in_turns(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What `do` gives for each; the loop gets its turn now and then."""
    rest = iter(items)
    done = list[R]()
    until = perf_counter() + SLICE_SECS
    while some := [do(item) for item in islice(rest, _STRIDE)]:
        done += some
        if perf_counter() >= until:
            await asyncio.sleep(0)
            until = perf_counter() + SLICE_SECS
    return done


class Page:
    """What is written of a snapshot, kept until there is a newer one.

    It is asked for more often than it changes, and by several at once.
    """

    def __init__(self, write: Callable[[Snapshot], Awaitable[bytes]]) -> None:
        self._write = write
        self._writing = asyncio.Lock()
        self._version = -1
        self._body = b""

    async def of(self, snapshot: Snapshot) -> bytes:
        """The page of this snapshot, or of a newer one."""
        if self._version < snapshot.version:
            async with self._writing:
                if self._version < snapshot.version:
                    self._body = await self._write(snapshot)
                    self._version = snapshot.version
        return self._body
