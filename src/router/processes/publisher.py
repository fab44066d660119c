"""The registry's side of the mirrors: who has heard of which publication.

Owns what is sent of a publication, the wait until every data process goes by it, and
the end of slots: a number is used again only when no process can pick its old worker
any more and none counts a request on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec

from router._core import Index, Slot
from router.fleet.change import Change
from router.fleet.registry import Scheduler
from router.fleet.snapshot import Snapshot
from router.processes.channel import Channel
from router.processes.messages import Publication, Up, place

_log = logging.getLogger("router.processes")

#: Seconds that a change waits for a process to follow. It follows in milliseconds.
PATIENCE = 2.0
#: Seconds between two looks at slots that are still in use.
_RECLAIM_SECONDS = 0.25


class Publisher:
    """Tells data processes what the registry publishes. Lives on one event loop."""

    def __init__(self, index: Index, scheduler: Scheduler) -> None:
        """`scheduler`: runs a function after so many seconds."""
        self._index = index
        self._scheduler = scheduler
        #: Who follows -> the version it goes by.
        self._applied: dict[Channel[Up], int] = {}
        #: Who did not follow in time: not waited for until it has caught up.
        self._late: set[Channel[Up]] = set()
        self._moved = asyncio.Event()
        #: (first version without it, slot), in the order of versions.
        self._retired: deque[tuple[int, Slot]] = deque()
        self._reclaim_due = False

    def slot(self, number: int, generation: int) -> Slot | None:
        """The slot that a data process means; None: that life is over."""
        slot = self._index.slots.at(number)
        return slot if slot is not None and slot.generation == generation else None

    def follow(self, change: Change) -> None:
        """To be called back by the registry before anything else is: in order."""
        snapshot = change.snapshot
        for slot in change.retired:
            self._retired.append((snapshot.version, slot))
        if self._applied:
            news = Publication(
                snapshot.version,
                dict(snapshot.counts),
                [
                    place(w)
                    for w in (*change.added, *(new for _, new in change.updated))
                ],
                [worker.slot.number for worker in change.removed],
            )
            encoded = msgspec.msgpack.encode(news)
            for channel in list(self._applied):
                channel.send_encoded(encoded)
        self._reclaim_soon()

    def join(self, channel: Channel[Up]) -> None:
        """Sends all of the index to a process, and from now on what changes."""
        snapshot: Snapshot = self._index.current
        workers = [place(worker) for worker in snapshot.workers]
        channel.send(Publication(snapshot.version, dict(snapshot.counts), workers, []))
        # It takes no connection before it has applied this.
        self._applied[channel] = snapshot.version

    def leave(self, channel: Channel[Up]) -> None:
        """A process has gone, and its row is zero."""
        self._applied.pop(channel, None)
        self._late.discard(channel)
        self._move()

    def applied(self, channel: Channel[Up], version: int) -> None:
        """A process goes by this version now."""
        if channel in self._applied:
            self._applied[channel] = version
            current: Snapshot = self._index.current
            if version == current.version:
                self._late.discard(channel)
            self._move()

    async def everywhere(self, version: int) -> None:
        """Returns when every living process goes by `version`, or after PATIENCE.

        One process that hangs makes the changes of that time wait, and no later ones.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                while self._behind(version):
                    await self._moved.wait()
        except TimeoutError:
            self._late.update(self._behind(version))
            _log.warning(
                "a process does not follow",
                extra={"version": version, "is_at": self._oldest()},
            )

    def _behind(self, version: int) -> list[Channel[Up]]:
        """Those to wait for."""
        return [
            channel
            for channel, applied in self._applied.items()
            if applied < version and channel not in self._late
        ]

    def _oldest(self) -> int:
        current: Snapshot = self._index.current
        return min(self._applied.values(), default=current.version)

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _reclaim_soon(self) -> None:
        if self._retired and not self._reclaim_due:
            self._reclaim_due = True
            self._scheduler(_RECLAIM_SECONDS, self._reclaim)

    def _reclaim(self) -> None:
        self._reclaim_due = False
        oldest = self._oldest()
        kept: deque[tuple[int, Slot]] = deque()
        for version, slot in self._retired:
            if version > oldest or not self._index.slots.reclaim(slot):
                kept.append((version, slot))
        self._retired = kept
        self._reclaim_soon()
