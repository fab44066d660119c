"""The demo: a simulated fleet, a real router before it, steady traffic, what to see.

Owns the scenario and the router's process. The router is started as a user would
start it, and is spoken to over HTTP only.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.live import Live

from .fleet import SimulatedFleet
from .switches import Switches
from .traffic import Traffic
from .view import Moment, line, screen
from .worker import SimulatedWorker, bind

MODEL = "demo-chat"
ADAPTER = "demo-sql"
_PORT = 30000
_SWITCHES = Switches(ttft_ms=60, token_ms=15, jitter=0.3, tokens=24)
#: The scenario, in seconds: when the late worker comes; how long the mortal one lives
#: and how long it stays away.
_LATE = 5.0
_ALIVE = 10.0
_AWAY = 6.0
_ROUTER_TIMEOUT = 15.0


class DemoFailed(Exception):
    """The router did not start, or ended by itself."""


class Demo:
    """One demo. `run` it once."""

    def __init__(self, workers: int, clients: int, port: int, policy: str) -> None:
        """port: of the router; 0: the usual one if it is free, else any."""
        self._fleet = SimulatedFleet(
            workers,
            models=[MODEL],
            loras={0: [ADAPTER], 1: [ADAPTER]},
            switches=_SWITCHES,
        )
        self._mortal, self._late = self._fleet[1], self._fleet[workers - 1]
        self._port = port or _usual_port()
        self._url = f"http://127.0.0.1:{self._port}"
        self._policy = policy
        self._traffic = Traffic(self._url, [MODEL, MODEL, ADAPTER], clients=clients)
        self._notes = {
            self._mortal.url: "dies, returns",
            self._late.url: "comes late",
        }
        self._console = Console()

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Raises `DemoFailed`."""
        try:
            for worker in self._fleet:
                if worker is not self._late:
                    await worker.start()
            self._late.start_after(_LATE)
            with tempfile.TemporaryDirectory(prefix="router-demo-") as folder:
                async with self._router(Path(folder) / "router.log") as router:
                    await self._show(router, stop)
        finally:
            await self._fleet.close()

    async def _show(
        self, router: asyncio.subprocess.Process, stop: asyncio.Event
    ) -> None:
        for hint in self._hints():
            self._console.print(hint, soft_wrap=True, highlight=False)
        work = [
            asyncio.create_task(self._traffic.run()),
            asyncio.create_task(_die_and_return(self._mortal)),
            asyncio.create_task(self._watch()),
            asyncio.create_task(stop.wait()),
            asyncio.create_task(router.wait()),
        ]
        done, pending = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()
        if router.returncode is not None:
            raise DemoFailed(f"the router ended by itself, code {router.returncode}")

    def _hints(self) -> list[str]:
        body = f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hi"}}]}}'
        return [
            f"The router listens on {self._url}. Try:",
            f"  curl {self._url}/v1/chat/completions "
            f"-H 'Content-Type: application/json' -d '{body}'",
            f"  curl {self._url}/workers",
        ]

    # --- what is seen ---------------------------------------------------------------

    async def _watch(self) -> None:
        """Shows the fleet as the router sees it, until cancelled."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            if not self._console.is_terminal:
                while True:
                    print(
                        line(await self._moment(http, loop.time() - began)), flush=True
                    )
                    await asyncio.sleep(2)
            with Live(console=self._console, auto_refresh=False) as live:
                while True:
                    moment = await self._moment(http, loop.time() - began)
                    live.update(screen(moment), refresh=True)
                    await asyncio.sleep(0.25)

    async def _moment(self, http: aiohttp.ClientSession, seconds: float) -> Moment:
        try:
            async with http.get(f"{self._url}/workers") as response:
                workers: list[dict[str, Any]] = (await response.json())["workers"]
        except (aiohttp.ClientError, TimeoutError):
            workers = []
        return Moment(
            seconds=seconds,
            workers=workers,
            up={worker.url: worker.up for worker in self._fleet},
            taken={worker.url: worker.state.requests for worker in self._fleet},
            notes=self._notes,
            counts=self._traffic.counts,
        )

    # --- the router -----------------------------------------------------------------

    @asynccontextmanager
    async def _router(self, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        """`router serve` as a process of its own, from its first answer to its end."""
        with log.open("wb") as output:
            router = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "router", "serve"),
                *("--host", "127.0.0.1", "--port", str(self._port)),
                *("--policy", self._policy, "--drain-timeout-secs", "2"),
                *("--worker-urls", *self._fleet.urls),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C is ours: the router is told to end by us, once.
                start_new_session=True,
            )
        try:
            if not await self._answers(router):
                said = log.read_text(errors="replace")[-2000:]
                raise DemoFailed(f"the router did not start:\n{said}")
            yield router
        finally:
            await _end(router)

    async def _answers(self, router: asyncio.subprocess.Process) -> bool:
        """Whether the router answered before it ended or its time was over."""
        deadline = asyncio.get_running_loop().time() + _ROUTER_TIMEOUT
        timeout = aiohttp.ClientTimeout(total=1)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while asyncio.get_running_loop().time() < deadline:
                if router.returncode is not None:
                    return False
                try:
                    async with http.get(f"{self._url}/liveness") as response:
                        return response.status == 200
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.05)
        return False


async def _die_and_return(worker: SimulatedWorker) -> None:
    while True:
        await asyncio.sleep(_ALIVE)
        await worker.crash()
        await asyncio.sleep(_AWAY)
        await worker.start()


async def _end(router: asyncio.subprocess.Process) -> None:
    """SIGTERM, then SIGKILL."""
    if router.returncode is not None:
        return
    router.terminate()
    try:
        async with asyncio.timeout(10):
            await router.wait()
    except TimeoutError:
        router.kill()
        await router.wait()


def _usual_port() -> int:
    """The router's default port if it is free, else any that is."""
    for port in (_PORT, 0):
        try:
            with bind("127.0.0.1", port) as probe:
                free: int = probe.getsockname()[1]
                return free
        except OSError:
            continue
    raise DemoFailed("no port is free")
