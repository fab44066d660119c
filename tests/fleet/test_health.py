"""Probes over real sockets: late, hanging, dying and returning workers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from router.errors import WorkerNotFound
from router.fleet.worker import Status
from tests.fleet.fleets import routed
from tests.fleet.probing import probing, until
from tests.support.mini_worker import MiniWorker


async def test_a_worker_that_is_up_joins_at_its_first_good_probe() -> None:
    async with MiniWorker("a") as worker, probing() as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        assert routed(fleet.registry, "a") == {worker.url}
        assert worker.asked["/v1/models"] == 1


async def test_a_late_worker_joins_at_its_first_good_probe() -> None:
    """Whatever the check interval, which is far away here."""
    async with MiniWorker("a", up=False) as worker, probing(interval=1000.0) as fleet:
        fleet.register(worker)
        await until(lambda: fleet.error(worker) == "/health: connection refused")
        assert fleet.status(worker) is Status.PENDING
        await worker.start()
        await fleet.ready(worker)


async def test_a_worker_that_hung_joins_once_it_answers() -> None:
    """Though the probe that hangs has its whole timeout, others look meanwhile."""
    worker = MiniWorker("a")
    worker.hang.add("/health")
    async with worker, probing(timeout=1000.0) as fleet:
        fleet.register(worker)
        await until(lambda: worker.asked["/health"] >= 4)
        assert worker.running["/health"] <= 3, "without piling up"
        worker.hang.clear()
        await fleet.ready(worker)


async def test_workers_that_hang_delay_no_other() -> None:
    async with AsyncExitStack() as stack, probing(timeout=1000.0) as fleet:
        hanging = [MiniWorker("a") for _ in range(40)]
        for worker in hanging:
            worker.hang |= {"/health", "/v1/models"}
            await stack.enter_async_context(worker)
            fleet.register(worker)
        await until(lambda: all(worker.asked["/health"] for worker in hanging))
        new = await stack.enter_async_context(MiniWorker("a"))
        fleet.register(new)
        await fleet.ready(new)


async def test_many_that_come_up_together_all_join() -> None:
    late = [MiniWorker("a", up=False) for _ in range(64)]
    async with AsyncExitStack() as stack, probing() as fleet:
        for worker in late:
            await stack.enter_async_context(worker)
            fleet.register(worker)
        await until(lambda: all(fleet.error(worker) for worker in late))
        for worker in late:
            await worker.start()
        await fleet.ready(*late)
        assert len(routed(fleet.registry, "a")) == 64


@pytest.mark.parametrize("status", [500, 503, 404, 401, 302])
async def test_a_worker_that_answers_anything_but_success_waits(status: int) -> None:
    worker = MiniWorker("a")
    worker.health = status
    async with worker, probing() as fleet:
        fleet.register(worker)
        await until(lambda: worker.asked["/health"] >= 2)
        assert fleet.status(worker) is Status.PENDING
        assert fleet.error(worker) == f"/health: HTTP {status}"
        assert worker.asked["/v1/models"] == 0
        worker.health = 200
        await fleet.ready(worker)
        assert fleet.error(worker) is None


async def test_a_ready_worker_that_refuses_its_check_is_out_at_once() -> None:
    async with (
        MiniWorker("a") as worker,
        probing(interval=0.2, failure_threshold=1000) as fleet,
    ):
        fleet.register(worker)
        await fleet.ready(worker)
        await worker.stop()
        await fleet.is_(Status.UNHEALTHY, worker)
        assert fleet.registry.snapshot.knows("a")


async def test_a_ready_worker_that_fails_its_checks_is_out_at_the_threshold() -> None:
    worker = MiniWorker("a")
    async with worker, probing(interval=0.2, failure_threshold=6) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        worker.health = 500
        asked = worker.asked["/health"]
        await until(lambda: worker.asked["/health"] >= asked + 2)
        assert fleet.status(worker) is Status.READY
        await fleet.is_(Status.UNHEALTHY, worker)
        assert fleet.error(worker) == "/health: HTTP 500"


async def test_a_refused_request_takes_the_worker_out_at_once_and_it_is_probed() -> (
    None
):
    """Long before its next check."""
    async with MiniWorker("a") as worker, probing(interval=1000.0) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        slot = fleet.registry.find(worker.url).slot
        fleet.health.refused(slot, "connection refused")
        assert fleet.status(worker) is Status.UNHEALTHY
        assert routed(fleet.registry, "a") == set()
        await fleet.ready(worker)
        assert worker.asked["/v1/models"] == 2


async def test_a_worker_that_comes_back_with_another_model_serves_only_that() -> None:
    async with MiniWorker("old") as worker, probing(interval=1000.0) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        await worker.stop()
        slot = fleet.registry.find(worker.url).slot
        seen = set()
        fleet.registry.subscribe(
            lambda change: seen.update(routed(fleet.registry, "old"))
        )
        fleet.health.refused(slot, "connection refused")
        assert fleet.registry.snapshot.knows("old"), "503 while it is away, not 404"
        worker.models = ["new"]
        await worker.start()
        await fleet.ready(worker)
        assert routed(fleet.registry, "new") == {worker.url}
        assert not fleet.registry.snapshot.knows("old")
        assert seen == set()


async def test_coming_back_takes_as_many_good_probes_as_asked_for() -> None:
    async with MiniWorker("a") as worker, probing(success_threshold=3) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        assert worker.asked["/health"] >= 3


async def test_a_replaced_worker_is_probed_as_a_new_one() -> None:
    """What its old life's probes find out has nobody to be told of."""
    worker = MiniWorker("a")
    worker.hang.add("/health")
    async with worker, probing(timeout=1000.0) as fleet:
        old = fleet.register(worker)
        await until(lambda: worker.running["/health"] > 0)
        new = fleet.register(worker)
        await until(lambda: worker.asked["/health"] >= 2)
        worker.hang.clear()
        await fleet.ready(worker)
        assert fleet.registry.find(new.id).id != old.id


