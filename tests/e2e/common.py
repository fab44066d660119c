"""Small ways to ask and to wait, for the tests of the whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import aiohttp

from tests.support.router_process import RouterProcess

#: Quick checks, for tests that wait for one; the default is ten seconds.
QUICK = ("--health-check-interval-secs", "0.2")


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, worker and JSON (or text) of an answer."""

    status: int
    worker: str
    body: Any

    @property
    def code(self) -> str:
        """The `code` of an error."""
        return str(self.body["error"]["code"])


def chat(model: str, **more: object) -> dict[str, object]:
    """The body of a chat."""
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}


async def ask(
    http: aiohttp.ClientSession,
    router: RouterProcess,
    body: object,
    path: str = "/v1/chat/completions",
    **headers: str,
) -> Reply:
    """One POST, read whole. Underscores in header names stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.post(router.url + path, json=body, headers=named) as response:
        kind = response.content_type
        told = await (
            response.json() if kind == "application/json" else response.text()
        )
        return Reply(response.status, response.headers.get("X-Router-Worker", ""), told)


async def get(http: aiohttp.ClientSession, router: RouterProcess, path: str) -> Any:
    async with http.get(router.url + path) as response:
        return await response.json()


async def model_ids(http: aiohttp.ClientSession, router: RouterProcess) -> list[str]:
    """The ids that GET /v1/models of the router lists, in its order."""
    listed = await get(http, router, "/v1/models")
    return [card["id"] for card in listed["data"]]


async def statuses(http: aiohttp.ClientSession, router: RouterProcess) -> list[str]:
    """The status of each worker, in order of registration."""
    listed = await get(http, router, "/workers")
    return [worker["status"] for worker in listed["workers"]]


async def loads(http: aiohttp.ClientSession, router: RouterProcess) -> list[int]:
    """The load of each worker as the router counts it."""
    listed = await get(http, router, "/workers")
    return [worker["load"] for worker in listed["workers"]]


async def until(condition: Callable[[], bool], *, within: float = 15.0) -> float:
    """Seconds until `condition` holds. Raises TimeoutError past `within`."""
    began = monotonic()
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)
    return monotonic() - began


async def until_ready(
    http: aiohttp.ClientSession, router: RouterProcess, count: int
) -> None:
    """Returns once so many workers are ready."""
    async with asyncio.timeout(15):
        while (await statuses(http, router)).count("ready") < count:
            await asyncio.sleep(0.02)


async def until_idle(http: aiohttp.ClientSession, router: RouterProcess) -> None:
    """Returns once the router counts nothing in flight on any worker."""
    async with asyncio.timeout(15):
        while any(await loads(http, router)):
            await asyncio.sleep(0.02)


class Load:
    """Clients that ask one thing after the other, and what came of it."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        router: RouterProcess,
        body: object,
        clients: int,
    ) -> None:
        self.replies: list[Reply] = []
        self._stop = False
        self._tasks = [
            asyncio.create_task(self._run(http, router, body)) for _ in range(clients)
        ]

    async def _run(
        self, http: aiohttp.ClientSession, router: RouterProcess, body: object
    ) -> None:
        while not self._stop:
            self.replies.append(await ask(http, router, body))

    async def more(self, count: int) -> None:
        """Returns once so many more replies are there."""
        wanted = len(self.replies) + count
        async with asyncio.timeout(30):
            while len(self.replies) < wanted:
                await asyncio.sleep(0.005)

    async def end(self) -> Sequence[Reply]:
        """All replies, after the last one. Raises what a client met."""
        self._stop = True
        await asyncio.gather(*self._tasks)
        return self.replies

    @property
    def failures(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.status != 200]
