"""How several processes share the work, and what the death of one costs.

    make build
    .venv/bin/python -m bench.processes [--processes 2] [--rounds 3]

A router before 8 simulated servers of one speed, under the steady load of 64 clients
with a connection each. First the balance: requests in flight on each server, summed
over many looks, the most of them by the mean. Then a data process is killed:
the time until what it counted is given back, and until another one serves in its place.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from bench.rig.engines import METRICS_PORT, PORT
from router.simulate import SimulatedFleet, Switches

CLIENTS, SERVERS = 64, 8
LOOKS, LOOK_SECONDS = 100, 0.03
_URL = f"http://127.0.0.1:{PORT}/v1/completions"
_BODY = {"model": "m", "prompt": "hi"}


class Router:
    """A router that runs, seen through its metrics."""

    def __init__(self, pid: int, session: aiohttp.ClientSession) -> None:
        self.pid = pid
        self._session = session

    async def samples(self, name: str) -> dict[str, float]:
        """The samples of a metric by their labels."""
        async with self._session.get(f"http://127.0.0.1:{METRICS_PORT}/metrics") as got:
            page = await got.text()
        samples = [line.rpartition(" ") for line in page.splitlines()]
        return {
            labels.removeprefix(name): float(value)
            for labels, _, value in samples
            if labels.partition("{")[0] == name
        }

    async def in_flight(self) -> dict[str, float]:
        """Requests by server."""
        return await self.samples("fleetrouter_worker_in_flight")

    def children(self) -> list[int]:
        """Pids of the data processes."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(word) for word in text.split()]


@asynccontextmanager
async def running(processes: int, urls: list[str]) -> AsyncIterator[Router]:
    """A router of so many processes, once all servers are ready."""
    flags = ["--port", str(PORT), "--prometheus-port", str(METRICS_PORT)]
    flags += ["--processes", str(processes), "--log-level", "critical"]
    child = subprocess.Popen(
        [sys.executable, "-m", "router", "serve", *flags, "--worker-urls", *urls]
    )
    try:
        async with aiohttp.ClientSession() as session:
            router = Router(child.pid, session)

            async def ready() -> bool:
                try:
                    workers = await router.samples("fleetrouter_workers")
                except aiohttp.ClientError:
                    return False
                return workers['{status="ready"}'] == len(urls)

            await until(ready)
            yield router
    finally:
        child.terminate()
        child.wait()


async def until(holds: Callable[[], Awaitable[bool]]) -> float:
    """Seconds until it does."""
    begin = time.perf_counter()
    async with asyncio.timeout(60):
        while not await holds():
            await asyncio.sleep(0.002)
    return time.perf_counter() - begin


async def use(over: asyncio.Event) -> None:
    """A client: requests one by one, until it is over or its connection breaks."""
    async with aiohttp.ClientSession() as session:
        while not over.is_set():
            try:
                async with session.post(_URL, json=_BODY) as answer:
                    await answer.read()
            except aiohttp.ClientError:
                return


async def balance(router: Router) -> float:
    """The most by the mean of what is in flight on a server."""
    totals: dict[str, float] = {}
    for _ in range(LOOKS):
        for server, load in (await router.in_flight()).items():
            totals[server] = totals.get(server, 0.0) + load
        await asyncio.sleep(LOOK_SECONDS)
    return max(totals.values()) * len(totals) / sum(totals.values())


async def one_round(processes: int) -> None:
    """Measures it all once, and prints it."""
    switches = Switches(ttft_ms=100, tokens=1, jitter=0.3)
    async with (
        SimulatedFleet(SERVERS, models=["m"], switches=switches) as fleet,
        running(processes, list(fleet.urls)) as router,
    ):
        over = asyncio.Event()
        users = [asyncio.create_task(use(over)) for _ in range(CLIENTS)]
        await asyncio.sleep(1)
        print(f"most / mean in flight of a server: {await balance(router):.3f}")
        if processes > 1:
            os.kill(router.children()[0], signal.SIGKILL)

            async def given_back() -> bool:
                left = sum(not user.done() for user in users)
                return sum((await router.in_flight()).values()) <= left < CLIENTS

            async def whole() -> bool:
                serving = await router.samples("fleetrouter_data_processes")
                return serving[""] == processes

            print(f"given back after {1e3 * await until(given_back):.0f} ms")
            print(f"another one serves {1e3 * await until(whole):.0f} ms later")
        over.set()
        await asyncio.gather(*users)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.processes")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for _ in range(args.rounds):
        asyncio.run(one_round(args.processes))


if __name__ == "__main__":
    main()
