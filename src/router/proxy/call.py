"""One request on its way: what is known of it.

Owns the value that an exchange fills and that is accounted for in the end. Knows
neither how a worker is chosen nor how anything is sent.
"""

from __future__ import annotations

from router.errors import RouterError
from router.fleet.worker import Worker
from router.http1.request import Request
from router.http1.upstream import Upstream
from router.proxy import answers
from router.proxy.retry import Retries
from router.proxy.wish import Wish

#: The wish of a request that was not read.
_NOTHING_YET = Wish()


class Call:
    """What is known of one request while it lives; then it is accounted for."""

    def __init__(self, request: Request) -> None:
        self.request = request
        #: Until when an answer must have begun, all attempts together, in monotonic
        #: seconds; 0: for ever.
        self.deadline = 0.0
        self.wish = _NOTHING_YET
        #: The answer's status; 0: none went out.
        self.status = 0
        #: Who was asked last, and the connection as long as it is asked.
        self.worker: Worker | None = None
        self.upstream: Upstream | None = None
        #: How often a worker was asked, whatever came of it.
        self.attempts = 0
        #: Made at its first failure.
        self.retries: Retries | None = None

    def answer(self, error: RouterError) -> None:
        """Answers with an error of the router's own, if nothing went out yet."""
        if not self.request.answered:
            self.status = error.status
            answers.give(self.request, error)
