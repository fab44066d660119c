"""Workers that come late, come back, or are added while the router runs."""

from __future__ import annotations

import asyncio
from time import monotonic

import aiohttp
import pytest

from router.simulate import SimulatedFleet, SimulatedWorker
from tests.support.router_process import RouterProcess, serving

from .common import Load, ask, chat, get, model_ids, statuses, until, until_ready

#: The contract is 1 s for a worker and 3 s for 64; a busy machine gets more.
SOON = 10.0


async def test_a_late_worker_takes_traffic_soon_after_it_is_up(
    http: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = SimulatedFleet(2, models=["m"])
    early, late = fleet
    await early.start()
    async with serving("--worker-urls", *fleet.urls) as router:
        await until_ready(http, router, 1)
        assert await statuses(http, router) == ["ready", "pending"]
        load = Load(http, router, chat("m", max_tokens=1), clients=2)
        # Long enough for the probes to have slowed down as far as they do.
        await asyncio.sleep(3)
        await late.start()
        waited = await until(lambda: late.state.requests > 0, within=SOON)
        await load.end()
        assert load.failures == []
    with capsys.disabled():
        print(f"\nlate worker in use after {waited * 1000:.0f} ms")
    await fleet.close()


async def use_all(
    http: aiohttp.ClientSession, router: RouterProcess, fleet: SimulatedFleet
) -> float:
    """Seconds of asking until every worker of the fleet took a request."""
    began = monotonic()
    async with asyncio.timeout(SOON):
        while not all(worker.state.requests for worker in fleet):
            asked = (ask(http, router, chat("m", max_tokens=1)) for _ in fleet)
            await asyncio.gather(*asked)
    return monotonic() - began


async def test_64_workers_that_come_at_once_all_take_traffic_soon(
    http: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = SimulatedFleet(64, models=["m"])
    async with serving("--worker-urls", *fleet.urls) as router:
        assert await statuses(http, router) == ["pending"] * 64
        await asyncio.sleep(3)
        await fleet.start()
        waited = await use_all(http, router, fleet)
    with capsys.disabled():
        print(f"\n64 late workers in use after {waited * 1000:.0f} ms")
    await fleet.close()


async def test_a_worker_is_used_again_soon_after_an_outage(
    http: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        load = Load(http, router, chat("m", max_tokens=1), clients=2)
        await fleet[0].crash()
        await load.more(10)
        async with asyncio.timeout(SOON):
            while (await statuses(http, router)) != ["unhealthy", "ready"]:
                await asyncio.sleep(0.02)
        await fleet[0].start()
        waited = await until(lambda: fleet[0].state.requests > 0, within=SOON)
        await load.end()
        assert load.failures == []
    with capsys.disabled():
        print(f"\nreturned worker in use after {waited * 1000:.0f} ms")


async def test_a_router_without_workers_takes_them_by_post(
    http: aiohttp.ClientSession,
) -> None:
    worker = SimulatedWorker("m")
    async with serving() as router:
        assert (await ask(http, router, chat("m"))).status in (404, 503)
        added = await ask(http, router, {"url": worker.url}, "/workers")
        assert added.status == 201
        assert added.body["replaced"] is False
        assert added.body["worker"]["status"] == "pending"
        assert (await ask(http, router, chat("m"))).status == 503
        await worker.start()
        await until_ready(http, router, 1)
        assert (await ask(http, router, chat("m"))).status == 200
        async with http.delete(f"{router.url}/workers/{added.body['worker']['id']}"):
            pass
        assert (await get(http, router, "/workers"))["workers"] == []
        assert (await ask(http, router, chat("m"))).code == "model_not_found"
    await worker.close()


async def test_a_worker_may_come_back_with_another_model(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(models=["old"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 1)
        await fleet[0].stop()
        # The request that meets the closed port first may say so.
        assert (await ask(http, router, chat("old"))).status in (502, 503)
        away = await ask(http, router, chat("old"))
        assert (away.status, away.code) == (503, "no_available_workers")
        fleet[0].serve("new")
        await fleet[0].start()
        await until_ready(http, router, 1)
        assert await model_ids(http, router) == ["new"]
        assert (await ask(http, router, chat("new"))).status == 200
        assert (await ask(http, router, chat("old"))).code == "model_not_found"


async def test_a_removed_worker_finishes_what_it_runs(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        for worker in fleet:
            worker.switch(ttft_ms=400)
        running = [asyncio.create_task(ask(http, router, chat("m"))) for _ in range(8)]
        await until(lambda: fleet.running == 8)
        first = (await get(http, router, "/workers"))["workers"][0]
        async with http.delete(f"{router.url}/workers/{first['id']}") as response:
            assert response.status == 200
        assert {reply.status for reply in await asyncio.gather(*running)} == {200}
        before = fleet[0].state.requests
        after = await asyncio.gather(*(ask(http, router, chat("m")) for _ in range(4)))
        assert {reply.status for reply in after} == {200}
        assert fleet[0].state.requests == before


async def test_a_draining_worker_gets_nothing_new_and_goes_when_empty(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        for worker in fleet:
            worker.switch(hang=True)
        running = [asyncio.create_task(ask(http, router, chat("m"))) for _ in range(2)]
        await until(lambda: fleet.running == 2)
        first = (await get(http, router, "/workers"))["workers"][0]
        drained = await ask(http, router, {}, f"/workers/{first['id']}/drain")
        assert drained.status == 200
        assert await statuses(http, router) == ["draining", "ready"]
        for worker in fleet:
            worker.switch(hang=False)
        assert {reply.status for reply in await asyncio.gather(*running)} == {200}
        async with asyncio.timeout(SOON):
            while await statuses(http, router) != ["ready"]:
                await asyncio.sleep(0.02)
