"""Which worker a wish gets, and why it gets none."""

from __future__ import annotations

import asyncio

import pytest

from router import policy
from router.errors import (
    BadRequest,
    ModelNotFound,
    ModelRequired,
    NoAvailableWorkers,
)
from router.fleet.worker import Worker
from router.proxy.choice import Chooser
from router.proxy.hold import HoldQueue
from router.proxy.wish import Wish
from tests.proxy.fleet import Counts, Fleet


class Setting:
    """A chooser over a fleet."""

    def __init__(self, *, timeout: float = 0.0, size: int = 10) -> None:
        self.fleet = Fleet()
        self.hold = HoldQueue(size=size, timeout=timeout)
        self.counts = Counts()
        choose = policy.make("least_load", balance_factor=1.25, balance_abs=4)
        self.chooser = Chooser(self.fleet.index, choose, self.hold, self.counts)
        self.fleet.registry.subscribe(lambda change: self.hold.wake())

    def now(self, wish: Wish) -> Worker | None:
        """The worker that the wish gets at once."""
        slot = self.chooser.now(wish, ())
        if slot is None:
            return None
        self.chooser.release(slot)
        worker = slot.owner
        assert isinstance(worker, Worker)
        return worker


def wish(model: str | None = None, **fields: object) -> Wish:
    made = Wish()
    made.model = model
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_a_model_is_served_by_a_worker_that_has_it(setting: Setting) -> None:
    setting.fleet.add("a", "m")
    b = setting.fleet.add("b", "n")
    assert setting.now(wish("n")) == b


def test_an_unknown_model_is_not_found_unless_a_pending_worker_may_have_it(
    setting: Setting,
) -> None:
    setting.fleet.add("a", "m")
    with pytest.raises(ModelNotFound):
        setting.now(wish("other"))
    setting.fleet.add("late")
    assert setting.now(wish("other")) is None


def test_a_known_model_whose_workers_are_down_stays_known(setting: Setting) -> None:
    a = setting.fleet.add("a", "m")
    setting.fleet.down(a)
    assert setting.now(wish("m")) is None


def test_without_a_model_the_only_base_model_serves(setting: Setting) -> None:
    a = setting.fleet.add("a", "m")
    assert setting.now(wish()) == a
    setting.fleet.add("b", "n")
    with pytest.raises(ModelRequired):
        setting.now(wish())


def test_without_body_and_model_any_worker_serves(setting: Setting) -> None:
    setting.fleet.add("a", "m")
    setting.fleet.add("b", "n")
    assert setting.now(wish(has_body=False)) is not None


def test_an_empty_fleet_is_unavailable_not_wrong(setting: Setting) -> None:
    setting.fleet.add("late")
    assert setting.now(wish()) is None
    assert setting.now(wish(has_body=False)) is None


def test_a_wildcard_serves_unknown_models_and_requests_without_one(
    setting: Setting,
) -> None:
    wildcard = setting.fleet.add("w", models=("*",))
    setting.fleet.registry.sync_models(wildcard.slot, [])
    setting.fleet.registry.set_health(wildcard.slot, True)
    for asked in (wish("whatever"), wish(), wish(has_body=False)):
        found = setting.now(asked)
        assert found is not None
        assert found.id == wildcard.id


def test_a_provider_that_is_named_is_the_only_one_even_when_it_is_down(
    setting: Setting,
) -> None:
    setting.fleet.add("own", "m")
    cloud = setting.fleet.add("cloud", "m", provider="cloud")
    assert setting.now(wish("m", provider="cloud")) == cloud
    setting.fleet.down(cloud)
    assert setting.now(wish("m", provider="cloud")) is None
    assert setting.now(wish("m", provider="nobody")) is None


def test_the_rank_that_is_named_serves_and_one_that_is_not_there_is_refused(
    setting: Setting,
) -> None:
    fleet = setting.fleet
    fleet.add("a", dp_size=3)
    for worker in fleet.registry.workers():
        fleet.up(worker, "m")
    for _ in range(5):
        found = setting.now(wish("m", rank="1"))
        assert found is not None
        assert found.dp_rank == 1
    for rank in ("3", "-1", "one", "1e0", "٣"):
        with pytest.raises(BadRequest):
            setting.now(wish("m", rank=rank))


def test_a_rank_is_left_to_workers_that_have_none_of_their_own(
    setting: Setting,
) -> None:
    a = setting.fleet.add("a", "m")
    assert setting.now(wish("m", rank="7")) == a


async def test_without_holding_nobody_available_is_said_at_once(
    setting: Setting,
) -> None:
    setting.fleet.add("late")
    with pytest.raises(NoAvailableWorkers):
        await setting.chooser.wait(wish("m"))
    assert setting.counts.held == 0


async def test_a_held_request_gets_the_worker_that_comes() -> None:
    setting = Setting(timeout=30)
    late = setting.fleet.add("late")
    waiting = asyncio.create_task(setting.chooser.wait(wish("m")))
    await asyncio.sleep(0)
    setting.fleet.up(late, "m")
    assert (await waiting).owner.id == late.id
    assert setting.counts.held == 1
    assert len(setting.hold) == 0


async def test_a_held_request_gets_the_slot_that_another_one_leaves() -> None:
    setting = Setting(timeout=30)
    setting.fleet.add("a", "m", max_concurrency=1)
    first = setting.chooser.now(wish("m"), ())
    assert first is not None
    waiting = [asyncio.create_task(setting.chooser.wait(wish("m"))) for _ in range(2)]
    await asyncio.sleep(0)
    setting.chooser.release(first)
    second = await waiting[0]
    assert not waiting[1].done()
    setting.chooser.release(second)
    setting.chooser.release(await waiting[1])


async def test_a_held_request_whose_model_cannot_be_any_more_is_told_so() -> None:
    setting = Setting(timeout=30)
    late = setting.fleet.add("late")
    waiting = asyncio.create_task(setting.chooser.wait(wish("m")))
    await asyncio.sleep(0)
    setting.fleet.up(late, "other")
    with pytest.raises(ModelNotFound):
        await waiting


async def test_holding_ends_in_time_and_is_counted() -> None:
    setting = Setting(timeout=0.02)
    setting.fleet.add("late")
    with pytest.raises(NoAvailableWorkers):
        await setting.chooser.wait(wish("m"))
    assert setting.counts.hold_timeouts == 1


async def test_no_more_are_held_than_the_queue_takes() -> None:
    setting = Setting(timeout=30, size=1)
    setting.fleet.add("late")
    waiting = asyncio.create_task(setting.chooser.wait(wish("m")))
    await asyncio.sleep(0)
    with pytest.raises(NoAvailableWorkers):
        await setting.chooser.wait(wish("m"))
    assert setting.counts.hold_rejections == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert len(setting.hold) == 0
