"""The router as a process: readiness, the end by signal, the flags it refuses."""

from __future__ import annotations

import asyncio
import os
import signal

import aiohttp
import pytest

from router.simulate import SimulatedFleet, Switches
from tests.support.http import RawClient
from tests.support.ports import free_port
from tests.support.router_process import RouterFailed, RouterProcess, serving

from .common import ask, chat, until, until_ready


async def holds(http: aiohttp.ClientSession, router: RouterProcess) -> bool:
    """Whether one request waits for a worker."""
    async with http.get(f"{router.url}/metrics") as response:
        return "fleetrouter_hold_waiting 1" in (await response.text()).splitlines()


async def test_it_is_live_at_once_and_ready_with_its_first_worker(
    http: aiohttp.ClientSession,
) -> None:
    fleet = SimulatedFleet(models=["m"])
    async with serving("--worker-urls", *fleet.urls) as router:
        for path, status in (("/liveness", 200), ("/readiness", 503), ("/health", 503)):
            async with http.get(router.url + path) as response:
                assert (path, response.status) == (path, status)
        await fleet.start()
        await until_ready(http, router, 1)
        async with http.get(f"{router.url}/readiness") as response:
            ready = await response.json()
            assert response.status == 200
        assert (ready["ready_workers"], ready["total_workers"]) == (1, 1)
        assert ready["models"] == {"m": {"ready": 1, "total": 1}}
        async with http.get(f"{router.url}/health") as response:
            assert response.status == 200
    await fleet.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_requests_end_and_exits_0(
    http: aiohttp.ClientSession, number: signal.Signals
) -> None:
    async with SimulatedFleet(models=["m"], switches=Switches(ttft_ms=1500)) as fleet:
        router = RouterProcess("--worker-urls", *fleet.urls)
        await asyncio.to_thread(router.start)
        await until_ready(http, router, 1)
        running = [asyncio.create_task(ask(http, router, chat("m"))) for _ in range(5)]
        await until(lambda: fleet.running == 5)
        os.kill(router.pid, number)
        assert [reply.status for reply in await asyncio.gather(*running)] == [200] * 5
        assert await asyncio.to_thread(router.wait) == 0
        with pytest.raises(ConnectionRefusedError):
            RawClient(router.port)


async def test_a_drain_is_over_after_its_time_limit(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["m"], switches=Switches(hang=True)) as fleet:
        router = RouterProcess(
            "--worker-urls", *fleet.urls, "--drain-timeout-secs", "0.5"
        )
        await asyncio.to_thread(router.start)
        await until_ready(http, router, 1)
        running = asyncio.create_task(ask(http, router, chat("m")))
        await until(lambda: fleet.running == 1)
        assert await asyncio.to_thread(router.stop) == 0
        with pytest.raises(aiohttp.ClientError):
            await running
        await until(lambda: fleet.running == 0)


async def test_who_still_waits_for_a_worker_when_a_drain_is_over_is_told(
    http: aiohttp.ClientSession,
) -> None:
    router = RouterProcess(
        *("--worker-urls", f"http://127.0.0.1:{free_port()}"),
        *("--hold-timeout-secs", "60", "--drain-timeout-secs", "0.5"),
    )
    await asyncio.to_thread(router.start)
    waiting = asyncio.create_task(ask(http, router, chat("m")))
    async with asyncio.timeout(15):
        while not await holds(http, router):
            await asyncio.sleep(0.02)
    assert await asyncio.to_thread(router.stop) == 0
    reply = await waiting
    assert (reply.status, reply.code) == (503, "draining")


async def test_a_second_signal_exits_now(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet(models=["m"], switches=Switches(hang=True)) as fleet:
        router = RouterProcess("--worker-urls", *fleet.urls)
        await asyncio.to_thread(router.start)
        await until_ready(http, router, 1)
        running = asyncio.create_task(ask(http, router, chat("m")))
        await until(lambda: fleet.running == 1)
        os.kill(router.pid, signal.SIGTERM)
        await asyncio.sleep(0.2)
        # The drain would last a minute, longer than `stop` waits.
        assert await asyncio.to_thread(router.stop) == 1
        with pytest.raises(aiohttp.ClientError):
            await running


@pytest.mark.parametrize(
    "flags",
    [("--no-such-flag",), ("--policy", "best"), ("--worker-urls", "ftp://x")],
)
def test_a_flag_that_is_wrong_ends_the_start_with_its_name(
    flags: tuple[str, ...],
) -> None:
    with pytest.raises(RouterFailed, match=flags[0]):
        RouterProcess(*flags).start()
