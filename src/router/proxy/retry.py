"""Whether a failed request goes to another worker, and when.

Owns the rules of trying again. Knows nothing of connections or of who the workers
are: it is told what failed and says yes or no.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from router.errors import RouterError
from router.policy import Tried
from router.proxy.upstream import ConnectFailed


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How often and how fast a request is tried again. Times are in seconds."""

    limit: int
    statuses: frozenset[int]
    initial_backoff: float
    max_backoff: float
    multiplier: float
    #: Share of the backoff that is drawn at random, up or down.
    jitter: float


class Retries:
    """One request's attempts so far: made at its first failure."""

    __slots__ = ("_lost", "_made", "_rules", "_server_errors", "delay", "tried")

    def __init__(self, rules: RetryRules, tried: Tried) -> None:
        self._rules = rules
        self._made = 0
        self._lost = 0
        self._server_errors = 0
        #: Slots that are not tried again.
        self.tried = tried
        #: Seconds to wait before the next attempt.
        self.delay = 0.0

    def after_status(self, status: int) -> bool:
        """Whether a worker's answer of this status is a reason to ask another one.

        The one asked next is as good as this one, so it waits: a status is an answer
        of a worker that works. A 500 may be the request's own fault: once only.
        """
        if status not in self._rules.statuses or self._made >= self._rules.limit:
            return False
        if status == 500:
            self._server_errors += 1
            if self._server_errors > 1:
                return False
        spread = self._rules.jitter * random.uniform(-1, 1)
        backoff = self._rules.initial_backoff * self._rules.multiplier**self._made
        self.delay = min(backoff, self._rules.max_backoff) * (1 + spread)
        self._made += 1
        return True

    def after_failure(self, error: RouterError) -> bool:
        """Whether an attempt without an answer is a reason to ask another worker.

        It asks at once. A request that was sent may be what killed the worker, or what
        it cannot answer in HTTP: one other worker gets it, no more.
        """
        if not error.retryable or self._made >= self._rules.limit:
            return False
        if not isinstance(error, ConnectFailed):
            self._lost += 1
            if self._lost > 1:
                return False
        self.delay = 0.0
        self._made += 1
        return True
