"""What has changed and is not published yet, and how it becomes the next snapshot.

Owns the records that are new, changed or gone since the last publication, the counts of
a snapshot, and the order of a publication's steps. Called under the registry's lock;
when it is time to publish is the registry's to say.
"""

from __future__ import annotations

import math

from router._core import Index
from router.fleet.assembly import Assembly, bit_words, grown, put_bit
from router.fleet.change import Change
from router.fleet.directory import Directory
from router.fleet.record import Record
from router.fleet.snapshot import Snapshot
from router.fleet.worker import Status, Worker


class Publication:
    """The next publication, as far as it has come."""

    def __init__(self, index: Index, assembly: Assembly, directory: Directory) -> None:
        """Publishes an empty snapshot."""
        self._index = index
        self._slots = index.slots
        self._assembly = assembly
        self._directory = directory
        self._counts = dict.fromkeys(Status, 0)
        self._ready = bit_words(self._slots.capacity)
        #: Records that are new or changed, records that are gone.
        self._touched: dict[Record, None] = {}
        self._gone: list[Record] = []
        empty = assembly.build().snapshot(0, self._counts, (), self._ready)
        index.publish(empty, (), ())

    def __len__(self) -> int:
        """How many records are to be published."""
        return len(self._touched) + len(self._gone)

    def __contains__(self, record: Record) -> bool:
        """Whether the record is new or changed."""
        return record in self._touched

    @property
    def snapshot(self) -> Snapshot:
        """What is published now."""
        current = self._index.current
        assert isinstance(current, Snapshot)
        return current

    def add(self, record: Record) -> None:
        """A worker that is new."""
        self._ready = grown(self._ready, self._slots.capacity)
        self._counts[record.worker.status] += 1
        self._touched[record] = None

    def change(self, record: Record, before: Worker) -> None:
        """A worker is not as it was `before`. Who can take no more gets no more."""
        after = record.worker
        self._counts[before.status] -= 1
        self._counts[after.status] += 1
        put_bit(self._ready, record.slot.number, after.status is Status.READY)
        if not record.available:
            self._slots.set_available(record.slot, False)
        self._touched[record] = None

    def remove(self, record: Record) -> None:
        """A worker is gone: it gets no more, and is retired when that is published."""
        self._counts[record.worker.status] -= 1
        put_bit(self._ready, record.slot.number, False)
        self._slots.set_available(record.slot, False)
        self._touched.pop(record, None)
        self._gone.append(record)

    def prepare(self, seconds: float = math.inf) -> bool:
        """Works on it for about so long; whether `publish` has little left to do."""
        return self._assembly.prepare(seconds)

    def tidy(self) -> bool:
        """Lets go of some of what the last one replaced; whether there is more."""
        return self._assembly.tidy()

    def publish(self) -> Change | None:
        """Publishes all of it in one step, and gives what that changed."""
        if not self:
            return None
        before = self.snapshot
        built = self._assembly.build()
        added, updated, moved, groups = [], [], [], []
        for record in self._touched:
            if record.published is None:
                added.append(record.worker)
            elif record.published != record.worker:
                updated.append((record.published, record.worker))
            group = self._assembly.group(record.kind)
            if group != record.group:
                record.group = group
                moved.append(record.slot)
                groups.append(group)
            record.published = record.slot.owner = record.worker
        members = tuple(self._directory) if added or self._gone else before.slots
        snapshot = built.snapshot(
            before.version + 1, self._counts, members, self._ready
        )
        self._index.publish(snapshot, moved, groups)
        # In its new group first, then to be picked.
        for record in self._touched:
            self._slots.set_available(record.slot, record.available)
        removed = tuple(r.worker for r in self._gone if r.published is not None)
        retired = tuple(record.slot for record in self._gone)
        for slot in retired:
            self._slots.retire(slot)
        self._assembly.forget_empty_groups()
        self._touched.clear()
        self._gone.clear()
        told = (tuple(added), removed, tuple(updated), built.added, built.removed)
        return Change(snapshot, *told, retired)
