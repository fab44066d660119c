"""THE WRITER: who is in the fleet, and the one place where that changes.

Owns the lock, the records of the workers and the publication of snapshots. Does no
I/O: probes and model reads are told to it. It decides under the lock and acts outside
it: callbacks are called, and what they are told of is to be closed, once the lock is
let go. A fact about a worker comes with the slot of its life, so that what was learned
about a worker that has gone or was replaced meanwhile changes nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from router._core import Index, Slot, Slots
from router.fleet.assembly import Assembly, Built, bit_words, grown, hash64, put_bit
from router.fleet.change import Change, Registered
from router.fleet.directory import Directory
from router.fleet.record import Record, kind_of, url_of, worker_of
from router.fleet.served import GlobalAliases, Served, serve
from router.fleet.snapshot import Snapshot
from router.fleet.worker import (
    Circuit,
    ModelCard,
    Patch,
    Registration,
    Status,
    Worker,
)

#: Registrations and model syncs are published together within this time.
COALESCE_SECS = 0.02
#: How often draining workers are looked at.
DRAIN_TICK_SECS = 0.1

#: Runs the function after so many seconds, as `loop.call_later` does.
Scheduler = Callable[[float, Callable[[], None]], object]


class Registry:
    """The fleet's members. Every method may be called from any thread."""

    def __init__(
        self,
        index: Index,
        *,
        model_aliases: Mapping[str, str] | None = None,
        unlisted_wildcard: bool = False,
        scheduler: Scheduler | None = None,
        clock: Callable[[], float] = time.time,
        everywhere: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Publishes an empty snapshot.

        `model_aliases`: alias -> model, for every worker of the model; ValueError for
        aliases in a circle.
        `unlisted_wildcard`: a worker whose own list is empty serves every model.
        `scheduler`: lets a burst of registrations and syncs be published together
        within COALESCE_SECS, and draining workers leave by themselves; it is called on
        the thread of the mutation. Without one each mutation is published by itself,
        and `tick` is to be called.
        `clock`: seconds since the epoch.
        `everywhere`: returns when all that route by this registry go by a version.
        """
        self._index = index
        self._slots = index.slots
        self._aliases = GlobalAliases(model_aliases or {})
        self._unlisted_wildcard = unlisted_wildcard
        self._scheduler = scheduler
        self._clock = clock
        self._everywhere = everywhere
        self._callbacks: tuple[Callable[[Change], None], ...] = ()

        self._lock = threading.Lock()
        self._assembly = Assembly(self._slots)
        self._directory = Directory()
        self._draining: dict[Record, None] = {}
        self._counts = dict.fromkeys(Status, 0)
        self._ready = bit_words(self._slots.capacity)

        # Not published yet: records that are new or changed, records that are gone.
        self._touched: dict[Record, None] = {}
        self._gone: list[Record] = []
        self._urgent = self._flush_due = self._tick_due = False
        index.publish(self._snapshot_of(self._assembly.build(), 0, ()), (), ())

    @property
    def snapshot(self) -> Snapshot:
        """What is published now."""
        current = self._index.current
        assert isinstance(current, Snapshot)
        return current

    @property
    def slots(self) -> Slots:
        """The workers' places in the core: loads, and releases of them."""
        return self._slots

    # --- membership -----------------------------------------------------------------

    def register(self, registration: Registration) -> Registered:
        """Adds the URL's worker or ranks; whoever had its base URL goes in one step."""
        with self._writing():
            old = self._directory.at(registration.url)
            for record in old:
                self._take_out(record)
            first, size = registration.dp_start_rank, registration.dp_size
            ranks = [None] if size is None else range(first, first + size)
            new = [self._add(registration, rank) for rank in ranks]
        return Registered(
            tuple(record.worker for record in new),
            tuple(record.worker for record in old),
        )

    def remove(self, key: str) -> tuple[Worker, ...]:
        """Takes a worker out at once; a base URL takes out all its ranks.

        `key`: id or URL. Gives them as they last were. Raises WorkerNotFound.
        """
        with self._writing():
            records = self._directory.find(key)
            for record in records:
                self._take_out(record)
        return tuple(record.worker for record in records)

    def drain(self, key: str, within: float | None = None) -> tuple[Worker, ...]:
        """No new requests; removed when empty, or after `within` seconds.

        Raises WorkerNotFound.
        """
        deadline = None if within is None else time.monotonic() + within
        with self._writing():
            records = self._directory.find(key)
            for record in records:
                record.drain(deadline)
                self._draining[record] = None
                self._renew(record)
        return tuple(record.worker for record in records)

    def patch(self, key: str, patch: Patch) -> tuple[Worker, ...]:
        """Changes a worker's settings; a base URL changes all its ranks.

        `models` serve as those of a registration do: until the worker's list is read
        the next time. Raises WorkerNotFound.
        """
        with self._writing():
            records = self._directory.find(key)
            for record in records:
                record.patch(patch)
                self._renew(record)
        return tuple(record.worker for record in records)

    def tick(self) -> None:
        """Removes the draining workers that are empty or out of time."""
        now = time.monotonic()
        with self._writing():
            self._tick_due = False
            for record in list(self._draining):
                deadline = record.drain_deadline
                late = deadline is not None and now >= deadline
                if late or self._slots.load_of(record.slot) == 0:
                    self._take_out(record)

    # --- what is learned about a worker -----------------------------------------------

    def sync_models(self, slot: Slot, cards: Sequence[ModelCard] | None) -> bool:
        """The worker's own list was read; None: it has none (404).

        False: that life is over, nothing changed.
        """
        return self._learn(slot, lambda record: record.take_list(cards))

    def sync_failed(self, slot: Slot, error: str) -> bool:
        """The worker's list could not be read; what was known of it stays.

        False: that life is over, nothing changed.
        """
        return self._learn(slot, lambda record: record.miss_list(error))

    def set_health(self, slot: Slot, healthy: bool, error: str | None = None) -> bool:
        """What its probes, all considered, say: whether it can take requests.

        A worker that comes back counts as ready once its list was read again.
        `error`: why not, for operators. False: that life is over, nothing changed.
        """
        return self._learn(slot, lambda record: record.take_health(healthy, error))

    def set_circuit(self, slot: Slot, circuit: Circuit) -> bool:
        """What its breaker says. False: that life is over, nothing changed."""
        return self._learn(slot, lambda record: record.take_circuit(circuit))

    def _learn(self, slot: Slot, fact: Callable[[Record], None]) -> bool:
        with self._writing():
            record = self._directory.of(slot)
            if record is None:
                return False
            fact(record)
            self._renew(record)
        return True

    # --- reading ----------------------------------------------------------------------

    def find(self, key: str) -> Worker:
        """The worker of an id or URL, of a base URL its first rank, as it is now.

        Raises WorkerNotFound.
        """
        return self._directory.find(key)[0].worker

    def workers(self, model: str | None = None) -> tuple[Worker, ...]:
        """All workers, or all candidates of a model, in registration order."""
        snapshot = self.snapshot
        return snapshot.workers if model is None else snapshot.workers_of(model)

    # --- publication ------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Calls back after each publication, outside the lock, on its thread.

        Gives the function that ends it.
        """
        self._callbacks = (*self._callbacks, callback)
        return lambda: self._unsubscribe(callback)

    def _unsubscribe(self, callback: Callable[[Change], None]) -> None:
        self._callbacks = tuple(c for c in self._callbacks if c is not callback)

    def flush(self) -> None:
        """Publishes what is not published yet."""
        with self._writing():
            self._flush_due = False
            self._urgent = True

    async def settled(self) -> None:
        """Returns when all that was changed before is published, in every process.

        What changes in the same turn of the event loop shares the publication.
        """
        await asyncio.sleep(0)
        self.flush()
        if self._everywhere is not None:
            await self._everywhere(self.snapshot.version)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Holds the lock, publishes or sees to it, and tells outside of the lock."""
        change = None
        flush_later = tick_later = False
        with self._lock:
            yield
            if self._urgent or self._scheduler is None:
                change = self._publish()
            if (self._touched or self._gone) and not self._flush_due:
                flush_later = self._flush_due = True
            if self._draining and not self._tick_due:
                tick_later = self._tick_due = True
        if change is not None:
            for callback in self._callbacks:
                callback(change)
        if self._scheduler is not None and flush_later:
            self._scheduler(COALESCE_SECS, self.flush)
        if self._scheduler is not None and tick_later:
            self._scheduler(DRAIN_TICK_SECS, self.tick)

    def _publish(self) -> Change | None:
        self._urgent = False
        if not self._touched and not self._gone:
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
        snapshot = self._snapshot_of(built, before.version + 1, members)
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

    def _snapshot_of(
        self, built: Built, version: int, slots: tuple[Slot, ...]
    ) -> Snapshot:
        return Snapshot(
            version=version,
            pools=built.pools,
            wildcards=built.wildcards,
            everyone=built.everyone,
            default_model=built.default_model,
            pending=self._counts[Status.PENDING],
            counts=dict(self._counts),
            providers=built.providers,
            slots=slots,
            ready=self._ready.copy(),
        )

    # --- under the lock ---------------------------------------------------------------

    def _add(self, registration: Registration, rank: int | None) -> Record:
        served = self._serve(registration, None)
        kind = kind_of(registration, served)
        group = self._assembly.group(kind)
        url = url_of(registration, rank)
        slot = self._slots.acquire(None, hash64(url), group)
        worker = worker_of(
            registration,
            rank,
            served,
            worker_id=secrets.token_hex(8),
            slot=slot,
            now=self._clock(),
        )
        slot.owner = worker
        record = Record(registration, worker, None, kind, group)
        self._directory.add(record)
        self._ready = grown(self._ready, self._slots.capacity)
        self._counts[worker.status] += 1
        self._assembly.place(slot.number, kind)
        self._touched[record] = None
        return record

    def _take_out(self, record: Record) -> None:
        """Out of every table and set; its slot is retired when that is published."""
        slot = record.slot
        self._directory.discard(record)
        self._draining.pop(record, None)
        self._touched.pop(record, None)
        self._counts[record.worker.status] -= 1
        put_bit(self._ready, slot.number, False)
        self._assembly.displace(slot.number, record.kind)
        self._gone.append(record)
        self._urgent = True

    def _serve(
        self, registration: Registration, cards: tuple[ModelCard, ...] | None
    ) -> Served:
        return serve(
            registration,
            cards,
            self._aliases,
            unlisted_wildcard=self._unlisted_wildcard,
        )

    def _renew(self, record: Record) -> None:
        """Follows what has changed in a record: value, sets, availability."""
        served = self._serve(record.registration, record.cards)
        before, was_available = record.worker, record.available
        after = record.renewed(served, self._clock())
        if after == before:
            return
        record.worker = after
        if after == replace(before, last_error=after.last_error):
            # Nothing that the index knows of: shown at once, by way of the slot.
            if record not in self._touched:
                record.published = record.slot.owner = after
            return
        self._touched[record] = None
        self._counts[before.status] -= 1
        self._counts[after.status] += 1
        put_bit(self._ready, record.slot.number, after.status is Status.READY)
        kind = kind_of(record.registration, served)
        if kind != record.kind:
            self._assembly.displace(record.slot.number, record.kind)
            self._assembly.group(kind)
            self._assembly.place(record.slot.number, kind)
            record.kind = kind
        if record.available != was_available:
            self._urgent = True