async def test_a_removed_worker_is_probed_no_more() -> None:
    worker = MiniWorker("a")
    worker.hang.add("/health")
    async with worker, probing(timeout=1000.0) as fleet:
        fleet.register(worker)
        await until(lambda: worker.running["/health"] > 0)
        fleet.registry.remove(worker.url)
        await until(lambda: worker.running["/health"] == 0)
        asked = worker.asked["/health"]
        await asyncio.sleep(0.6)
        assert worker.asked["/health"] == asked


async def test_data_parallel_ranks_share_probes_and_list() -> None:
    async with MiniWorker("a") as worker, probing(interval=1000.0) as fleet:
        fleet.register(worker, dp_size=4)
        await until(lambda: len(routed(fleet.registry, "a")) == 4)
        assert worker.asked["/v1/models"] == 1
        assert worker.asked["/health"] < 4
        slot = fleet.registry.find(f"{worker.url}@2").slot
        fleet.health.refused(slot, "connection refused")
        assert routed(fleet.registry, "a") == set(), "one server, one fate"
        await until(lambda: len(routed(fleet.registry, "a")) == 4)
        assert worker.asked["/v1/models"] == 2


async def test_a_rank_that_is_removed_leaves_the_others_probed() -> None:
    async with MiniWorker("a") as worker, probing(interval=0.2) as fleet:
        fleet.register(worker, dp_size=2)
        await until(lambda: len(routed(fleet.registry, "a")) == 2)
        fleet.registry.remove(f"{worker.url}@0")
        worker.models = ["b"]
        await until(lambda: routed(fleet.registry, "b") == {f"{worker.url}@1"})


async def test_probes_and_reads_carry_the_workers_key_or_the_routers() -> None:
    async with (
        MiniWorker("a") as first,
        MiniWorker("a") as second,
        probing(api_key="sk-router") as fleet,
    ):
        fleet.register(first)
        fleet.register(second, api_key="sk-own")
        await fleet.ready(first, second)
        for path in ("/health", "/v1/models"):
            assert first.headers[path]["authorization"] == "Bearer sk-router"
            assert second.headers[path]["authorization"] == "Bearer sk-own"


async def test_the_endpoint_of_probes_can_be_chosen() -> None:
    worker = MiniWorker("a")
    async with worker, probing(endpoint="/ping") as fleet:
        fleet.register(worker)
        await until(lambda: fleet.error(worker) == "/ping: HTTP 404")


async def test_a_worker_that_is_not_ready_in_time_is_dropped_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        MiniWorker("a") as good,
        MiniWorker("a", up=False) as worker,
        probing(startup_timeout=0.5) as fleet,
    ):
        fleet.register(good)
        dropped = fleet.register(worker)
        await until(lambda: len(fleet.registry.workers()) == 1)
        with pytest.raises(WorkerNotFound):
            fleet.registry.find(dropped.id)
        await asyncio.sleep(0.5)
        assert fleet.status(good) is Status.READY
    (record,) = [r for r in caplog.records if "dropped" in r.message]
    assert vars(record)["worker"] == dropped.id
    assert vars(record)["last_error"] == "/health: connection refused"


async def test_workers_that_were_there_before_are_probed_too() -> None:
    worker = MiniWorker("a")
    async with worker, probing(before=[worker]) as fleet:
        await fleet.ready(worker)
