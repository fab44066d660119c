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
from router.fleet import address
from router.fleet.assembly import Assembly, hash64
from router.fleet.change import Change, Registered
from router.fleet.directory import Directory
from router.fleet.publication import Publication
from router.fleet.record import Record, kind_of, url_of, worker_of
from router.fleet.served import GlobalAliases, Served, serve
from router.fleet.snapshot import Snapshot
from router.fleet.worker import (
    Circuit,
    ModelCard,
    Patch,
    Registration,
    Worker,
)

#: Registrations and model syncs are published together within this time, or in the next
#: turn of the loop when so many workers are to be published.
COALESCE_SECS = 0.02
MOST_TOGETHER = 128
#: A publication that takes longer to make is made in slices, a turn of the loop each,
#: unless it would not come to an end for so long, since ever more is changed.
SLICE_SECS = 0.001
LONGEST_BUILD_SECS = 1.0
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
        within COALESCE_SECS, removals and availability in the next turn of the loop,
        and draining workers leave by themselves; it is called on the thread of the
        mutation. Who is gone or down gets nothing from that moment on. Without a
        scheduler each mutation is published by itself, and `tick` is to be called.
        `clock`: seconds since the epoch.
        `everywhere`: returns when all that route by this registry go by a version.
        """
        self._slots = index.slots
        self._aliases = GlobalAliases(model_aliases or {})
        self._unlisted_wildcard = unlisted_wildcard
        self._scheduler = scheduler
        self._clock = clock
        self._everywhere = everywhere
        self._callbacks: tuple[Callable[[Change], None], ...] = ()

        # Reentrant for `together`; `_depth` is how deep.
        self._lock = threading.RLock()
        self._depth = 0
        self._assembly = Assembly(self._slots)
        self._directory = Directory()
        self._draining: dict[Record, None] = {}
        self._next = Publication(index, self._assembly, self._directory)
        self._urgent = False
        self._flush_due = self._turn_due = self._tick_due = False
        #: What the last publication replaced is still there.
        self._untidy = False
        #: Since when slices of a publication are made (monotonic); None: none are.
        self._building: float | None = None

    @property
    def snapshot(self) -> Snapshot:
        """What is published now."""
        return self._next.snapshot

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
            new = self._add(registration)
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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Publishes what the thread changes in the block in one step, at its end."""
        with self._writing():
            yield

    def flush(self) -> None:
        """Publishes what is not published yet; a large change within some turns."""
        # What is made in slices goes on by itself.
        with self._writing(publish=self._building is None):
            self._flush_due = False

    async def settled(self) -> None:
        """Returns when all that was changed before is published, in every process.

        What changes in the same turn of the event loop shares the publication.
        """
        await asyncio.sleep(0)
        self.flush()
        while self._building is not None:
            await asyncio.sleep(0)
        if self._everywhere is not None:
            await self._everywhere(self.snapshot.version)

    @contextmanager
    def _writing(self, *, publish: bool = False) -> Iterator[None]:
        """Holds the lock, publishes or sees to it, and tells outside of the lock."""
        change: Change | None = None
        later: list[tuple[float, Callable[[], None]]] = []
        try:
            with self._lock:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                    if not self._depth:
                        if publish or self._scheduler is None:
                            change = self._publish()
                        later = self._later()
        finally:
            if change is not None:
                for callback in self._callbacks:
                    callback(change)
            if self._scheduler is not None:
                for seconds, function in later:
                    self._scheduler(seconds, function)

    def _publish(self) -> Change | None:
        """Publishes, or begins to make what takes long to make."""
        now = time.monotonic()
        since = now if self._building is None else self._building
        sliced = self._scheduler is not None and now - since < LONGEST_BUILD_SECS
        if sliced and not self._next.prepare(SLICE_SECS):
            self._building = since
            return None
        self._building = None
        self._urgent = False
        change = self._next.publish()
        self._untidy = self._next.tidy()
        return change

    def _next_turn(self) -> None:
        with self._writing(publish=self._urgent or self._building is not None):
            self._turn_due = False
            self._untidy = self._next.tidy()

    def _later(self) -> list[tuple[float, Callable[[], None]]]:
        """What is to be called, after so many seconds; each is asked for once."""
        wanted: list[tuple[float, Callable[[], None]]] = []
        self._urgent = self._urgent or len(self._next) >= MOST_TOGETHER
        soon = self._urgent or self._untidy or self._building is not None
        if soon and not self._turn_due:
            self._turn_due = True
            wanted.append((0.0, self._next_turn))
        if self._next and not self._flush_due:
            self._flush_due = True
            wanted.append((COALESCE_SECS, self.flush))
        if self._draining and not self._tick_due:
            self._tick_due = True
            wanted.append((DRAIN_TICK_SECS, self.tick))
        return wanted

    # --- under the lock ---------------------------------------------------------------

    def _add(self, registration: Registration) -> list[Record]:
        """The registration's worker, or one a rank: alike but for their slots."""
        served = self._serve(registration, None)
        kind = kind_of(registration, served)
        base, now = address.parse(registration.url), self._clock()
        first, size = registration.dp_start_rank, registration.dp_size
        new = []
        for rank in [None] if size is None else range(first, first + size):
            group = self._assembly.group(kind)
            slot = self._slots.acquire(None, hash64(url_of(registration, rank)), group)
            worker = worker_of(
                registration,
                rank,
                served,
                base,
                worker_id=secrets.token_hex(8),
                slot=slot,
                now=now,
            )
            slot.owner = worker
            record = Record(registration, worker, None, kind, group)
            self._directory.add(record)
            self._assembly.place(slot.number, kind)
            self._next.add(record)
            new.append(record)
        return new

    def _take_out(self, record: Record) -> None:
        """Out of every table and set."""
        self._directory.discard(record)
        self._draining.pop(record, None)
        self._assembly.displace(record.slot.number, record.kind)
        self._next.remove(record)
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
            if record not in self._next:
                record.published = record.slot.owner = after
            return
        self._next.change(record, before)
        kind = kind_of(record.registration, served)
        if kind != record.kind:
            self._assembly.group(kind)
            self._assembly.move(record.slot.number, record.kind, kind)
            record.kind = kind
        if record.available != was_available:
            self._urgent = True
