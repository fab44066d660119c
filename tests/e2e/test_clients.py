"""What an application does, through the router, as to one server."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from router.simulate import SimulatedFleet
from tests.support.router_process import serving

from .common import ask, chat, get, until_ready

CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", chat("m"), "choices"),
    ("/v1/completions", {"model": "m", "prompt": "hi"}, "choices"),
    ("/v1/responses", {"model": "m", "input": "hi"}, "output"),
    ("/v1/embeddings", {"model": "m", "input": ["a", "b"]}, "data"),
    ("/tokenize", {"model": "m", "prompt": "hi"}, "tokens"),
    ("/detokenize", {"model": "m", "tokens": [104, 105]}, "prompt"),
    ("/inference/v1/generate", {"model": "m", "token_ids": [1, 2]}, "choices"),
]


async def test_every_kind_of_call_is_answered_as_by_one_server(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        for path, body, field in CALLS:
            reply = await ask(http, router, body, path)
            assert (path, reply.status) == (path, 200)
            assert field in reply.body
            assert reply.worker


async def test_a_stream_is_what_the_worker_itself_would_send(
    http: aiohttp.ClientSession,
) -> None:
    body = chat("m", stream=True, max_tokens=5)
    body["stream_options"] = {"include_usage": True}
    async with (
        SimulatedFleet(models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 1)
        answers = []
        for url in (fleet[0].url, router.url):
            headers = {"x-request-id": "same"}
            async with http.post(
                f"{url}/v1/chat/completions", json=body, headers=headers
            ) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                lines = (await response.read()).decode().split("\n\n")
            events = [
                json.loads(line[6:]) for line in lines if line.startswith("data: {")
            ]
            answers.append([event | {"created": 0} for event in events])
            assert lines[-2:] == ["data: [DONE]", ""]
        assert answers[0] == answers[1]


async def test_a_transcription_is_routed_by_the_model_of_its_form(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m", "whisper"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        for _ in range(4):
            form = aiohttp.FormData()
            form.add_field("file", b"\0\1" * 50_000, filename="a.wav")
            form.add_field("model", "whisper")
            url = f"{router.url}/v1/audio/transcriptions"
            async with http.post(url, data=form) as response:
                assert (await response.json())["text"] == "100000 bytes of speech"
        assert [worker.state.requests for worker in fleet] == [0, 4]


async def test_the_realtime_socket_passes_as_a_tunnel(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m", "other"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        url = f"{router.url}/v1/realtime?model=other"
        async with http.ws_connect(url) as socket:
            assert (await socket.receive_json())["type"] == "session.created"
            for size in (1, 200, 70_000):
                await socket.send_bytes(b"x" * size)
                assert await socket.receive_bytes() == b"x" * size
            loads = [
                w["load"] for w in (await get(http, router, "/workers"))["workers"]
            ]
            assert loads == [0, 1]


async def test_a_workers_own_refusals_pass_unchanged(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 1)
        bad = chat("m", max_tokens=-1)
        through = await ask(http, router, bad)
        url = f"{fleet[0].url}/v1/chat/completions"
        async with http.post(url, json=bad) as response:
            assert (through.status, through.body) == (400, await response.json())
        async with http.get(f"{router.url}/v1/nothing") as response:
            assert response.status == 404
            assert await response.json() == {"detail": "Not Found"}


async def test_the_key_of_the_workers_is_the_routers_to_send(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["m"], api_key="secret") as fleet,
        serving("--worker-urls", *fleet.urls, "--api-key", "secret") as router,
    ):
        await until_ready(http, router, 2)
        assert (await ask(http, router, chat("m"))).status == 200
        reply = await ask(http, router, chat("m"), authorization="Bearer wrong")
        assert reply.status == 200
        assert "secret" not in json.dumps(await get(http, router, "/workers"))


@pytest.mark.parametrize("header", ["x-session-id", "x-smg-routing-key"])
async def test_a_session_stays_on_its_worker(
    http: aiohttp.ClientSession, header: str
) -> None:
    async with (
        SimulatedFleet(8, models=["m"]) as fleet,
        serving("--worker-urls", *fleet.urls, "--policy", "consistent_hash") as router,
    ):
        await until_ready(http, router, 8)
        homes = set()
        for session in range(20):
            workers = {
                (await ask(http, router, chat("m"), **{header: f"s{session}"})).worker
                for _ in range(3)
            }
            assert len(workers) == 1
            homes |= workers
        assert len(homes) > 3
