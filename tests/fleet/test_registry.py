"""Membership: joining, leaving, replacing, draining, changing."""

from __future__ import annotations

import pytest

from router.errors import WorkerNotFound
from router.fleet.change import Change
from router.fleet.registry import Registry
from router.fleet.snapshot import owner
from router.fleet.worker import (
    Circuit,
    Registration,
    Status,
    to_json,
)
from tests.fleet.fleets import (
    Changes,
    cards,
    join,
    listed,
    make_registry,
    routed,
    status,
    url,
)


def test_a_fleet_may_be_empty() -> None:
    snapshot = make_registry().snapshot
    assert snapshot.workers == ()
    assert snapshot.pool("a") is None
    assert snapshot.models() == ()
    assert snapshot.default_model is None
    assert snapshot.pending == 0
    assert set(snapshot.counts.values()) == {0}
    assert snapshot.everyone.least_load() is None


def test_a_new_worker_is_pending_and_gets_nothing() -> None:
    registry = make_registry()
    registration = Registration(url(1), models=("a",))
    (worker,) = registry.register(registration).workers
    assert worker.status is Status.PENDING
    assert registry.find(worker.id) == worker
    assert listed(registry, "a") == {url(1)}
    assert routed(registry, "a") == set()
    assert registry.snapshot.pending == 1


def test_workers_under_the_placeholder_are_workers_of_their_own() -> None:
    """Two that have only the placeholder in common are neither one worker nor a
    model."""
    registry = make_registry()
    for number in (1, 2):
        registry.register(Registration(url(number), model_id="unknown"))
    assert len(registry.workers()) == 2
    assert listed(registry, "unknown") == set()
    assert not registry.snapshot.knows("unknown")
    for worker in registry.workers():
        registry.set_health(worker.slot, True)
        registry.sync_models(worker.slot, cards("unknown", "a"))
    assert not registry.snapshot.knows("unknown")
    assert routed(registry, "a") == {url(1), url(2)}


def test_workers_are_found_by_id_and_by_url_however_it_is_written() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    for key in (worker.id, url(1), f"{url(1)}/", url(1).upper()):
        assert registry.find(key) == worker
    for key in ("", "nope", url(2), f"{url(1)}@0"):
        with pytest.raises(WorkerNotFound):
            registry.find(key)


def test_an_id_shows_no_address() -> None:
    worker = join(make_registry(), 1, "a")
    assert worker.id.isalnum()
    assert worker.id not in worker.url


def test_registering_again_replaces_in_one_step() -> None:
    registry = make_registry()
    old = join(registry, 1, "a")
    changes = Changes(registry)
    outcome = registry.register(Registration(url(1), models=("b",)))
    (new,) = outcome.workers
    assert outcome.replaced == (old,)
    assert new.id != old.id
    assert registry.workers() == (new,)
    assert not registry.snapshot.knows("a")
    assert registry.snapshot.knows("b")
    (change,) = changes
    assert (change.removed, change.added) == ((old,), (new,))
    assert (change.models_removed, change.models_added) == (("a",), ("b",))
    with pytest.raises(WorkerNotFound):
        registry.find(old.id)


def test_registering_the_same_thing_again_and_again_is_one_worker() -> None:
    registry = make_registry()
    for _ in range(50):
        registry.register(Registration(url(1), models=("a",)))
    assert len(registry.workers()) == 1
    assert len(registry.workers("a")) == 1
    assert registry.workers()[0].slot.number < 2, "slots are used again"


def test_what_was_counted_on_a_replaced_worker_is_not_counted_on_the_new() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    pool = registry.snapshot.pool("a")
    assert pool is not None
    running = pool.least_load()
    assert running is not None
    new = join(registry, 1, "a")
    slots = registry.slots
    assert slots.load_of(running) == 1
    assert slots.load_of(new.slot) == 0
    assert slots.release(running)
    assert not slots.release(running), "once only"
    assert slots.load_of(new.slot) == 0


