"""When changes are published, together or at once, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from router._core import Index, Slots
from router.fleet.registry import COALESCE_SECS, Registry
from router.fleet.worker import Patch, Registration
from tests.fleet.fleets import Changes, cards, join, listed, now, routed, url


class Later:
    """A scheduler whose time does not pass by itself."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, delay: float, function: Callable[[], None]) -> None:
        self.calls.append((delay, function))

    def pass_time(self) -> None:
        calls, self.calls = self.calls, []
        for _, function in calls:
            function()

    def next_turn(self) -> None:
        """Runs what was to be run without any delay."""
        due = [function for delay, function in self.calls if not delay]
        self.calls = [call for call in self.calls if call[0]]
        for function in due:
            function()


def lazy_registry() -> tuple[Registry, Later]:
    later = Later()
    return Registry(Index(Slots(seed=1)), scheduler=later), later


def test_a_burst_of_registrations_is_published_together_soon() -> None:
    registry, later = lazy_registry()
    changes = Changes(registry)
    for number in range(1, 51):
        registry.register(Registration(url(number), models=("a",)))
    assert changes == []
    assert registry.workers() == ()
    assert [delay for delay, _ in later.calls] == [COALESCE_SECS]
    later.pass_time()
    assert len(changes) == 1
    assert len(changes[0].added) == 50
    assert len(registry.workers("a")) == 50
    assert later.calls == []


def test_a_registered_worker_is_found_before_it_is_published() -> None:
    registry, _ = lazy_registry()
    (worker,) = registry.register(Registration(url(1))).workers
    assert registry.find(worker.id) == worker


def test_a_removal_is_published_in_the_next_turn_with_all_before_it() -> None:
    registry, later = lazy_registry()
    join(registry, 1, "a")
    registry.flush()
    registry.register(Registration(url(2), models=("a",)))
    registry.remove(url(1))
    later.next_turn()
    assert listed(registry, "a") == {url(2)}
    later.pass_time()


@pytest.mark.parametrize("change", ["down", "drained", "replaced"])
def test_a_worker_gets_nothing_from_the_moment_it_is(change: str) -> None:
    registry, later = lazy_registry()
    worker = join(registry, 1, "a")
    later.next_turn()
    assert routed(registry, "a") == {url(1)}, "coming up waits for no more than a turn"
    if change == "down":
        registry.set_health(worker.slot, False)
    elif change == "drained":
        registry.drain(worker.id)
    else:
        registry.register(Registration(url(1), models=("a",)))
    assert routed(registry, "a") == set()


def test_model_syncs_are_published_together_soon() -> None:
    registry, later = lazy_registry()
    workers = [join(registry, number, "a") for number in (1, 2)]
    later.pass_time()
    changes = Changes(registry)
    for worker in workers:
        registry.sync_models(worker.slot, cards("a", "b"))
    assert changes == []
    later.pass_time()
    assert [len(change.updated) for change in changes] == [2]
    assert routed(registry, "b") == {url(1), url(2)}


def test_a_worker_is_renamed_for_a_model_only_once_it_is_a_candidate_of_it() -> None:
    """The pool and what the body is rewritten to are published in one step."""
    registry, later = lazy_registry()
    worker = join(registry, 1, "a")
    later.pass_time()
    registry.patch(worker.id, Patch(aliases={"fast": "a"}))
    assert now(worker).renames == {}
    assert registry.snapshot.pool("fast") is None
    registry.flush()
    assert now(worker).renames == {"fast": "a"}
    assert routed(registry, "fast") == {url(1)}


async def test_settled_returns_when_the_change_is_published() -> None:
    registry, _ = lazy_registry()
    changes = Changes(registry)
    for number in (1, 2):
        registry.register(Registration(url(number)))
    await registry.settled()
    assert len(registry.workers()) == 2
    assert len(changes) == 1, "what changed in the same turn shares it"


def test_nothing_is_published_when_nothing_changed() -> None:
    registry, later = lazy_registry()
    worker = join(registry, 1, "a")
    later.pass_time()
    before = registry.snapshot
    registry.flush()
    registry.set_health(worker.slot, True)
    registry.sync_models(worker.slot, cards("a"))
    registry.patch(worker.id, Patch())
    later.pass_time()
    assert registry.snapshot is before


def test_a_worker_that_came_and_went_between_two_publications_is_not_told_of() -> None:
    registry, later = lazy_registry()
    changes = Changes(registry)
    registry.register(Registration(url(1), models=("a",)))
    registry.remove(url(1))
    later.pass_time()
    assert [(c.added, c.removed, c.models_added) for c in changes] == [((), (), ())]
    assert registry.workers() == ()


def test_draining_workers_are_looked_at_by_and_by() -> None:
    registry, later = lazy_registry()
    worker = join(registry, 1, "a")
    registry.flush()
    pool = registry.snapshot.pool("a")
    assert pool is not None
    slot = pool.least_load()
    assert slot is not None
    registry.drain(worker.id)
    for _ in range(3):
        later.pass_time()
    assert len(registry.workers()) == 1
    registry.slots.release(slot)
    later.pass_time()
    later.next_turn()
    assert registry.workers() == ()
    later.pass_time()
    assert later.calls == []


def test_versions_count_publications() -> None:
    registry, _ = lazy_registry()
    versions = [registry.snapshot.version]
    for number in (1, 2, 3):
        registry.register(Registration(url(number)))
        registry.flush()
        versions.append(registry.snapshot.version)
    assert versions == [0, 1, 2, 3]


def test_what_no_change_touched_is_not_made_anew() -> None:
    registry, _ = lazy_registry()
    join(registry, 1, "a")
    join(registry, 2, "b")
    registry.flush()
    before = registry.snapshot
    join(registry, 3, "b")
    registry.flush()
    after = registry.snapshot
    assert after.pools["a"] is before.pools["a"]
    assert after.pools["b"] is not before.pools["b"]
    registry.drain(url(3))
    registry.flush()
    assert registry.snapshot.pools == after.pools
    assert registry.snapshot.everyone is after.everyone


def register_all(count: int) -> float:
    """Seconds to register so many workers one after the other, each published."""
    registry, _ = lazy_registry()
    start = time.perf_counter()
    for number in range(count):
        registry.register(Registration(f"http://h{number}:8000", models=("a",)))
        registry.flush()
    took = time.perf_counter() - start
    assert len(registry.workers("a")) == count
    return took


def test_ten_thousand_registrations_one_after_the_other_are_soon_done() -> None:
    """Each published by itself, the worst case; a quadratic cost takes minutes."""
    assert register_all(10_000) < 30
