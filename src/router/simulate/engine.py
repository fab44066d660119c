"""The simulated engine: seats, waiting requests, time, death. One per rank.

Owns who runs and who waits and wakes them; knows no HTTP and no JSON. A request is a
`Generation`, which exists from admission until its caller leaves, however it leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from random import Random

from .histogram import Histogram
from .switches import Switches


class EngineError(Exception):
    """The engine does not take or not finish a request; the answer it is."""

    status = 500
    type = "InternalServerError"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class EngineDead(EngineError):
    """The engine process is gone."""

    def __init__(self) -> None:
        super().__init__(
            "EngineCore encountered an issue. See stack trace (above) for the root "
            "cause."
        )


class EngineDraining(EngineError):
    """The server is in a graceful shutdown."""

    def __init__(self) -> None:
        super().__init__("cannot schedule new futures after shutdown")


class EngineBusy(EngineError):
    """Admission control: the queue is full."""

    status = 503
    type = "Service Unavailable"

    def __init__(self) -> None:
        super().__init__(
            "The engine is currently busy and cannot accept new requests. Please try "
            "again later or on a different instance."
        )


class EnginePaused(EngineError):
    """Generation is paused by an operator."""

    status = 503
    type = "ServiceUnavailableError"

    def __init__(self) -> None:
        super().__init__("Generation is paused. Please try again later.")


class Ended(StrEnum):
    """Why a generation ended before its last token."""

    ABORT = "abort"
    DEATH = "death"


class Generation:
    """One request in the engine. Created by `Engine.admit` only."""

    def __init__(self, engine: Engine, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = 0
        #: Set when the engine ends it; the caller looks after each wait.
        self.ended: Ended | None = None
        self._engine = engine
        self._arrived = asyncio.get_running_loop().time()
        self._wake: asyncio.Future[None] | None = None
        self._elapsed = True

    def end(self, reason: Ended) -> None:
        self.ended = self.ended or reason
        self.wake()

    def wake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def complete(self, count: int) -> None:
        """Waits for all `count` tokens, or until the engine ends it.

        Raises `EngineDead` if the engine died.
        """
        switches, random = self._engine.switches, self._engine.random
        milliseconds = switches.ttft_ms + switches.token_ms * max(0, count - 1)
        await self._pass(switches.delay(milliseconds, random))
        if self.ended is Ended.DEATH:
            raise EngineDead
        if not self.ended:
            self._account(count)

    async def token(self) -> bool:
        """Waits for the next token. False: the engine ended it, none will come."""
        first = self.completion_tokens == 0
        switches, random = self._engine.switches, self._engine.random
        milliseconds = switches.ttft_ms if first else switches.token_ms
        before = asyncio.get_running_loop().time()
        await self._pass(switches.delay(milliseconds, random))
        if self.ended:
            return False
        now = asyncio.get_running_loop().time()
        if first:
            self._engine.first_token.observe(now - self._arrived)
        else:
            self._engine.inter_token.observe(now - before)
        self._account(1)
        return True

    def _account(self, count: int) -> None:
        self.completion_tokens += count
        self._engine.kv_tokens += count
        self._engine.generation_tokens += count

    async def seat(self) -> None:
        """Waits, first come first served, for a place in the running batch."""
        engine = self._engine
        engine.queue[self] = None
        try:
            while not self.ended and not engine.has_seat_for(self):
                await self._until_woken()
        finally:
            del engine.queue[self]
            engine.wake_next()

    async def _pass(self, seconds: float) -> None:
        """Lets `seconds` go by, longer while the engine stands still."""
        if seconds > 0:
            self._elapsed = False
            timer = asyncio.get_running_loop().call_later(seconds, self._elapse)
            try:
                while not self.ended and not self._elapsed:
                    await self._until_woken()
            finally:
                timer.cancel()
        else:
            await asyncio.sleep(0)
        while not self.ended and self._engine.frozen:
            await self._until_woken()

    def _elapse(self) -> None:
        # A flag and no look at the clock: a loop may call a timer a little early.
        self._elapsed = True
        self.wake()

    async def _until_woken(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None


class Engine:
    """One rank's engine: what runs, what waits, and the counts vLLM reports of it."""

    #: Tokens the KV cache holds, for the usage gauge.
    KV_CAPACITY = 1 << 20

    def __init__(
        self, *, max_num_seqs: int, max_num_queued_reqs: int, random: Random
    ) -> None:
        """max_num_queued_reqs: requests that may wait; beyond it 503. 0: no limit."""
        self.random = random
        self.switches = Switches()
        self.queue: dict[Generation, None] = {}
        self.running: dict[Generation, None] = {}
        self.dead = False
        self.asleep = False
        #: None, or the mode of /pause: "abort", "wait" or "keep".
        self.paused: str | None = None
        self.kv_tokens = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.rejections = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        #: Callers that left before the end; vLLM itself does not count these.
        self.left = 0
        self.first_token = Histogram()
        self.inter_token = Histogram()
        self.end_to_end = Histogram()
        self._max_num_seqs = max_num_seqs
        self._max_num_queued_reqs = max_num_queued_reqs

    @property
    def frozen(self) -> bool:
        """Whether time stands still for what is in the engine."""
        return self.switches.hang or self.asleep or self.paused == "keep"

    @asynccontextmanager
    async def admit(self, prompt_tokens: int) -> AsyncIterator[Generation]:
        """A generation that holds a seat while the block runs.

        Raises `EngineError` if the engine takes no request now.
        """
        self.check()
        generation = Generation(self, prompt_tokens)
        started = asyncio.get_running_loop().time()
        try:
            await generation.seat()
            if generation.ended is Ended.DEATH:
                raise EngineDead
            self.running[generation] = None
            self.kv_tokens += prompt_tokens
            self.prompt_tokens += prompt_tokens
            yield generation
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        else:
            self.end_to_end.observe(asyncio.get_running_loop().time() - started)
        finally:
            if generation in self.running:
                del self.running[generation]
                self.kv_tokens -= prompt_tokens + generation.completion_tokens
            self.wake_next()

    def check(self) -> None:
        """Raises `EngineError` if the engine takes no request now."""
        if self.dead:
            raise EngineDead
        if self.switches.drain:
            raise EngineDraining
        if self.paused in ("abort", "wait"):
            raise EnginePaused
        limit = self._max_num_queued_reqs
        if self.switches.reject or (limit and len(self.queue) >= limit):
            self.rejections += 1
            raise EngineBusy

    def has_seat_for(self, generation: Generation) -> bool:
        """Whether `generation` is the next to run and a seat is free."""
        if self.frozen or len(self.running) >= self._max_num_seqs:
            return False
        return next(iter(self.queue)) is generation

    def wake_next(self) -> None:
        for generation in self.queue:
            generation.wake()
            return

    def wake_all(self) -> None:
        """After anything changed that a generation may wait for."""
        for generation in (*self.running, *self.queue):
            generation.wake()

    def end_all(self, reason: Ended) -> None:
        for generation in (*self.running, *self.queue):
            generation.end(reason)

    async def emptied(self) -> None:
        """Returns when nothing runs and nothing waits."""
        while self.running or self.queue:
            await asyncio.sleep(0.005)
