"""Who can get a request: wildcards, aliases, adapters, providers, tiers.

Everywhere the list of candidates and the route of a request ask the same index.
"""

from __future__ import annotations

import pytest

from router.fleet.registry import Registry
from router.fleet.worker import Patch, Registration, Status, Worker
from tests.fleet.fleets import (
    cards,
    drawn,
    join,
    listed,
    make_registry,
    now,
    routed,
    status,
    url,
)

WILDCARD = ("*",)


def wildcard(registry: Registry, number: int, *models: str) -> Worker:
    registration = Registration(url(number), models=WILDCARD)
    return join(registry, number, *models, registration=registration)


def agreed(registry: Registry, model: str) -> set[str]:
    """URLs that the model's requests reach, which are those that are listed."""
    found = routed(registry, model)
    assert found == listed(registry, model)
    return found


def test_a_request_reaches_only_workers_of_its_model() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    join(registry, 2, "a", "b")
    join(registry, 3, "b")
    assert agreed(registry, "a") == {url(1), url(2)}
    assert agreed(registry, "b") == {url(2), url(3)}
    assert agreed(registry, "c") == set()
    assert registry.snapshot.pool("c") is None


def test_a_request_without_a_model_may_reach_any_worker() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    wildcard(registry, 2)
    registry.register(Registration(url(3)))
    assert routed(registry, None) == {url(1), url(2)}


def test_a_wildcard_serves_every_model() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    wildcard(registry, 2)
    assert agreed(registry, "a") == {url(1), url(2)}
    assert agreed(registry, "b") == {url(2)}
    assert registry.snapshot.knows("a")
    assert not registry.snapshot.knows("b")


def test_a_wildcard_that_also_lists_the_model_is_one_candidate() -> None:
    registry = make_registry()
    wildcard(registry, 1, "a")
    join(registry, 2, "a")
    pool = registry.snapshot.pool("a")
    assert pool is not None
    assert len(pool) == 2
    assert agreed(registry, "a") == {url(1), url(2)}
    assert agreed(registry, "b") == {url(1)}


def test_the_last_wildcard_takes_the_unknown_models_along() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    wildcard(registry, 2)
    registry.remove(url(2))
    assert agreed(registry, "a") == {url(1)}
    assert registry.snapshot.pool("b") is None


def test_a_worker_is_turned_by_replacement_from_wildcard_to_specific_and_back() -> None:
    registry = make_registry()
    join(registry, 9, "a")
    for _ in range(3):
        wildcard(registry, 1)
        assert agreed(registry, "a") == {url(1), url(9)}
        assert agreed(registry, "z") == {url(1)}
        join(registry, 1, "b")
        assert agreed(registry, "a") == {url(9)}
        assert agreed(registry, "b") == {url(1)}
        assert agreed(registry, "z") == set()


def test_a_worker_with_an_empty_list_waits() -> None:
    registry = make_registry()
    worker = join(registry, 1)
    assert status(worker) is Status.PENDING
    assert routed(registry, None) == set()
    assert registry.snapshot.pool("a") is None
    registry.sync_models(worker.slot, cards("a"))
    assert agreed(registry, "a") == {url(1)}


def test_a_ready_worker_whose_list_turns_empty_waits_again() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.sync_models(worker.slot, ())
    assert status(worker) is Status.PENDING
    assert routed(registry, None) == set()
    assert not registry.snapshot.knows("a")


@pytest.mark.parametrize("empty", [(), None], ids=["empty list", "404"])
def test_an_unlisted_wildcard_learns_its_models_and_is_reindexed_at_once(
    empty: tuple[()] | None,
) -> None:
    """Beside it an alias-only worker, which must not be lost when it goes."""
    registry = make_registry(unlisted_wildcard=True)
    alias_only = Registration(url(2), aliases={"fast": "a"})
    (other,) = registry.register(alias_only).workers
    registry.set_health(other.slot, True)
    (worker,) = registry.register(Registration(url(1))).workers
    registry.set_health(worker.slot, True)
    assert status(worker) is Status.PENDING, "its list was not read yet"
    registry.sync_models(worker.slot, empty)
    assert agreed(registry, "anything") == {url(1)}
    assert agreed(registry, "fast") == {url(1), url(2)}
    registry.sync_models(worker.slot, cards("b"))
    assert agreed(registry, "anything") == set()
    assert agreed(registry, "b") == {url(1)}
    assert agreed(registry, "fast") == {url(2)}
    registry.sync_models(worker.slot, empty)
    assert agreed(registry, "anything") == {url(1)}


