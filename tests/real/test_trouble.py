"""Servers that come late, drain or die: no request pays for it."""

from __future__ import annotations

import asyncio
import time

import openai
import pytest

from tests.real.conftest import Fleet, Note
from tests.real.servers import Router, VllmServer, serve, until
from tests.real.traffic import IGNORE_EOS, Traffic, chat, client

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


async def status_is(router: Router, server: VllmServer, *wanted: str) -> bool:
    return await router.status(server) in wanted


async def served(traffic: Traffic, worker: str, since: float) -> bool:
    return traffic.first_of(worker, since) is not None


async def works(*servers: VllmServer) -> bool:
    """Each of them works on a request."""
    return all([await server.running_requests() > 0 for server in servers])


async def refuses(direct: openai.AsyncOpenAI) -> bool:
    """The server takes nothing new."""
    return bool((await chat(direct)).error)


async def stream(
    requests: openai.AsyncOpenAI, tokens: int
) -> tuple[int, str | None, str]:
    """(tokens by the usage chunk, finish reason, worker) of one long stream."""
    counted, reason = 0, None
    async with requests.completions.with_streaming_response.create(
        model="tiny",
        prompt="Once upon a time",
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=IGNORE_EOS,
    ) as answer:
        async for chunk in await answer.parse():
            for choice in chunk.choices:
                reason = choice.finish_reason or reason
            counted = chunk.usage.completion_tokens if chunk.usage else counted
    return counted, reason, answer.headers.get("x-router-worker", "")


async def test_a_server_that_starts_late_takes_its_share(
    fleet: Fleet, note: Note
) -> None:
    """The router is up first, the second server 30 s and more after that."""
    await fleet.first.ensure_ready()
    fleet.second.stop()
    async with (
        serve(*fleet.flags()) as router,
        client(router.url) as requests,
    ):
        await until(lambda: status_is(router, fleet.first, "ready"))
        worker = await router.id_of(fleet.second)
        begun = time.monotonic()
        async with Traffic(requests) as traffic:
            await asyncio.sleep(30)
            assert await router.status(fleet.second) == "pending"
            fleet.second.start()
            up = await fleet.second.ready()
            await until(lambda: served(traffic, worker, up))
            await asyncio.sleep(2)
    assert traffic.failures() == []
    first = traffic.first_of(worker, begun)
    assert first is not None
    note(
        f"late server: {up - begun:.1f} s late, its first request began "
        f"{first.begun - up:.2f} s after it answered /health; "
        f"{len(traffic.outcomes)} requests meanwhile, none failed"
    )


async def test_no_new_request_fails_when_an_engine_is_killed(
    fleet: Fleet, note: Note
) -> None:
    """Its streams end with an error; the server is used again once it is back."""
    await fleet.ensure_ready()
    tokens = 6000
    async with (
        serve(*fleet.flags()) as router,
        client(router.url) as requests,
    ):
        await fleet.joined(router)
        worker = await router.id_of(fleet.second)
        streams = [asyncio.create_task(stream(requests, tokens)) for _ in range(4)]
        await until(lambda: works(fleet.first, fleet.second))
        async with Traffic(requests) as traffic:
            await asyncio.sleep(2)
            killed = time.monotonic()
            fleet.second.kill_engine()
            await until(lambda: status_is(router, fleet.second, "unhealthy"))
            noticed = time.monotonic()
            await asyncio.sleep(5)
            await fleet.second.exited()
            fleet.second.stop()
            fleet.second.start()
            up = await fleet.second.ready()
            await until(lambda: served(traffic, worker, up))
        ended = await asyncio.gather(*streams, return_exceptions=True)
    whole = [end for end in ended if isinstance(end, tuple)]
    broken = [end for end in ended if isinstance(end, openai.APIError)]
    assert [(count, reason) for count, reason, _ in whole] == [(tokens, "length")] * 2
    assert len(broken) == 2
    new = [o for o in traffic.outcomes if o.begun >= killed]
    old = [o for o in traffic.failures() if o.begun < killed]
    assert [o for o in new if o.error] == []
    back = traffic.first_of(worker, killed + 1)
    assert back is not None
    note(
        f"kill -9 of an engine under load: {len(new)} requests after it, none failed; "
        f"of those in flight {len(old)} failed; its {len(broken)} streams ended with "
        f"an error; unhealthy after {noticed - killed:.2f} s; used "
        f"{back.begun - up:.2f} s after it was back"
    )


async def test_no_request_fails_when_a_server_drains(fleet: Fleet, note: Note) -> None:
    """A draining vLLM answers 500 to what is new while its /health is 200."""
    await fleet.ensure_ready()
    tokens = 4000
    async with (
        serve(*fleet.flags()) as router,
        client(router.url) as requests,
        client(fleet.second.url) as direct,
    ):
        await fleet.joined(router)
        worker = await router.id_of(fleet.second)
        streams = [asyncio.create_task(stream(requests, tokens)) for _ in range(2)]
        await until(lambda: works(fleet.first, fleet.second))
        async with Traffic(requests) as traffic:
            await asyncio.sleep(1)
            fleet.second.terminate()
            begun = time.monotonic()
            await until(lambda: refuses(direct))
            await fleet.second.exited()
            drained = time.monotonic() - begun
            await until(lambda: status_is(router, fleet.second, "unhealthy"))
            await asyncio.sleep(2)
        ended = await asyncio.gather(*streams)
    assert traffic.failures() == []
    assert [(count, reason) for count, reason, _ in ended] == [(tokens, "length")] * 2
    assert worker in {name for _, _, name in ended}
    during = [o for o in traffic.outcomes if begun <= o.begun <= begun + drained]
    assert during != []
    note(
        f"SIGTERM drain of {drained:.1f} s: {len(during)} requests meanwhile, none "
        f"failed; the stream that the server was on ended whole, {tokens} tokens"
    )
