"""The switches of one simulated worker: how slow it is and what is wrong with it.

A frozen value, replaced as a whole when one of them is thrown, so that a request sees
one consistent set. Knows nothing of how the switches are obeyed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from random import Random

import msgspec


class ModelList(StrEnum):
    """What GET /v1/models does."""

    NORMAL = "normal"
    EMPTY = "empty"
    #: 404, as from a server that has no such route.
    MISSING = "missing"
    #: 200 with a body that is not JSON.
    UNREADABLE = "unreadable"
    #: Accepted, never answered.
    HANG = "hang"


class Switches(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a worker behaves from now on."""

    #: Milliseconds from admission to the first token.
    ttft_ms: float = 0.0
    #: Milliseconds between two tokens.
    token_ms: float = 0.0
    #: Every delay is drawn evenly from 1 - jitter to 1 + jitter times its value.
    jitter: float = 0.0
    #: Length of an answer whose request sets no shorter limit.
    tokens: int = 16
    #: The engine stands still: requests and streams freeze. /health stays 200.
    hang: bool = False
    #: New requests answer 500 while /health stays 200, as vLLM in a graceful shutdown.
    drain: bool = False
    #: New requests answer 503, as vLLM under --max-num-queued-reqs.
    reject: bool = False
    #: /health answers 503; everything else works.
    unhealthy: bool = False
    #: Every stream is reset after so many tokens.
    reset_after_tokens: int | None = None
    models: ModelList = ModelList.NORMAL

    def changed(self, changes: Mapping[str, object]) -> Switches:
        """These switches with `changes` applied, by name.

        Raises `msgspec.ValidationError` (a ValueError) for an unknown name or a value
        of the wrong type.
        """
        return msgspec.convert({**msgspec.structs.asdict(self), **changes}, Switches)

    def delay(self, milliseconds: float, random: Random) -> float:
        """Seconds to wait for a delay of `milliseconds`, jitter applied."""
        if not self.jitter:
            return milliseconds / 1000
        return milliseconds / 1000 * random.uniform(1 - self.jitter, 1 + self.jitter)
