"""Steady chats for the demo: clients with sessions, as an application would send them.

Owns the clients and the counts of what came back. Knows the address it sends to, and
nothing of who answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import aiohttp

#: A session ends after so many turns, and another begins.
_TURNS = 8


@dataclass(slots=True)
class Counts:
    """What came back so far."""

    answered: int = 0
    #: Not 200, or no answer at all.
    failed: int = 0
    #: Streams that ended before their end.
    cut: int = 0
    tokens: int = 0
    #: Turns that could have stayed on their session's worker, and those that did.
    turns: int = 0
    kept: int = 0
    last_failure: str = ""
    by_model: dict[str, int] = field(default_factory=dict)


class Traffic:
    """`clients` chats at a time through one address, until stopped."""

    def __init__(
        self, url: str, models: Sequence[str], *, clients: int, pause_secs: float = 0.1
    ) -> None:
        """pause_secs: what a user thinks between two turns, at most twice of it."""
        self.counts = Counts()
        self._url = f"{url}/v1/chat/completions"
        self._models = models
        self._pause_secs = pause_secs
        self._clients = clients

    async def run(self) -> None:
        """Sends until cancelled."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
            asyncio.TaskGroup() as clients,
        ):
            for number in range(self._clients):
                clients.create_task(self._client(http, number))

    async def _client(self, http: aiohttp.ClientSession, number: int) -> None:
        random = Random(number)
        model = self._models[number % len(self._models)]
        for session in range(1 << 62):
            worker = ""
            for turn in range(_TURNS):
                await asyncio.sleep(random.uniform(0, 2 * self._pause_secs))
                key = f"client-{number}-session-{session}"
                at = await self._turn(http, model, key, turn)
                if worker and at:
                    self.counts.turns += 1
                    self.counts.kept += worker == at
                worker = at or worker

    async def _turn(
        self, http: aiohttp.ClientSession, model: str, session: str, turn: int
    ) -> str:
        """One chat. Gives the id of the worker that answered, "" if none did."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"turn {turn}"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"X-Session-ID": session}
        counts = self.counts
        try:
            async with http.post(self._url, json=body, headers=headers) as response:
                if response.status != 200:
                    text = (await response.text())[:200]
                    return self._fail(f"{response.status} {text}")
                answer = await self._read(response)
        except (aiohttp.ClientConnectionError, TimeoutError) as problem:
            return self._fail(type(problem).__name__)
        if answer is None:
            counts.cut += 1
            return ""
        counts.answered += 1
        counts.by_model[model] = counts.by_model.get(model, 0) + 1
        return response.headers.get("X-Router-Worker", "")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | None:
        """The stream's last line, None if it is not a whole answer."""
        last = b""
        try:
            async for line in response.content:
                if line.startswith(b"data:"):
                    last = line
                    self.counts.tokens += 1
        except aiohttp.ClientPayloadError:
            return None
        return last if last.strip() == b"data: [DONE]" else None

    def _fail(self, why: str) -> str:
        self.counts.failed += 1
        self.counts.last_failure = why
        return ""
