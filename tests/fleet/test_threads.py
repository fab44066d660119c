"""Many writers at once: the lock keeps them apart, and none waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from threading import Thread

from router._core import Index, Slots
from router.errors import WorkerNotFound
from router.fleet.registry import Registry
from router.fleet.worker import Registration, Status, Worker
from tests.fleet.fleets import cards, listed, routed, url

NAMES = ["a", "b", "c", "d"]


class Writer:
    """Does one thing after the other to URLs and models that others change, too."""

    def __init__(self, registry: Registry, seed: int) -> None:
        self.registry = registry
        self.random = Random(seed)
        self.known: list[Worker] = []

    def work(self, operations: int) -> None:
        todo: list[Callable[[], None]] = [
            self.register,
            self.remove,
            self.sync,
            self.probe,
            self.request,
        ]
        for _ in range(operations):
            self.random.choice(todo)()

    def register(self) -> None:
        models = tuple(self.random.sample(NAMES, 2))
        registration = Registration(url(self.random.randrange(40)), models=models)
        self.known += self.registry.register(registration).workers
        del self.known[:-60]

    def remove(self) -> None:
        with suppress(WorkerNotFound):
            self.registry.remove(url(self.random.randrange(40)))

    def sync(self) -> None:
        for worker in self.random.sample(self.known, min(1, len(self.known))):
            self.registry.sync_models(worker.slot, cards(*self.random.sample(NAMES, 2)))

    def probe(self) -> None:
        for worker in self.random.sample(self.known, min(1, len(self.known))):
            self.registry.set_health(worker.slot, self.random.random() < 0.7)

    def request(self) -> None:
        pool = self.registry.snapshot.pool(self.random.choice(NAMES))
        slot = None if pool is None else pool.least_load()
        if slot is not None:
            assert self.registry.slots.release(slot)


def test_threads_that_register_sync_and_remove_leave_a_consistent_fleet() -> None:
    """4 threads, 5,000 operations each. One that raises fails the test, too."""
    registry = Registry(Index(Slots(seed=1)))
    threads = [
        Thread(target=Writer(registry, seed).work, args=(5_000,)) for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
        assert not thread.is_alive(), "a deadlock"

    workers = registry.workers()
    assert workers
    assert len({worker.url for worker in workers}) == len(workers)
    assert len({worker.slot.number for worker in workers}) == len(workers)
    for worker in workers:
        assert registry.find(worker.url) == registry.find(worker.id) == worker
    for name in NAMES:
        serving = {worker for worker in workers if name in worker.names}
        ready = {w.url for w in serving if w.status is Status.READY}
        assert listed(registry, name) == {worker.url for worker in serving}
        assert routed(registry, name) == ready
    assert sum(registry.snapshot.counts.values()) == len(workers)
    assert not registry.slots.load.any()
    for worker in workers:
        registry.remove(worker.id)
    assert registry.snapshot.pools == {}
    assert len(registry.snapshot.everyone) == 0