def test_a_slot_is_used_again_only_when_its_last_request_is_over() -> None:
    registry = make_registry()
    old = join(registry, 1, "a")
    pool = registry.snapshot.pool("a")
    assert pool is not None
    running = pool.least_load()
    assert running is not None
    registry.remove(old.id)
    second = join(registry, 2, "a")
    assert second.slot.number != old.slot.number
    registry.slots.release(running)
    third = join(registry, 3, "a")
    assert third.slot.number == old.slot.number
    assert third.slot.generation > old.slot.generation


def test_a_removed_worker_leaves_nothing_behind() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a", "a/lora")
    changes = Changes(registry)
    assert registry.remove(url(1)) == (worker,)
    snapshot = registry.snapshot
    assert (snapshot.workers, snapshot.models()) == ((), ())
    assert snapshot.pool("a") is None
    assert snapshot.pool("lora") is None
    assert snapshot.default_model is None
    assert set(snapshot.counts.values()) == {0}
    assert sorted(changes[0].models_removed) == ["a", "lora"]
    with pytest.raises(WorkerNotFound):
        registry.remove(worker.id)


def test_a_removal_lets_go_of_the_model_of_the_worker_that_was_removed() -> None:
    """Not of the model that was given when its URL was first registered."""
    registry = make_registry()
    registry.register(Registration(url(1), models=("given",)))
    join(registry, 1, "a")
    join(registry, 2, "b")
    changes = Changes(registry)
    registry.remove(url(1))
    assert changes[0].models_removed == ("a",)
    assert registry.snapshot.knows("b")


def turn(registry: Registry, model: str = "a") -> str:
    """URL of the worker whose turn it is; nothing stays counted."""
    pool = registry.snapshot.pool(model)
    assert pool is not None
    slot = pool.round_robin()
    assert slot is not None
    registry.slots.release(slot)
    return owner(slot).url


def test_policy_state_goes_on_while_there_is_a_worker_of_the_model() -> None:
    registry = make_registry()
    for number in (1, 2, 3):
        join(registry, number, "a")
    first = [turn(registry), turn(registry)]
    registry.register(Registration(url(4), models=("a",)))
    third = turn(registry)
    assert len({*first, third}) == 3, "the pool was made anew, the rotation was not"
    join(registry, 5, "b")
    assert turn(registry) == first[0], "another model's change disturbs nothing"


def test_policy_state_ends_with_the_last_worker_of_the_model() -> None:
    registry = make_registry()
    for number in (1, 2):
        join(registry, number, "a")
    first = turn(registry)
    registry.remove(url(1))
    registry.remove(url(2))
    assert not registry.snapshot.knows("a")
    for number in (2, 1):
        join(registry, number, "a")
    assert turn(registry) == first


def test_groups_of_like_workers_are_given_back() -> None:
    """However often a worker's models change, there are no more than there are kinds
    of workers now."""
    registry = make_registry()
    worker = join(registry, 1, "a")
    for number in range(100):
        registry.sync_models(worker.slot, cards("a", f"a/adapter-{number}"))
    assert registry.slots.group_of(worker.slot) < 4


@pytest.mark.parametrize("gone", ["removed", "replaced"])
def test_what_is_learned_about_a_life_that_is_over_changes_nothing(gone: str) -> None:
    """A sync, a probe or a breaker that was under way meanwhile."""
    registry = make_registry()
    old = join(registry, 1, "a")
    if gone == "removed":
        registry.remove(old.id)
    else:
        registry.register(Registration(url(1)))
    before = registry.snapshot
    assert not registry.sync_models(old.slot, cards("z"))
    assert not registry.sync_models(old.slot, None)
    assert not registry.sync_failed(old.slot, "late")
    assert not registry.set_health(old.slot, True)
    assert not registry.set_circuit(old.slot, Circuit.OPEN)
    assert registry.snapshot is before
    assert not registry.snapshot.knows("z")


