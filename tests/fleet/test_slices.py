"""Changes that take long to publish: made in slices, published in one step."""

from __future__ import annotations

import asyncio

import pytest

from router._core import Index, Slots
from router.errors import WorkerNotFound
from router.fleet import registry as module
from router.fleet.registry import MOST_TOGETHER, Registry
from router.fleet.worker import Registration, Worker
from tests.fleet.fleets import Changes, cards, join, listed, now, routed, url

#: Models of the fleet; a wildcard is a candidate of each.
MODELS = [f"model-{number}" for number in range(300)]


@pytest.fixture(autouse=True)
def slices_of_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_SECS", 0.0)


async def fleet() -> tuple[Registry, Worker]:
    """A registry on the running loop, and its worker of all MODELS."""
    loop = asyncio.get_running_loop()
    registry = Registry(Index(Slots(seed=1)), scheduler=loop.call_later)
    worker = join(registry, 1, *MODELS)
    await registry.settled()
    return registry, now(worker)


async def next_turn() -> None:
    """Returns when what was to be done in the next turn of the loop is done."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0, done.set)
    await done.wait()


async def test_changes_of_one_turn_share_a_publication_in_the_next() -> None:
    registry, worker = await fleet()
    changes = Changes(registry)
    registry.set_health(worker.slot, False)
    registry.register(Registration(url(2)))
    registry.remove(worker.id)
    assert changes == []
    await registry.settled()
    assert [(len(c.added), len(c.removed)) for c in changes] == [(1, 1)]


async def test_a_wildcard_joins_all_models_in_one_step() -> None:
    registry, _ = await fleet()
    before = registry.snapshot
    registry.register(Registration(url(2), models=("*",)))
    settling = asyncio.ensure_future(registry.settled())
    seen = set()
    while not settling.done():
        await asyncio.sleep(0)
        sizes = {len(pool) for pool in registry.snapshot.pools.values()}
        assert len(sizes) == 1, "all models have it, or none"
        seen |= sizes
    assert seen == {1, 2}
    assert registry.snapshot.version == before.version + 1


async def test_who_is_taken_out_meanwhile_gets_nothing_at_once() -> None:
    registry, worker = await fleet()
    registry.register(Registration(url(2), models=("*",)))
    registry.flush()
    registry.remove(worker.id)
    assert routed(registry, MODELS[0]) == set()
    assert listed(registry, MODELS[0]) == {worker.url}, "not published yet"
    await registry.settled()
    assert registry.workers() == registry.workers("anything")
    assert len(registry.workers()) == 1


async def test_who_falls_ill_meanwhile_gets_nothing_at_once() -> None:
    registry, worker = await fleet()
    registry.register(Registration(url(2), models=("*",)))
    registry.flush()
    registry.set_health(worker.slot, False)
    assert routed(registry, MODELS[0]) == set()


async def test_what_changes_while_a_change_is_made_is_published_with_it() -> None:
    registry, worker = await fleet()
    changes = Changes(registry)
    registry.register(Registration(url(2), models=("*",)))
    registry.flush()
    registry.sync_models(worker.slot, cards("other", *MODELS[1:]))
    await registry.settled()
    assert listed(registry, "other") == {url(1), url(2)}
    assert not registry.snapshot.knows(MODELS[0])
    (change,) = changes
    assert change.models_added == ("other",)
    assert change.models_removed == (MODELS[0],)


async def test_a_change_without_end_is_published_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONGEST_BUILD_SECS", 0.05)
    registry, _ = await fleet()
    version = registry.snapshot.version
    async with asyncio.timeout(10):
        while registry.snapshot.version < version + 2:
            registry.register(Registration(url(2), models=("*",)))
            await asyncio.sleep(0)


async def test_without_a_scheduler_each_change_is_published_whole() -> None:
    registry = Registry(Index(Slots(seed=1)))
    join(registry, 1, *MODELS)
    registry.register(Registration(url(2), models=("*",)))
    assert {len(pool) for pool in registry.snapshot.pools.values()} == {2}


async def test_a_large_burst_is_published_before_its_time() -> None:
    registry, _ = await fleet()
    version = registry.snapshot.version
    for number in range(MOST_TOGETHER):
        registry.register(Registration(f"http://h{number}:8000", models=("a",)))
    await next_turn()
    assert len(registry.workers("a")) == MOST_TOGETHER
    assert registry.snapshot.version == version + 1


async def test_what_is_changed_together_is_published_together() -> None:
    registry, worker = await fleet()
    changes = Changes(registry)
    with registry.together():
        registry.set_health(worker.slot, False)
        registry.remove(worker.id)
        registry.register(Registration(url(3)))
        assert changes == []
    await registry.settled()
    assert [(len(c.added), len(c.removed)) for c in changes] == [(1, 1)]


async def test_what_failed_together_leaves_what_was_done_before_it() -> None:
    registry, worker = await fleet()

    def remove_twice() -> None:
        with registry.together():
            registry.remove(worker.id)
            registry.remove(worker.id)

    with pytest.raises(WorkerNotFound):
        remove_twice()
    await registry.settled()
    assert registry.workers() == ()
