"""Rolling updates: all workers are restarted, one after the other, under load."""

from __future__ import annotations

import aiohttp
import pytest

from router.simulate import SimulatedFleet, SimulatedWorker, Switches
from tests.support.router_process import serving

from .common import Load, chat, until, until_idle, until_ready

SHORT = Switches(ttft_ms=10, token_ms=1, tokens=4)
HOLD = ("--hold-timeout-secs", "20")


@pytest.mark.parametrize("death", ["stop", "crash"])
@pytest.mark.parametrize(("count", "flags"), [(8, ()), (2, HOLD)])
async def test_no_request_fails_while_all_workers_are_restarted(
    http: aiohttp.ClientSession, count: int, flags: tuple[str, ...], death: str
) -> None:
    """In order or by kill -9; each is used again before the next one goes."""
    async with (
        SimulatedFleet(count, models=["m"], switches=SHORT) as fleet,
        serving("--worker-urls", *fleet.urls, *flags) as router,
    ):
        await until_ready(http, router, count)
        load = Load(http, router, chat("m"), clients=16)
        await load.more(20)
        for worker in fleet:
            await getattr(worker, death)()
            await load.more(20)
            await worker.start()
            await used(worker)
        await load.more(20)
        await load.end()
        assert load.failures == []
        await until_idle(http, router)


async def used(worker: SimulatedWorker) -> None:
    """Returns once it has taken a request since it was started."""
    before = worker.state.requests
    await until(lambda: worker.state.requests > before)


@pytest.mark.parametrize("count", [1, 3])
async def test_no_request_fails_while_every_worker_is_away_for_a_moment(
    http: aiohttp.ClientSession, count: int
) -> None:
    """Those that come meanwhile wait for one that is back."""
    async with (
        SimulatedFleet(count, models=["m"], switches=SHORT) as fleet,
        serving("--worker-urls", *fleet.urls, *HOLD) as router,
    ):
        await until_ready(http, router, count)
        for _ in range(2):
            for worker in fleet:
                await worker.stop()
            load = Load(http, router, chat("m"), clients=8)
            await until(lambda: router.get("/readiness")[0] == 503)
            for worker in fleet:
                await worker.start()
            await load.more(40)
            await load.end()
            assert load.failures == []
        await until_idle(http, router)
