"""The index in a data process: what the registry published, made again.

Owns the workers as the control process told of them, and the Assembly that makes the
index of them: the same one the registry uses, so that a request finds the same pools
here. Decides nothing: what a worker serves and whether it is available comes with it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from router._core import Index, Slot
from router.fleet.assembly import Assembly, Kind, bit_words, grown, hash64, put_bit
from router.fleet.change import Change
from router.fleet.record import kind_of
from router.fleet.snapshot import Snapshot
from router.fleet.worker import Status, Worker
from router.processes.messages import Placed, Publication, fields_of, worker_of


class OutOfStep(Exception):
    """A publication does not follow the last one: the process has to start anew."""


@dataclass(slots=True)
class _Member:
    worker: Worker
    kind: Kind
    group: int


@dataclass(slots=True)
class _Next:
    """A publication on its way: what it says, put into the words of this process."""

    news: Publication
    removed: list[Worker]
    #: What is not taken in yet, and what is.
    left: Iterator[Placed]
    placed: list[_Member] = field(default_factory=list)
    #: The placed ones that were here, as they were, by slot number.
    before: dict[int, Worker] = field(default_factory=dict)


class Mirror:
    """Follows a registry in another process. To be read like that registry.

    A publication is taken in with `begin`, `prepare` until that is done, and `finish`.
    """

    def __init__(self, index: Index) -> None:
        """Publishes an empty snapshot."""
        self._index = index
        self._slots = index.slots
        self._assembly = Assembly(self._slots)
        self._ready = bit_words(self._slots.capacity)
        self._members: dict[int, _Member] = {}
        #: By number, in registration order.
        self._in_order: dict[int, Slot] = {}
        self._callbacks: tuple[Callable[[Change], None], ...] = ()
        self._next: _Next | None = None
        self._whole = False
        nobody = dict.fromkeys(Status, 0)
        empty = self._assembly.build().snapshot(0, nobody, (), self._ready)
        index.publish(empty, (), ())

    @property
    def snapshot(self) -> Snapshot:
        """What requests go by now."""
        current = self._index.current
        assert isinstance(current, Snapshot)
        return current

    def subscribe(self, callback: Callable[[Change], None]) -> object:
        """Calls back after each publication."""
        self._callbacks = (*self._callbacks, callback)
        return None

    def begin(self, news: Publication) -> None:
        """Takes in what was published there. Raises OutOfStep.

        Workers that are gone get no more requests from now on.
        """
        if self._whole and news.version != self.snapshot.version + 1:
            raise OutOfStep(f"{news.version} after {self.snapshot.version}")
        self._whole = True
        removed = [self._take_out(number) for number in news.removed]
        self._next = _Next(news, removed, iter(news.placed))

    def prepare(self, seconds: float) -> bool:
        """Works on it for about so long; whether `finish` has little left to do."""
        assert self._next is not None
        deadline = time.perf_counter() + seconds
        for placed in self._next.left:
            member = self._members.get(placed.number)
            if member is not None:
                self._next.before[placed.number] = member.worker
            self._next.placed.append(self._place(placed))
            if time.perf_counter() >= deadline:
                return False
        return self._assembly.prepare(seconds)

    def finish(self) -> None:
        """Publishes it here, in one step."""
        self.prepare(math.inf)
        assert self._next is not None
        change = self._publish(self._next)
        self._next = None
        for callback in self._callbacks:
            callback(change)

    def _take_out(self, number: int) -> Worker:
        member = self._members.pop(number)
        del self._in_order[number]
        self._slots.set_available(member.worker.slot, False)
        self._assembly.displace(number, member.kind)
        put_bit(self._ready, number, False)
        return member.worker

    def _place(self, placed: Placed) -> _Member:
        """Follows what is new of a worker, up to the publication."""
        fields = fields_of(placed)
        number = placed.number
        kind = kind_of(fields, fields)  # a worker has the fields of both
        member = self._members.get(number)
        if member is None:
            group = self._assembly.group(kind)
            slot = self._slots.acquire(
                None, hash64(fields.url), group, (number, placed.generation)
            )
            member = _Member(worker_of(fields, slot), kind, group)
            self._members[number] = member
            self._in_order[number] = slot
            self._assembly.place(number, kind)
        else:
            member.worker = worker_of(fields, member.worker.slot)
            if kind != member.kind:
                self._assembly.group(kind)
                self._assembly.move(number, member.kind, kind)
                member.kind = kind
        self._ready = grown(self._ready, self._slots.capacity)
        put_bit(self._ready, number, member.worker.status is Status.READY)
        return member

    def _publish(self, following: _Next) -> Change:
        news, before = following.news, following.before
        members, removed = following.placed, following.removed
        built = self._assembly.build()
        moved, groups = [], []
        for member in members:
            worker = member.worker
            worker.slot.owner = worker
            group = self._assembly.group(member.kind)
            if group != member.group:
                member.group = group
                moved.append(worker.slot)
                groups.append(group)
        slots = self.snapshot.slots
        if removed or len(members) > len(before):
            slots = tuple(self._in_order.values())
        snapshot = built.snapshot(news.version, news.counts, slots, self._ready)
        self._index.publish(snapshot, moved, groups)
        for member in members:
            self._slots.set_available(member.worker.slot, member.worker.available)
        for worker in removed:
            self._slots.retire(worker.slot)
        self._assembly.forget_empty_groups()
        while self._assembly.tidy():
            pass
        workers = [member.worker for member in members]
        return Change(
            snapshot,
            added=tuple(w for w in workers if w.slot.number not in before),
            removed=tuple(removed),
            updated=tuple(
                (before[w.slot.number], w) for w in workers if w.slot.number in before
            ),
            models_added=built.added,
            models_removed=built.removed,
        )