def test_the_list_of_workers_is_in_registration_order() -> None:
    registry = make_registry()
    for number in (3, 1, 2):
        join(registry, number, "a")
    registry.remove(url(1))
    join(registry, 1, "a")
    assert [worker.url for worker in registry.workers()] == [url(3), url(2), url(1)]
    assert registry.workers("a") == registry.workers()


def test_a_list_shows_what_a_worker_is_now() -> None:
    """A snapshot that was taken before holds no status that could be stale."""
    registry = make_registry()
    worker = join(registry, 1, "a")
    before = registry.snapshot
    registry.set_health(worker.slot, False)
    assert before.workers[0].status is Status.UNHEALTHY


def test_no_id_is_invented_for_a_worker_that_goes_in_mid_listing() -> None:
    registry = make_registry()
    workers = [join(registry, number, "a") for number in (1, 2)]
    snapshot = registry.snapshot
    registry.remove(url(1))
    assert {worker.id for worker in snapshot.workers} == {w.id for w in workers}
    assert {w.id for w in snapshot.workers_of("a")} == {w.id for w in workers}


def test_a_worker_is_shown_without_its_secrets() -> None:
    registry = make_registry()
    registration = Registration(
        url(1), model_id="m", api_key="sk-secret", aliases={"fast": "a"}
    )
    worker = join(registry, 1, "a", "a/lora", registration=registration)
    shown = to_json(worker, load=3)
    assert shown == {
        "id": worker.id,
        "url": url(1),
        "base_url": url(1),
        "dp_rank": None,
        "model_id": "m",
        "models": ["a", "lora"],
        "aliases": {"fast": "a"},
        "status": "ready",
        "is_healthy": True,
        "circuit": "closed",
        "load": 3,
        "weight": 1.0,
        "max_concurrency": 0,
        "worker_type": "regular",
        "connection_mode": "http",
        "provider": None,
        "labels": {},
        "priority": 50,
        "registered_at": 1000.0,
        "ready_at": 1000.0,
        "last_error": None,
    }
    assert "sk-secret" not in f"{shown}{worker}{registration}"


def test_data_parallel_ranks_are_workers_of_one_base_url() -> None:
    registry = make_registry()
    outcome = registry.register(Registration(url(1), dp_size=3, dp_start_rank=4))
    assert [w.url for w in outcome.workers] == [f"{url(1)}@{n}" for n in (4, 5, 6)]
    assert [w.dp_rank for w in outcome.workers] == [4, 5, 6]
    assert {w.base_url for w in outcome.workers} == {url(1)}
    assert len({w.slot.number for w in outcome.workers}) == 3
    assert registry.find(url(1)) == outcome.workers[0]
    assert registry.find(f"{url(1)}@5") == outcome.workers[1]
    for worker in outcome.workers:
        registry.set_health(worker.slot, True)
        registry.sync_models(worker.slot, cards("a"))
    assert len(routed(registry, "a")) == 3
    assert registry.remove(f"{url(1)}@5")[0].dp_rank == 5
    assert len(registry.remove(url(1))) == 2
    assert registry.workers() == ()


def test_replacing_a_base_url_takes_all_its_ranks_along() -> None:
    registry = make_registry()
    four = registry.register(Registration(url(1), dp_size=4)).workers
    outcome = registry.register(Registration(url(1), dp_size=2))
    assert outcome.replaced == four
    assert len(registry.workers()) == 2
    plain = registry.register(Registration(url(1)))
    assert plain.replaced == outcome.workers
    assert [worker.dp_rank for worker in registry.workers()] == [None]


def test_following_can_end() -> None:
    registry = make_registry()
    seen: list[object] = []
    end = registry.subscribe(seen.append)
    join(registry, 1, "a")
    count = len(seen)
    assert count
    end()
    registry.remove(url(1))
    assert len(seen) == count


def test_a_callback_may_change_the_fleet() -> None:
    """It is called outside the lock."""
    registry = make_registry()

    def drain(change: Change) -> None:
        if change.added:
            registry.drain(url(1))

    registry.subscribe(drain)
    (worker,) = registry.register(Registration(url(1))).workers
    assert status(worker) is Status.DRAINING
