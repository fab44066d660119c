"""What a snapshot says of models: the list, the default, readiness."""

from __future__ import annotations

from router.fleet.snapshot import ModelReadiness
from router.fleet.worker import ModelCard, Registration, Status
from tests.fleet.fleets import cards, join, make_registry, now, url


def test_the_model_list_is_merged_over_ready_workers_each_id_once() -> None:
    registry = make_registry()
    join(registry, 1, "a", "a/sql")
    second = join(registry, 2, "a", "b")
    third = join(registry, 3, "c")
    registry.set_health(third.slot, False)
    registry.register(Registration(url(4), models=("d",)))
    ids = [card.id for card in registry.snapshot.models()]
    assert ids == ["a", "b", "sql"]
    registry.drain(second.id)
    assert [card.id for card in registry.snapshot.models()] == ["a", "sql"]


def test_the_model_list_keeps_an_adapters_parent_and_what_the_worker_said() -> None:
    registry = make_registry()
    worker = join(registry, 1)
    said = [
        ModelCard("a", root="/models/a", max_model_len=4096, created=7),
        ModelCard("sql", parent="a", root="/adapters/sql", created=8),
    ]
    registry.sync_models(worker.slot, said)
    assert list(registry.snapshot.models()) == said


def test_the_model_list_does_not_change_its_order() -> None:
    """Base models first, for clients take the first for "the" model."""
    registry = make_registry(aliases={"alias": "b"})
    join(registry, 1, "b", "b/a-lora")
    join(registry, 2, "c", "a")
    before = [card.id for card in registry.snapshot.models()]
    assert before == ["a", "b", "c", "a-lora", "alias"]
    registry.remove(url(1))
    join(registry, 1, "b", "b/a-lora")
    assert [card.id for card in registry.snapshot.models()] == before


def test_an_alias_is_listed_as_its_model_under_another_name() -> None:
    registry = make_registry(aliases={"gpt": "a", "none": "z"})
    worker = join(registry, 1)
    registry.sync_models(worker.slot, [ModelCard("a", root="/a", max_model_len=10)])
    assert registry.snapshot.models() == (
        ModelCard("a", root="/a", max_model_len=10),
        ModelCard("gpt", root="/a", max_model_len=10),
    )


def test_a_global_alias_of_a_wildcard_is_listed() -> None:
    registry = make_registry(aliases={"gpt": "a"})
    join(registry, 1, registration=Registration(url(1), models=("*",)))
    assert registry.snapshot.models() == (ModelCard("gpt", root="a"),)


def test_a_name_that_is_a_model_somewhere_is_listed_as_the_model() -> None:
    registry = make_registry()
    join(registry, 1, "a", registration=Registration(url(1), aliases={"b": "a"}))
    join(registry, 2, "b")
    assert [(c.id, c.root) for c in registry.snapshot.models()] == [
        ("a", "a"),
        ("b", "b"),
    ]


def test_created_is_what_the_worker_first_said_so_that_nothing_changes() -> None:
    """vLLM says "now" each time it is asked."""
    registry = make_registry()
    worker = join(registry, 1)
    registry.sync_models(worker.slot, [ModelCard("a", created=1)])
    before = registry.snapshot
    registry.sync_models(worker.slot, [ModelCard("a", created=2)])
    assert registry.snapshot is before
    registry.sync_models(worker.slot, [ModelCard("a", created=3), ModelCard("b")])
    assert now(worker).models[0] == ModelCard("a", created=1)


def test_the_only_base_model_is_the_default() -> None:
    registry = make_registry(aliases={"gpt": "a"})
    join(registry, 1, "a", "a/x", "a/y")
    second = join(registry, 2, "a")
    join(registry, 3, registration=Registration(url(3), models=("*",)))
    assert registry.snapshot.default_model == "a"
    registry.set_health(second.slot, False)
    registry.remove(url(1))
    assert registry.snapshot.default_model == "a", "one that is down counts"
    join(registry, 4, "b")
    assert registry.snapshot.default_model is None
    registry.remove(url(2))
    assert registry.snapshot.default_model == "b"


def test_a_fleet_of_wildcards_has_no_default() -> None:
    registry = make_registry()
    join(registry, 1, registration=Registration(url(1), models=("*",)))
    assert registry.snapshot.default_model is None


def test_readiness_counts_ready_workers_of_each_models_pool() -> None:
    registry = make_registry()
    join(registry, 1, "a", "b")
    join(registry, 2, "a")
    third = join(registry, 3, "a")
    registry.set_health(third.slot, False)
    assert dict(registry.snapshot.readiness()) == {
        "a": ModelReadiness(2, 3),
        "b": ModelReadiness(1, 1),
    }
    join(registry, 4, registration=Registration(url(4), models=("*",)))
    assert dict(registry.snapshot.readiness())["b"] == ModelReadiness(2, 2)


def test_counts_are_by_status() -> None:
    registry = make_registry()
    join(registry, 1, "a")
    second = join(registry, 2, "a")
    registry.set_health(second.slot, False)
    registry.drain(join(registry, 3, "a").id)
    for number in (4, 5):
        registry.register(Registration(url(number)))
    assert registry.snapshot.counts == {
        Status.PENDING: 2,
        Status.READY: 1,
        Status.UNHEALTHY: 1,
        Status.DRAINING: 1,
    }
    assert registry.snapshot.pending == 2
    for worker in registry.workers():
        registry.remove(worker.id)
    assert set(registry.snapshot.counts.values()) == {0}


def test_more_workers_than_one_word_of_bits() -> None:
    registry = make_registry()
    for number in range(200):
        worker = registry.register(Registration(f"http://h{number}:1")).workers[0]
        registry.set_health(worker.slot, True)
        registry.sync_models(worker.slot, cards("a" if number % 2 else "b"))
    assert dict(registry.snapshot.readiness()) == {
        "a": ModelReadiness(100, 100),
        "b": ModelReadiness(100, 100),
    }
    assert len(registry.workers("a")) == 100
