"""A mirror is what its registry is, whatever happens to the fleet and however late."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from router._core import Index, Slot, Slots
from router.errors import WorkerNotFound
from router.fleet.change import Change
from router.fleet.registry import Registry
from router.fleet.snapshot import Snapshot, owner
from router.fleet.worker import Circuit, Patch, Registration, Worker
from router.processes.channel import Channel
from router.processes.messages import Publication, Up
from router.processes.mirror import Mirror, OutOfStep
from router.processes.publisher import Publisher
from tests.fleet.fleets import cards

PROCESSES = 2
NAMES = ["a", "b", "c", "fast", "everywhere"]
urls = st.sampled_from([f"http://h{number}" for number in range(4)])
models = st.lists(st.sampled_from(["a", "b", "c", "*"]), max_size=2, unique=True)
which = st.integers(0, PROCESSES - 1)


class Wire(Channel[Up]):
    """A channel whose messages wait until the test delivers them."""

    def __init__(self) -> None:
        super().__init__(msgspec.msgpack.Decoder(Up), lambda _: None, lambda: None)
        self.waiting: deque[bytes] = deque()

    def send_encoded(self, message: bytes) -> None:
        self.waiting.append(message)


class Process:
    """A data process in all that matters here."""

    def __init__(self, rows: np.typing.NDArray[np.int32], row: int) -> None:
        self.wire = Wire()
        self.index = Index(Slots(rows=rows, row=row))
        self.mirror = Mirror(self.index)
        self.held: list[Slot] = []
        self.known: set[str] = set()
        self.mirror.subscribe(self.follow)

    def follow(self, change: Change) -> None:
        """What is told of names and workers adds up to what is there."""
        self.known |= {worker.id for worker in change.added}
        self.known -= {worker.id for worker in change.removed}
        assert self.known == {worker.id for worker in change.snapshot.workers}
        assert self.known >= {worker.id for _, worker in change.updated}


def apply(mirror: Mirror, news: Publication) -> None:
    """A publication in as many slices as can be."""
    before = mirror.snapshot
    mirror.begin(news)
    while not mirror.prepare(0.0):
        assert mirror.snapshot is before
    mirror.finish()


def seen(worker: Worker) -> Worker:
    """What a data process needs of it: errors are for operators."""
    return replace(worker, last_error=None)


class MirrorsBesideRegistry(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.rows = np.zeros((PROCESSES, 64), np.int32)
        self.later: list[Callable[[], None]] = []
        self.index = Index(Slots(rows=self.rows))
        self.publisher = Publisher(self.index, lambda _, then: self.later.append(then))
        self.registry = Registry(self.index, model_aliases={"everywhere": "a"})
        self.registry.subscribe(self.publisher.follow)
        self.processes = [self.process(row) for row in range(PROCESSES)]

    def process(self, row: int) -> Process:
        process = Process(self.rows, row)
        self.publisher.join(process.wire)
        return process

    # --- what happens to the fleet ----------------------------------------------------

    @rule(
        url=urls,
        given=models,
        alias=st.booleans(),
        provider=st.sampled_from([None, None, "openai"]),
        weight=st.sampled_from([1.0, 2.0]),
        limit=st.sampled_from([0, 0, 2]),
        ranks=st.sampled_from([None, None, 2]),
        healthy=st.booleans(),
    )
    def register(
        self,
        url: str,
        given: list[str],
        alias: bool,
        provider: str | None,
        weight: float,
        limit: int,
        ranks: int | None,
        healthy: bool,
    ) -> None:
        registration = Registration(
            url,
            models=tuple(given),
            aliases={"fast": None} if alias else {},
            provider=provider,
            weight=weight,
            max_concurrency=limit,
            dp_size=ranks,
        )
        try:
            new = self.registry.register(registration).workers
        except MemoryError:
            return  # 64 slots are not much where slots come back late
        for worker in new:
            self.registry.set_health(worker.slot, healthy)

    @rule(url=urls)
    def remove(self, url: str) -> None:
        if self.has(url):
            self.registry.remove(url)

    @rule(url=urls)
    def drain(self, url: str) -> None:
        if self.has(url):
            self.registry.drain(url)

    @rule()
    def drained(self) -> None:
        self.registry.tick()

    @rule(url=urls, weight=st.sampled_from([1.0, 3.0]), priority=st.integers(49, 51))
    def patch(self, url: str, weight: float, priority: int) -> None:
        if self.has(url):
            self.registry.patch(url, Patch(weight=weight, priority=priority))

    @rule(url=urls, listed=st.lists(st.sampled_from(["a", "b", "a/c"]), unique=True))
    def sync(self, url: str, listed: list[str]) -> None:
        if self.has(url):
            self.registry.sync_models(self.registry.find(url).slot, cards(*listed))

    @rule(url=urls, healthy=st.booleans())
    def set_health(self, url: str, healthy: bool) -> None:
        if self.has(url):
            self.registry.set_health(self.registry.find(url).slot, healthy, "late")

    @rule(url=urls, circuit=st.sampled_from(Circuit))
    def set_circuit(self, url: str, circuit: Circuit) -> None:
        if self.has(url):
            self.registry.set_circuit(self.registry.find(url).slot, circuit)

    def has(self, url: str) -> bool:
        try:
            self.registry.find(url)
        except WorkerNotFound:
            return False
        return True

    # --- what happens to processes ----------------------------------------------------

    @rule()
    def deliver_all(self) -> None:
        for which in range(PROCESSES):
            self.deliver(which, 1000)

    @rule(which=which, count=st.sampled_from([1, 2, 1000]))
    def deliver(self, which: int, count: int) -> None:
        process = self.processes[which]
        for _ in range(min(count, len(process.wire.waiting))):
            news = msgspec.msgpack.decode(
                process.wire.waiting.popleft(), type=Publication
            )
            apply(process.mirror, news)
            self.publisher.applied(process.wire, news.version)

    @rule(which=which, name=st.sampled_from(NAMES))
    def pick(self, which: int, name: str) -> None:
        process = self.processes[which]
        pool = process.mirror.snapshot.pool(name)
        slot = None if pool is None else pool.least_load()
        if slot is not None:
            assert name in owner(slot).names or owner(slot).wildcard
            process.held.append(slot)

    @rule(which=which, count=st.integers(1, 9))
    def release(self, which: int, count: int) -> None:
        process = self.processes[which]
        for slot in process.held[:count]:
            assert process.index.slots.release(slot)
        del process.held[:count]

    @rule(which=which)
    def refresh(self, which: int) -> None:
        self.processes[which].index.slots.refresh()

    @rule(which=which)
    def die(self, which: int) -> None:
        """Killed, and started again."""
        self.rows[which] = 0
        self.publisher.leave(self.processes[which].wire)
        self.processes[which] = self.process(which)

    @rule()
    def time_passes(self) -> None:
        later, self.later[:] = list(self.later), []
        for then in later:
            then()

    # --- what holds -------------------------------------------------------------------

    @invariant()
    @precondition(lambda self: hasattr(self, "processes"))
    def every_request_is_counted_on_the_worker_that_has_it(self) -> None:
        held = [owner(slot).id for process in self.processes for slot in process.held]
        for worker in self.registry.workers():
            assert self.index.slots.load_of(worker.slot) == held.count(worker.id)
        assert self.rows.sum() == len(held)

    @invariant()
    @precondition(lambda self: hasattr(self, "processes"))
    def a_mirror_that_heard_all_is_the_registry(self) -> None:
        here = self.registry.snapshot
        for process in self.processes:
            if not process.wire.waiting:
                there = process.mirror.snapshot
                assert there.version == here.version
                self.same(here, there, process)

    def same(self, here: Snapshot, there: Snapshot, process: Process) -> None:
        assert list(map(seen, there.workers)) == list(map(seen, here.workers))
        assert there.counts == here.counts
        assert there.pending == here.pending
        assert there.default_model == here.default_model
        assert there.providers.keys() == here.providers.keys()
        assert there.ready.tolist() == here.ready.tolist()
        assert dict(there.readiness()) == dict(here.readiness())
        for name in NAMES:
            ours, theirs = here.pool(name), there.pool(name)
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                assert theirs.numbers().tolist() == ours.numbers().tolist()
        mine, other = self.index.slots, process.index.slots
        for a, b in zip(here.slots, there.slots, strict=True):
            assert (a.number, a.generation) == (b.number, b.generation)
            assert mine.is_available(a) == other.is_available(b)
            assert self.publisher.slot(b.number, b.generation) is a


TestMirrorsBesideRegistry = MirrorsBesideRegistry.TestCase
TestMirrorsBesideRegistry.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None
)


def test_a_publication_that_does_not_follow_the_last_one_is_no_publication() -> None:
    mirror = Mirror(Index(Slots(rows=np.zeros((1, 64), np.int32), row=0)))
    counts = dict(mirror.snapshot.counts)
    apply(mirror, Publication(7, counts, [], []))
    apply(mirror, Publication(8, counts, [], []))
    with pytest.raises(OutOfStep):
        apply(mirror, Publication(10, counts, [], []))


async def test_a_change_waits_for_every_process_that_follows() -> None:
    index = Index(Slots(rows=np.zeros((2, 64), np.int32)))
    publisher = Publisher(index, lambda _, then: None)
    registry = Registry(index, everywhere=publisher.everywhere)
    registry.subscribe(publisher.follow)
    wires = [Wire(), Wire()]
    for wire in wires:
        publisher.join(wire)
    registry.register(Registration("http://h"))
    version = registry.snapshot.version
    waiting = asyncio.ensure_future(registry.settled())
    for wire in wires:
        await asyncio.sleep(0.01)
        assert not waiting.done()
        publisher.applied(wire, version)
    await waiting
    # One that has died is not waited for.
    registry.register(Registration("http://g"))
    publisher.applied(wires[0], registry.snapshot.version)
    publisher.leave(wires[1])
    await registry.settled()


def test_a_number_is_free_once_no_process_can_pick_it_and_none_counts_on_it() -> None:
    later: list[Callable[[], None]] = []

    def time_passes() -> None:
        due, later[:] = list(later), []
        for then in due:
            then()

    rows = np.zeros((1, 64), np.int32)
    index = Index(Slots(rows=rows))
    publisher = Publisher(index, lambda _, then: later.append(then))
    registry = Registry(index)
    registry.subscribe(publisher.follow)
    wire = Wire()
    publisher.join(wire)

    def number_of_next(url: str) -> int:
        return registry.register(Registration(url)).workers[0].slot.number

    assert number_of_next("http://a") == 0
    publisher.applied(wire, registry.snapshot.version)
    registry.remove("http://a")
    time_passes()
    assert number_of_next("http://b") == 1  # the process has not heard of it
    publisher.applied(wire, registry.snapshot.version)
    rows[0, 0] = 1
    time_passes()
    assert number_of_next("http://c") == 2  # it still has a request there
    rows[0, 0] = 0
    time_passes()
    slot = registry.register(Registration("http://d")).workers[0].slot
    assert (slot.number, slot.generation) == (0, 1)


async def test_who_does_not_follow_is_waited_for_once() -> None:
    index = Index(Slots(rows=np.zeros((1, 64), np.int32)))
    publisher = Publisher(index, lambda _, then: None)
    registry = Registry(index, everywhere=publisher.everywhere)
    registry.subscribe(publisher.follow)
    wire = Wire()
    publisher.join(wire)
    registry.register(Registration("http://h"))
    await asyncio.wait_for(registry.settled(), 30)
    registry.register(Registration("http://g"))
    turns = asyncio.ensure_future(registry.settled())
    for _ in range(5):
        await asyncio.sleep(0)
    assert turns.done()
    # Once it has caught up it is waited for again.
    publisher.applied(wire, registry.snapshot.version)
    registry.register(Registration("http://i"))
    waiting = asyncio.ensure_future(registry.settled())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    publisher.applied(wire, registry.snapshot.version)
    await waiting
