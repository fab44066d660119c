"""A worker's life: refused, up, gone in each way, back on the same port; and aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest
import uvloop

from router.simulate import SimulatedFleet, SimulatedWorker, Switches
from tests.support.http import RawClient, post
from tests.support.ports import free_run

from .conftest import CHAT, events

SLOW = Switches(ttft_ms=5, token_ms=60_000)
STREAM = CHAT | {"stream": True}


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def refused(worker: SimulatedWorker) -> bool:
    try:
        await asyncio.open_connection("127.0.0.1", worker.port)
    except ConnectionRefusedError:
        return True
    return False


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(
    request: pytest.FixtureRequest,
) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs the scenario on each kind of loop."""
    runner: Callable[[Coroutine[Any, Any, None]], None] = request.param
    return runner


def test_connections_are_refused_until_the_worker_is_up(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        worker = SimulatedWorker("tiny")
        assert await refused(worker)
        worker.start_after(0.05)
        assert await refused(worker)
        await wait_for(lambda: worker.up)
        async with aiohttp.ClientSession() as http:
            for path in ("/health", "/v1/models"):
                async with http.get(worker.url + path) as response:
                    assert response.status == 200
        await worker.close()

    run(scenario())


def test_a_worker_comes_and_goes_on_one_port(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        worker = SimulatedWorker("tiny")
        port = worker.port
        async with aiohttp.ClientSession() as http:
            for end in (worker.stop, worker.crash, worker.kill_engine):
                await worker.start()
                async with http.get(f"{worker.url}/health") as response:
                    assert response.status == 200
                await end()
                assert await refused(worker)
        assert worker.port == port
        await worker.close()

    run(scenario())


def test_a_stopped_worker_ends_its_streams_as_aborted_and_cleanly(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        async with (
            SimulatedFleet(models=["tiny"], switches=SLOW) as fleet,
            aiohttp.ClientSession() as http,
        ):
            url = f"{fleet[0].url}/v1/chat/completions"
            async with http.post(url, json=STREAM) as response:
                first = await response.content.readany()
                await fleet[0].stop()
                *_, last, done = events(first + await response.read())
        assert last["choices"][0]["finish_reason"] == "abort"
        assert done == "[DONE]"

    run(scenario())


def test_a_dead_engine_says_so_in_the_stream_and_by_500(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        async with (
            SimulatedFleet(models=["tiny"], switches=SLOW) as fleet,
            aiohttp.ClientSession() as http,
        ):
            url = f"{fleet[0].url}/v1/chat/completions"

            async def whole() -> tuple[int, Any]:
                async with http.post(url, json=CHAT) as response:
                    return response.status, await response.json()

            waiting = asyncio.create_task(whole())
            async with http.post(url, json=STREAM) as response:
                first = await response.content.readany()
                await wait_for(lambda: fleet[0].state.running == 2)
                death = asyncio.create_task(fleet[0].kill_engine())
                status, body = await waiting
                assert (status, body["error"]["type"]) == (500, "InternalServerError")
                async with http.get(f"{fleet[0].url}/health") as health:
                    assert health.status == 503
                *_, last, done = events(first + await response.read())
            assert last["error"]["code"] == 500
            assert last["error"]["message"].startswith("EngineCore encountered")
            assert done == "[DONE]"
            await death
            assert await refused(fleet[0])

    run(scenario())


def test_a_crashed_worker_resets_its_connections(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        async with (
            SimulatedFleet(models=["tiny"], switches=SLOW) as fleet,
            aiohttp.ClientSession() as http,
        ):
            url = f"{fleet[0].url}/v1/chat/completions"
            async with http.post(url, json=STREAM) as response:
                await fleet[0].crash()
                with pytest.raises(aiohttp.ClientPayloadError, match="reset by peer"):
                    await response.read()

    run(scenario())


@pytest.mark.parametrize("body", [CHAT, STREAM], ids=["whole", "stream"])
def test_a_client_that_leaves_frees_its_seat(
    run: Callable[[Coroutine[Any, Any, None]], None], body: dict[str, Any]
) -> None:
    async def scenario() -> None:
        async with (
            SimulatedFleet(models=["tiny"], max_num_seqs=4, switches=SLOW) as fleet,
            aiohttp.ClientSession() as http,
        ):
            state = fleet[0].state

            async def ask() -> None:
                url = f"{fleet[0].url}/v1/chat/completions"
                async with http.post(url, json=body) as response:
                    await response.read()

            asked = [asyncio.create_task(ask()) for _ in range(8)]
            await wait_for(lambda: (state.running, state.waiting) == (4, 4))
            for task in asked:
                task.cancel()
            await wait_for(lambda: fleet.running == 0)
            (engine,) = state.engines
            assert engine.kv_tokens == 0
            assert engine.left == 8
            assert engine.finished["abort"] == 0

    run(scenario())


async def test_requests_are_seated_in_the_order_they_came() -> None:
    ended: list[int] = []
    async with (
        SimulatedFleet(
            models=["tiny"], max_num_seqs=1, switches=Switches(ttft_ms=2)
        ) as fleet,
        aiohttp.ClientSession() as http,
    ):
        state = fleet[0].state

        async def ask(number: int) -> None:
            url = f"{fleet[0].url}/v1/completions"
            asked = {"prompt": "hi", "max_tokens": 1}
            async with http.post(url, json=asked) as response:
                await response.read()
            ended.append(number)

        fleet[0].switch(hang=True)
        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(ask(number)))
            await wait_for(lambda: state.waiting == len(tasks))
        fleet[0].switch(hang=False)
        await asyncio.gather(*tasks)
    assert ended == [0, 1, 2, 3, 4]


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with SimulatedFleet(models=["tiny"], keep_alive_secs=0.05) as fleet:
        port = fleet[0].port

        def idle() -> bool:
            with RawClient(port) as client:
                client.send(post("/v1/completions", b'{"prompt": "x"}'))
                assert client.read_answer().status == 200
                return client.ended()

        assert await asyncio.to_thread(idle)


async def test_a_client_that_expects_continue_is_told_to() -> None:
    async with SimulatedFleet() as fleet:
        port = fleet[0].port

        def ask() -> tuple[bytes, int]:
            body = b'{"prompt": "x"}'
            request = post("/v1/completions", body, fields="Expect: 100-continue\r\n")
            with RawClient(port) as client:
                client.send(request.removesuffix(body))
                interim = client.read_some()
                client.send(body)
                return interim, client.read_answer().status

        interim, status = await asyncio.to_thread(ask)
    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert status == 200


async def test_every_stream_event_is_a_chunk_of_its_own() -> None:
    async with SimulatedFleet() as fleet:
        port = fleet[0].port

        def ask() -> list[int]:
            body = b'{"prompt": "x", "stream": true, "max_tokens": 3}'
            with RawClient(port) as client:
                client.send(post("/v1/completions", body))
                return client.read_answer().chunks

        chunks = await asyncio.to_thread(ask)
    assert len(chunks) == 4
    assert chunks[-1] == len(b"data: [DONE]\n\n")


async def test_ports_follow_the_first_one() -> None:
    first = free_run(3)
    async with SimulatedFleet(3, first_port=first) as fleet:
        assert [worker.port for worker in fleet] == [first, first + 1, first + 2]


async def test_a_taken_port_is_an_error_and_leaves_nothing_bound() -> None:
    first = free_run(2)
    async with SimulatedFleet(first_port=first + 1):
        with pytest.raises(OSError, match="in use"):
            SimulatedFleet(2, first_port=first)
        again = SimulatedWorker(port=first)
        again.release()
