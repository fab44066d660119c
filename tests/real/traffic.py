"""Steady requests with the official client, and what became of each."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from types import TracebackType

import openai

#: Greedy, so that equal requests have equal answers; never cut short by a stop token.
GREEDY = {"temperature": 0.0, "max_tokens": 16}
IGNORE_EOS = {"ignore_eos": True}


def client(url: str) -> openai.AsyncOpenAI:
    """The official client, without its own retries: a failure is seen as one."""
    return openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request: when it began and ended (monotonic), who served it, what failed.

    `error` is the code of the answer's error, or what the client makes of a failure.
    """

    begun: float
    ended: float
    worker: str
    error: str
    text: str


async def chat(requests: openai.AsyncOpenAI, model: str = "tiny") -> Outcome:
    """One chat request, to its end; a failure is an outcome, not an exception."""
    begun = time.monotonic()
    try:
        answer = await requests.chat.completions.with_raw_response.create(
            model=model,
            messages=[{"role": "user", "content": "Hi"}],
            temperature=0.0,
            max_tokens=16,
        )
    except openai.APIError as error:
        return Outcome(begun, time.monotonic(), "", str(error.code or repr(error)), "")
    text = answer.parse().choices[0].message.content or ""
    worker = answer.headers.get("x-router-worker", "")
    return Outcome(begun, time.monotonic(), worker, "", text)


async def chats(
    requests: openai.AsyncOpenAI, count: int, *, model: str = "tiny", at_once: int = 8
) -> list[Outcome]:
    """`count` chat requests, `at_once` of them in flight."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> Outcome:
        async with gate:
            return await chat(requests, model)

    return await asyncio.gather(*(one() for _ in range(count)))


class Traffic:
    """`at_once` clients, each sending one chat request after another while entered."""

    def __init__(self, requests: openai.AsyncOpenAI, *, at_once: int = 8) -> None:
        self.outcomes: list[Outcome] = []
        self._requests = requests
        self._at_once = at_once
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Traffic:
        self._tasks = [asyncio.create_task(self._run()) for _ in range(self._at_once)]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def failures(self) -> list[Outcome]:
        """The requests that failed so far."""
        return [outcome for outcome in self.outcomes if outcome.error]

    def first_of(self, worker: str, since: float) -> Outcome | None:
        """The first answer of this worker to a request begun at `since` or later."""
        its = [o for o in self.outcomes if o.worker == worker and o.begun >= since]
        return min(its, key=lambda outcome: outcome.begun, default=None)

    async def _run(self) -> None:
        while not self._stopping:
            self.outcomes.append(await chat(self._requests))
