"""Clients that leave at any moment: nothing stays counted, nothing keeps running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from router.simulate import SimulatedFleet, Switches
from tests.support.http import post
from tests.support.router_process import RouterProcess, serving

from .common import ask, chat, get, until, until_idle, until_ready

STREAM = post("/v1/completions", b'{"model":"m","prompt":"hi","stream":true}')
WHOLE = post("/v1/completions", b'{"model":"m","prompt":"hi"}')
LARGE = post("/v1/completions", b'{"model":"m","prompt":"' + b"x" * 50_000 + b'"}')
HEAD_END = LARGE.index(b"\r\n\r\n") + 4

#: What is sent, whether an answer is waited for, and how many bytes of it are read.
PHASES: list[tuple[str, bytes, float, int]] = [
    ("before the head is whole", LARGE[: HEAD_END - 10], 0.0, 0),
    ("after the head", LARGE[:HEAD_END], 0.0, 0),
    ("in the middle of the body", LARGE[: HEAD_END + 20_000], 0.0, 0),
    ("at once after the body", WHOLE, 0.0, 0),
    ("while the answer is waited for", WHOLE, 0.02, 0),
    ("while a stream is waited for", STREAM, 0.02, 0),
    ("after the first bytes of a stream", STREAM, 0.0, 1),
    ("in the middle of a stream", STREAM, 0.0, 700),
]
ABORTS = 1000


async def leave(
    router: RouterProcess, sent: bytes, wait: float, read: int, *, abruptly: bool
) -> None:
    """One client, from its connection to its going."""
    reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
    writer.write(sent)
    await writer.drain()
    if wait:
        await asyncio.sleep(wait)
    if read:
        await reader.readexactly(read)
    if abruptly:
        writer.transport.abort()
    else:
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def slow_fleet(
    http: aiohttp.ClientSession,
) -> AsyncIterator[tuple[SimulatedFleet, RouterProcess]]:
    slow = Switches(ttft_ms=40, token_ms=20, tokens=400)
    async with (
        SimulatedFleet(4, models=["m"], switches=slow) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 4)
        yield fleet, router


async def test_after_1000_aborts_over_all_phases_every_load_is_0(
    http: aiohttp.ClientSession,
) -> None:
    async with slow_fleet(http) as (fleet, router):
        gate = asyncio.Semaphore(64)

        async def one(number: int) -> None:
            _, sent, wait, read = PHASES[number % len(PHASES)]
            async with gate:
                await leave(router, sent, wait, read, abruptly=number % 3 == 0)

        await asyncio.gather(*(one(number) for number in range(ABORTS)))
        await until_idle(http, router)
        await until(lambda: fleet.running == 0)
        listed = await get(http, router, "/workers")
        assert [worker["load"] for worker in listed["workers"]] == [0] * 4
        assert listed["stats"]["in_flight"] == 0
        # A client that leaves says nothing about the worker.
        assert {worker["status"] for worker in listed["workers"]} == {"ready"}
        for worker in fleet:
            worker.switch(ttft_ms=0, token_ms=0, tokens=1)
        assert (await ask(http, router, chat("m"))).status == 200


async def test_a_client_that_leaves_ends_the_generation_at_once(
    http: aiohttp.ClientSession,
) -> None:
    async with slow_fleet(http) as (fleet, router):
        for worker in fleet:
            worker.switch(ttft_ms=1, token_ms=60_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
        writer.write(STREAM)
        await reader.readexactly(1)
        await until(lambda: fleet.running == 1)
        writer.close()
        await until(lambda: fleet.running == 0, within=5)
        assert sum(w.state.engines[0].left for w in fleet) == 1


async def test_a_client_that_reads_nothing_holds_one_load_and_gives_it_back(
    http: aiohttp.ClientSession,
) -> None:
    async with slow_fleet(http) as (fleet, router):
        for worker in fleet:
            worker.switch(ttft_ms=0, token_ms=0, tokens=100_000)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", router.port, limit=1024
        )
        writer.write(STREAM)
        await reader.readexactly(1)
        generated = -1
        # The worker stands still once every buffer on the way is full.
        async with asyncio.timeout(20):
            while generated < (
                now := sum(w.state.engines[0].generation_tokens for w in fleet)
            ):
                generated = now
                await asyncio.sleep(0.5)
        assert 0 < generated < 100_000
        assert fleet.running == 1
        writer.transport.abort()
        await until(lambda: fleet.running == 0)
        await until_idle(http, router)
