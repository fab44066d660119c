"""Each failure switch does what the failing server was seen to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import aiohttp
import pytest

from router.simulate import SimulatedFleet, SimulatedWorker, Switches

from .conftest import CHAT, events

STREAM = CHAT | {"stream": True}


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def status_of(
    http: aiohttp.ClientSession, worker: SimulatedWorker, path: str = "/health"
) -> int:
    async with http.get(worker.url + path) as response:
        return response.status


async def chat(http: aiohttp.ClientSession, worker: SimulatedWorker) -> int:
    async with http.post(f"{worker.url}/v1/chat/completions", json=CHAT) as response:
        await response.read()
        return response.status


async def test_a_hanging_worker_answers_health_and_nothing_else_until_it_recovers(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        worker = fleet[0]
        worker.switch(hang=True)
        asked = asyncio.create_task(chat(http, worker))
        await wait_for(lambda: worker.state.waiting == 1)
        assert await status_of(http, worker) == 200
        assert await status_of(http, worker, "/v1/models") == 200
        assert not asked.done()
        worker.switch(hang=False)
        assert await asked == 200


async def test_a_hang_freezes_a_stream_in_the_middle(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(
        models=["tiny"], switches=Switches(token_ms=1, tokens=200)
    ) as fleet:
        url = f"{fleet[0].url}/v1/chat/completions"
        async with http.post(url, json=STREAM) as response:
            await response.content.readany()
            fleet[0].switch(hang=True)
            await asyncio.sleep(0)
            assert fleet[0].state.running == 1
            fleet[0].switch(hang=False)
            assert (await response.read()).endswith(b"data: [DONE]\n\n")


async def test_a_draining_worker_answers_500_while_its_health_is_200(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        fleet[0].switch(drain=True)
        for asked in (CHAT, STREAM):
            url = f"{fleet[0].url}/v1/chat/completions"
            async with http.post(url, json=asked) as response:
                assert response.status == 500
                error = (await response.json())["error"]
                assert error["message"] == "cannot schedule new futures after shutdown"
        assert await status_of(http, fleet[0]) == 200
        assert await status_of(http, fleet[0], "/v1/models") == 200


async def test_a_full_queue_answers_503_meant_for_another_instance(
    http: aiohttp.ClientSession,
) -> None:
    slow = Switches(ttft_ms=60_000)
    async with SimulatedFleet(
        models=["tiny"], max_num_seqs=1, max_num_queued_reqs=1, switches=slow
    ) as fleet:
        worker = fleet[0]
        first = [asyncio.create_task(chat(http, worker)) for _ in range(2)]
        await wait_for(lambda: worker.state.running + worker.state.waiting == 2)
        url = f"{worker.url}/v1/chat/completions"
        async with http.post(url, json=CHAT) as response:
            assert response.status == 503
            assert "retry-after" not in response.headers
            error = (await response.json())["error"]
        assert error["type"] == "Service Unavailable"
        assert "different instance" in error["message"]
        worker.switch(ttft_ms=0)
        for task in first:
            task.cancel()
        await wait_for(lambda: fleet.running == 0)


async def test_a_worker_can_refuse_whatever_its_queue_holds(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        fleet[0].switch(reject=True)
        assert await chat(http, fleet[0]) == 503
        assert await status_of(http, fleet[0]) == 200


async def test_an_unhealthy_worker_still_serves(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        fleet[0].switch(unhealthy=True)
        assert await status_of(http, fleet[0]) == 503
        assert await chat(http, fleet[0]) == 200


@pytest.mark.parametrize(
    ("models", "status", "body"),
    [
        ("empty", 200, b'{"object":"list","data":[]}'),
        ("missing", 404, b'{"detail":"Not Found"}'),
        ("unreadable", 200, b"<html>starting</html>"),
    ],
)
async def test_the_model_list_can_be_broken(
    http: aiohttp.ClientSession, models: str, status: int, body: bytes
) -> None:
    async with SimulatedFleet() as fleet:
        fleet[0].switch(models=models)
        async with http.get(f"{fleet[0].url}/v1/models") as response:
            assert (response.status, await response.read()) == (status, body)


async def test_the_model_list_can_hang(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet() as fleet:
        fleet[0].switch(models="hang")
        asked = asyncio.create_task(status_of(http, fleet[0], "/v1/models"))
        assert await status_of(http, fleet[0]) == 200
        assert not asked.done()
        asked.cancel()


async def test_a_stream_can_be_reset_after_some_tokens(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        fleet[0].switch(reset_after_tokens=2)
        url = f"{fleet[0].url}/v1/chat/completions"
        async with http.post(url, json=STREAM) as response:
            assert response.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        await wait_for(lambda: fleet.running == 0)


async def test_a_worker_can_begin_to_serve_another_model(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        fleet[0].serve("other")
        assert await chat(http, fleet[0]) == 404
        async with http.get(f"{fleet[0].url}/v1/models") as response:
            listed = await response.json()
        assert [card["id"] for card in listed["data"]] == ["other"]


@pytest.mark.parametrize(
    "changes", [{"hung": True}, {"models": "odd"}, {"ttft_ms": []}]
)
def test_a_switch_that_is_not_there_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        Switches().changed(changes)


async def test_switches_are_thrown_over_http_too(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        url = f"{fleet[0].url}/simulate"
        changes = {"drain": True, "served": ["a", "b"]}
        async with http.post(url, json=changes) as response:
            assert (await response.json())["served"] == ["a", "b"]
        assert fleet[0].state.switches.drain
        async with http.post(url, json={"odd": 1}) as response:
            assert response.status == 400
        async with http.get(url) as response:
            report = await response.json()
        assert report["drain"] is True
        assert (report["running"], report["requests"]) == (0, 0)


async def test_an_outage_asked_for_over_http_ends_by_itself(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet() as fleet:
        outage = {"outage": {"kind": "crash", "secs": 0.05}}
        async with http.post(f"{fleet[0].url}/simulate", json=outage) as response:
            assert response.status == 200
        await wait_for(lambda: not fleet[0].up)
        await wait_for(lambda: fleet[0].up)
        assert await status_of(http, fleet[0]) == 200


def test_jitter_spreads_a_delay_evenly_around_it() -> None:
    random = Random(1)
    switches = Switches(jitter=0.5)
    delays = [switches.delay(100, random) for _ in range(1000)]
    assert 0.05 <= min(delays) < 0.06
    assert 0.14 < max(delays) <= 0.15
    assert Switches().delay(100, random) == 0.1


async def test_pause_refuses_freezes_or_waits_as_its_mode_says(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        worker = fleet[0]

        async def post(path: str) -> int:
            async with http.post(worker.url + path) as response:
                return response.status

        for mode in ("abort", "wait"):
            assert await post(f"/pause?mode={mode}") == 200
            assert await chat(http, worker) == 503
            assert await post("/resume") == 200
        assert await post("/pause?mode=keep") == 200
        frozen = asyncio.create_task(chat(http, worker))
        await wait_for(lambda: worker.state.waiting == 1)
        assert await post("/resume") == 200
        assert await frozen == 200
        assert await post("/pause?mode=odd") == 400


async def test_a_pause_that_aborts_ends_streams_with_that_reason(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(
        models=["tiny"], switches=Switches(token_ms=60_000)
    ) as fleet:
        url = f"{fleet[0].url}/v1/chat/completions"
        async with http.post(url, json=STREAM) as response:
            first = await response.content.readany()
            async with http.post(f"{fleet[0].url}/pause") as paused:
                assert await paused.json() == {"status": "paused"}
            *_, last, done = events(first + await response.read())
    assert last["choices"][0]["finish_reason"] == "abort"
    assert done == "[DONE]"


async def test_a_sleeping_worker_is_healthy_and_answers_when_it_wakes(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        worker = fleet[0]
        async with http.post(f"{worker.url}/sleep?level=1") as response:
            assert response.status == 200
        asleep = asyncio.create_task(chat(http, worker))
        await wait_for(lambda: worker.state.waiting == 1)
        assert await status_of(http, worker) == 200
        async with http.get(f"{worker.url}/is_sleeping") as response:
            assert await response.json() == {"is_sleeping": True}
        async with http.post(f"{worker.url}/wake_up") as response:
            assert response.status == 200
        assert await asleep == 200