def test_a_list_that_cannot_be_read_leaves_what_is_known() -> None:
    registry = make_registry(unlisted_wildcard=True)
    worker = join(registry, 1, "a")
    registry.sync_failed(worker.slot, "HTTP 500")
    assert agreed(registry, "a") == {url(1)}
    (new,) = registry.register(Registration(url(2))).workers
    registry.set_health(new.slot, True)
    registry.sync_failed(new.slot, "HTTP 401")
    assert status(new) is Status.PENDING
    assert agreed(registry, "anything") == set()


def test_a_server_without_a_list_serves_what_was_given() -> None:
    registry = make_registry()
    registration = Registration(url(1), models=("a",))
    (worker,) = registry.register(registration).workers
    registry.set_health(worker.slot, True)
    registry.sync_models(worker.slot, None)
    assert agreed(registry, "a") == {url(1)}


def test_an_adapter_appears_and_vanishes_with_the_workers_list() -> None:
    registry = make_registry()
    first = join(registry, 1, "a")
    join(registry, 2, "a")
    registry.sync_models(first.slot, cards("a", "a/sql"))
    assert agreed(registry, "sql") == {url(1)}
    assert agreed(registry, "a") == {url(1), url(2)}
    registry.sync_models(first.slot, cards("a"))
    assert registry.snapshot.pool("sql") is None
    assert agreed(registry, "a") == {url(1), url(2)}


def test_an_alias_is_a_name_of_its_own_and_renamed_in_the_body() -> None:
    registry = make_registry()
    registration = Registration(url(1), aliases={"fast": "a"})
    worker = join(registry, 1, "a", registration=registration)
    join(registry, 2, "a")
    assert agreed(registry, "fast") == {url(1)}
    assert worker.renames == {"fast": "a"}
    assert agreed(registry, "a") == {url(1), url(2)}


def test_a_name_may_be_one_workers_alias_and_anothers_model() -> None:
    registry = make_registry()
    aliased = Registration(url(1), aliases={"fast": "a"})
    first = join(registry, 1, "a", registration=aliased)
    second = join(registry, 2, "fast")
    assert agreed(registry, "fast") == {url(1), url(2)}
    assert (first.renames, second.renames) == ({"fast": "a"}, {})


def test_a_global_alias_reaches_every_candidate_of_its_model() -> None:
    registry = make_registry(aliases={"gpt": "a"})
    assert registry.snapshot.pool("gpt") is None
    join(registry, 1, "a")
    join(registry, 2, "b")
    assert agreed(registry, "gpt") == {url(1)}
    third = wildcard(registry, 3)
    assert agreed(registry, "gpt") == agreed(registry, "a") == {url(1), url(3)}
    assert now(third).renames == {"gpt": "a"}
    registry.remove(url(1))
    assert agreed(registry, "gpt") == {url(3)}
    registry.remove(url(3))
    assert registry.snapshot.pool("gpt") is None


def test_a_request_that_names_a_provider_reaches_only_its_workers() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    for number, provider in ((2, "openai"), (3, "openai"), (4, "groq")):
        registration = Registration(url(number), provider=provider)
        join(registry, number, "a", registration=registration)
    assert routed(registry, "a", "openai") == {url(2), url(3)}
    assert routed(registry, "a", "groq") == {url(4)}
    assert routed(registry, None, "groq") == {url(4)}
    assert routed(registry, "a") == {url(1), url(2), url(3), url(4)}
    assert registry.snapshot.provider("nobody") is None


