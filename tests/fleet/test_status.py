"""What makes a worker ready, and what a change of one does to its requests."""

from __future__ import annotations

import pytest

from router.errors import WorkerNotFound
from router.fleet.worker import (
    Circuit,
    Patch,
    Registration,
    Status,
)
from tests.fleet.fleets import (
    cards,
    join,
    listed,
    make_registry,
    now,
    routed,
    status,
    url,
)


def test_a_late_worker_joins_once_it_is_healthy_and_its_models_are_known() -> None:
    registry = make_registry()
    (worker,) = registry.register(Registration(url(1))).workers
    registry.set_health(worker.slot, True)
    assert status(worker) is Status.PENDING
    registry.sync_models(worker.slot, cards("a"))
    assert status(worker) is Status.READY
    assert routed(registry, "a") == {url(1)}
    assert now(worker).ready_at == 1000.0


def test_a_worker_of_given_models_joins_before_its_list_is_read() -> None:
    registry = make_registry()
    registration = Registration(url(1), models=("a",))
    (worker,) = registry.register(registration).workers
    registry.set_health(worker.slot, True)
    assert routed(registry, "a") == {url(1)}
    registry.sync_models(worker.slot, cards("b"))
    assert routed(registry, "a") == set()
    assert routed(registry, "b") == {url(1)}


def test_models_are_live_while_the_model_id_stays_a_label() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a", registration=Registration(url(1), model_id="label"))
    assert (worker.model_id, [card.id for card in worker.models]) == ("label", ["a"])
    registry.sync_models(worker.slot, cards("b", "b/lora"))
    worker = now(worker)
    assert [card.id for card in worker.models] == ["b", "lora"]
    assert worker.model_id == "label"
    plain = join(registry, 2, "a")
    assert plain.model_id == "unknown"


def test_draining_takes_no_new_requests_and_goes_when_empty() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    pool = registry.snapshot.pool("a")
    assert pool is not None
    running = pool.least_load()
    assert running is not None
    registry.drain(worker.id)
    assert status(worker) is Status.DRAINING
    assert routed(registry, "a") == set()
    assert listed(registry, "a") == {url(1)}, "known until it goes"
    registry.tick()
    assert len(registry.workers()) == 1
    registry.slots.release(running)
    registry.tick()
    assert registry.workers() == ()


def test_draining_ends_at_its_deadline_whatever_is_running() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    pool = registry.snapshot.pool("a")
    assert pool is not None
    running = pool.least_load()
    assert running is not None
    registry.drain(worker.id, within=0.0)
    registry.tick()
    assert registry.workers() == ()
    assert registry.slots.release(running)


def test_a_good_probe_does_not_call_a_draining_worker_back() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.drain(worker.id)
    registry.set_health(worker.slot, False)
    registry.set_health(worker.slot, True)
    registry.sync_models(worker.slot, cards("a"))
    assert status(worker) is Status.DRAINING


def test_an_unhealthy_workers_models_stay_known() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.set_health(worker.slot, False, "connection refused")
    assert status(worker) is Status.UNHEALTHY
    assert now(worker).last_error == "connection refused"
    assert registry.snapshot.knows("a")
    assert routed(registry, "a") == set()
    assert listed(registry, "a") == {url(1)}
    assert registry.snapshot.models() == ()
    assert registry.snapshot.pending == 0


def test_after_an_outage_the_list_is_read_before_the_worker_is_ready() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.set_health(worker.slot, False)
    registry.set_health(worker.slot, True)
    assert status(worker) is Status.UNHEALTHY
    assert routed(registry, "a") == set()
    registry.sync_models(worker.slot, cards("b"))
    assert status(worker) is Status.READY
    assert routed(registry, "b") == {url(1)}
    assert not registry.snapshot.knows("a")


def test_after_an_outage_a_worker_without_a_list_serves_what_was_given() -> None:
    """There is nothing to read that could say otherwise."""
    registry = make_registry()
    registration = Registration(url(1), models=("a",))
    (worker,) = registry.register(registration).workers
    registry.set_health(worker.slot, True)
    registry.sync_models(worker.slot, None)
    registry.set_health(worker.slot, False)
    registry.set_health(worker.slot, True)
    assert routed(registry, "a") == {url(1)}


def test_an_error_is_shown_and_goes_with_the_next_success() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    before = registry.snapshot
    registry.sync_failed(worker.slot, "model list: HTTP 500")
    assert now(worker).last_error == "model list: HTTP 500"
    assert registry.find(worker.id).last_error == "model list: HTTP 500"
    assert status(worker) is Status.READY
    assert registry.snapshot is before, "nothing that a request looks at"
    registry.sync_models(worker.slot, cards("a"))
    assert now(worker).last_error is None


def test_an_open_breaker_keeps_requests_away_and_is_shown() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.set_circuit(worker.slot, Circuit.OPEN)
    assert routed(registry, "a") == set()
    assert status(worker) is Status.READY
    assert now(worker).circuit is Circuit.OPEN
    registry.set_circuit(worker.slot, Circuit.HALF_OPEN)
    assert routed(registry, "a") == {url(1)}


def test_a_patch_changes_what_it_names_and_nothing_else() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    (patched,) = registry.patch(
        worker.id, Patch(weight=3.0, priority=7, labels={"zone": "eu"})
    )
    assert patched == now(worker)
    assert (patched.weight, patched.priority) == (3.0, 7)
    assert patched.labels == {"zone": "eu"}
    assert [card.id for card in patched.models] == ["a"]
    assert (patched.id, patched.slot, patched.status) == (
        worker.id,
        worker.slot,
        Status.READY,
    )
    with pytest.raises(WorkerNotFound):
        registry.patch("nope", Patch())


def test_a_patch_of_models_makes_and_ends_a_wildcard() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.patch(worker.id, Patch(models=("*",)))
    assert now(worker).wildcard
    assert routed(registry, "anything") == {url(1)}
    registry.patch(worker.id, Patch(models=("b",)))
    assert routed(registry, "anything") == set()
    assert routed(registry, "b") == {url(1)}
    registry.sync_models(worker.slot, cards("a"))
    assert routed(registry, "b") == set()
    assert routed(registry, "a") == {url(1)}


def test_a_patch_that_takes_the_given_models_back_waits_for_the_list() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.patch(worker.id, Patch(models=()))
    assert status(worker) is Status.PENDING
    registry.sync_models(worker.slot, cards("a"))
    assert status(worker) is Status.READY
