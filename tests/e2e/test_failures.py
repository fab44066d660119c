"""Workers that die, drain, refuse or go silent under load: clients do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from router.simulate import SimulatedFleet, SimulatedWorker, Switches
from tests.support.http import RawClient, post
from tests.support.router_process import serving

from .common import (
    QUICK,
    Load,
    ask,
    chat,
    get,
    loads,
    statuses,
    until,
    until_idle,
    until_ready,
)

SHORT = Switches(ttft_ms=10, token_ms=1, tokens=4)

Death = Callable[[SimulatedWorker], Awaitable[None]]


@pytest.mark.parametrize(
    "death",
    [SimulatedWorker.crash, SimulatedWorker.kill_engine, SimulatedWorker.stop],
    ids=["crash", "engine death", "stop"],
)
async def test_no_request_fails_when_a_worker_dies_under_load(
    http: aiohttp.ClientSession, death: Death
) -> None:
    async with (
        SimulatedFleet(4, models=["m"], switches=SHORT) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 4)
        load = Load(http, router, chat("m"), clients=16)
        await load.more(50)
        await death(fleet[1])
        await load.more(200)
        await fleet[1].start()
        await until(lambda: fleet[1].state.requests > 0)
        await load.more(50)
        await load.end()
        assert load.failures == []
        await until_idle(http, router)


@pytest.mark.parametrize("switch", ["drain", "reject"])
async def test_a_worker_that_answers_500_or_503_costs_no_request(
    http: aiohttp.ClientSession, switch: str
) -> None:
    async with (
        SimulatedFleet(3, models=["m"], switches=SHORT) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 3)
        load = Load(http, router, chat("m"), clients=9)
        await load.more(20)
        fleet[0].switch(**{switch: True})
        await load.more(200)
        await load.end()
        assert load.failures == []
        # Its health is 200 all along.
        assert (await statuses(http, router))[1:] == ["ready", "ready"]


async def test_the_answer_of_the_only_worker_passes_when_no_other_can_help(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(models=["m"], switches=Switches(reject=True)) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 1)
        reply = await ask(http, router, chat("m"))
        assert reply.status == 503
        assert reply.body["error"]["type"] == "Service Unavailable"


async def test_an_unhealthy_worker_is_left_out_until_it_recovers(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls, *QUICK) as router,
    ):
        await until_ready(http, router, 2)
        fleet[0].switch(unhealthy=True)
        async with asyncio.timeout(15):
            while await statuses(http, router) != ["unhealthy", "ready"]:
                await asyncio.sleep(0.02)
        before = fleet[0].state.requests
        for _ in range(10):
            assert (await ask(http, router, chat("m"))).status == 200
        assert fleet[0].state.requests == before
        fleet[0].switch(unhealthy=False)
        await until_ready(http, router, 2)


async def test_a_silent_worker_is_given_up_after_the_time_limit(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(models=["m"], switches=Switches(hang=True)) as fleet,
        serving("--worker-urls", *fleet.urls, "--request-timeout-secs", "1") as router,
    ):
        await until_ready(http, router, 1)
        reply = await ask(http, router, chat("m"))
        assert (reply.status, reply.code) == (504, "worker_timeout")
        await until(lambda: fleet.running == 0)
        await until_idle(http, router)


@pytest.mark.parametrize("death", ["reset", "crash"])
async def test_a_stream_that_dies_ends_with_an_error_and_without_an_end(
    http: aiohttp.ClientSession, death: str
) -> None:
    async with (
        SimulatedFleet(models=["m"], switches=Switches(token_ms=20)) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 1)
        if death == "reset":
            fleet[0].switch(reset_after_tokens=3)
        request = post(
            "/v1/completions",
            b'{"model":"m","prompt":"hi","stream":true,"max_tokens":50,'
            b'"ignore_eos":true}',
        )

        def ask_raw() -> tuple[int, bytes, bool]:
            with RawClient(router.port) as client:
                client.send(request)
                answer = client.read_answer()
                return answer.status, answer.body, answer.complete

        asked = asyncio.create_task(asyncio.to_thread(ask_raw))
        if death == "crash":
            await until(lambda: fleet[0].state.running == 1)
            await asyncio.sleep(0.1)
            await fleet[0].crash()
        status, body, complete = await asked
        assert status == 200
        assert not complete
        last = body.removesuffix(b"\n\n").rpartition(b"\n\n")[2]
        assert last.startswith(b'data: {"error":')
        assert b"[DONE]" not in body
        await until_idle(http, router)


async def test_the_error_event_of_a_dead_engine_passes_as_it_came(
    http: aiohttp.ClientSession,
) -> None:
    slow = Switches(ttft_ms=1, token_ms=60_000)
    async with (
        SimulatedFleet(models=["m"], switches=slow) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 1)
        url = f"{router.url}/v1/chat/completions"
        async with http.post(url, json=chat("m", stream=True)) as response:
            first = await response.content.readany()
            await fleet[0].kill_engine()
            rest = await response.read()
        assert b"EngineCore encountered an issue" in rest
        assert (first + rest).endswith(b"data: [DONE]\n\n")
        await until_idle(http, router)


async def test_with_every_worker_gone_the_answer_is_503_with_retry_after(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        for worker in fleet:
            await worker.stop()
        url = f"{router.url}/v1/chat/completions"
        async with http.post(url, json=chat("m")) as response:
            first = response.status
        assert first in (502, 503)
        async with http.post(url, json=chat("m")) as response:
            assert response.status == 503
            assert int(response.headers["retry-after"]) >= 1
            body = await response.json()
        assert body["error"]["code"] == "no_available_workers"
        assert all(worker.url not in str(body) for worker in fleet)
        for worker in fleet:
            await worker.start()
        await until_ready(http, router, 2)
        assert (await ask(http, router, chat("m"))).status == 200


async def test_hanging_workers_delay_nobody(http: aiohttp.ClientSession) -> None:
    """Workers whose model list never comes; one that is well is used at once."""
    stuck = Switches(models="hang")  # type: ignore[arg-type]
    async with (
        SimulatedFleet(40, models=["m"], switches=stuck) as hanging,
        SimulatedFleet(models=["m"]) as well,
        serving("--worker-urls", *hanging.urls, *well.urls) as router,
    ):
        await until_ready(http, router, 1)
        assert (await statuses(http, router)).count("pending") == 40
        assert (await ask(http, router, chat("m"))).status == 200
        assert await loads(http, router) == [0] * 41
        stats = (await get(http, router, "/workers"))["stats"]
        assert (stats["ready"], stats["pending"]) == (1, 40)