def test_the_provider_rule_holds_with_the_providers_only_workers_down() -> None:
    """No other provider's worker and no own server stands in."""
    registry = make_registry()
    join(registry, 1, "a")
    registration = Registration(url(2), provider="openai")
    worker = join(registry, 2, "a", registration=registration)
    join(registry, 3, "a", registration=Registration(url(3), provider="groq"))
    registry.set_health(worker.slot, False)
    assert registry.snapshot.provider("openai") is not None
    assert routed(registry, "a", "openai") == set()
    assert routed(registry, None, "openai") == set()
    registry.remove(url(2))
    assert registry.snapshot.provider("openai") is None


def test_replacing_the_only_worker_of_a_provider_keeps_the_provider() -> None:
    registry = make_registry()
    registration = Registration(url(1), provider="openai")
    for _ in range(3):
        join(registry, 1, "a", registration=registration)
        assert routed(registry, "a", "openai") == {url(1)}


def picked(registry: Registry, model: str = "a") -> str:
    """URL of the worker that the next request would get; nothing stays counted."""
    pool = registry.snapshot.pool(model)
    assert pool is not None
    slot = pool.least_load()
    assert slot is not None
    assert isinstance(slot.owner, Worker)
    registry.slots.release(slot)
    return slot.owner.url


def test_a_lower_tier_serves_only_while_no_higher_one_can() -> None:
    registry = make_registry()
    first = join(registry, 1, "a", registration=Registration(url(1), priority=60))
    second = join(registry, 2, "a")
    join(registry, 3, "a", registration=Registration(url(3), priority=10))
    assert {picked(registry) for _ in range(20)} == {url(1)}
    registry.set_health(first.slot, False)
    assert {picked(registry) for _ in range(20)} == {url(2)}
    registry.set_health(second.slot, False)
    assert {picked(registry) for _ in range(20)} == {url(3)}
    registry.patch(url(3), Patch(priority=99))
    registry.set_health(first.slot, True)
    registry.sync_models(first.slot, cards("a"))
    assert {picked(registry) for _ in range(20)} == {url(3)}


def test_weight_is_capacity() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    join(registry, 2, "a", registration=Registration(url(2), weight=3.0))
    pool = registry.snapshot.pool("a")
    assert pool is not None
    for _ in range(40):
        pool.least_load()
    loads = [registry.slots.load_of(w.slot) for w in registry.workers()]
    assert loads == [10, 30]
    registry.patch(url(1), Patch(weight=3.0))
    pool = registry.snapshot.pool("a")
    assert pool is not None
    for _ in range(20):
        pool.least_load()
    loads = [registry.slots.load_of(w.slot) for w in registry.workers()]
    assert loads == [30, 30]


def test_a_limit_is_kept() -> None:
    registry = make_registry()
    registration = Registration(url(1), max_concurrency=2)
    join(registry, 1, "a", registration=registration)
    pool = registry.snapshot.pool("a")
    assert pool is not None
    assert pool.least_load() is not None
    assert pool.least_load() is not None
    assert pool.least_load() is None


def test_a_worker_that_changes_its_models_is_never_away_from_one_that_it_keeps() -> (
    None
):
    """Its requests in flight, its availability and its place in pools go along."""
    registry = make_registry()
    worker = join(registry, 1, "a")
    pool = registry.snapshot.pool("a")
    assert pool is not None
    running = pool.least_load()
    assert running is worker.slot
    seen = []
    registry.subscribe(lambda change: seen.append(routed(registry, "a")))
    for models in (("a", "b"), ("a", "a/x"), ("a",)):
        registry.sync_models(worker.slot, cards(*models))
    registry.patch(worker.id, Patch(weight=2.0, priority=7))
    assert seen == [{url(1)}] * 4
    assert registry.slots.load_of(worker.slot) == 1


def test_a_pool_that_was_read_before_a_change_can_still_be_picked_from() -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    pool = registry.snapshot.pool("a")
    assert pool is not None
    registry.sync_models(worker.slot, cards("b"))
    assert drawn(registry, pool) <= {url(1)}
    registry.remove(worker.id)
    assert drawn(registry, pool) == set()
