"""One request on its way: what is known of it, and its head as it goes on.

Owns the value that an exchange fills and that is accounted for in the end. Knows
neither workers' connections nor how one is chosen.
"""

from __future__ import annotations

from router.fleet.worker import Worker
from router.http1.request import Request
from router.proxy.retry import Retries
from router.proxy.route import Wish

#: The wish of a request that was not read.
_NOTHING_YET = Wish()


class Call:
    """What is known of one request while it lives; then it is accounted for."""

    __slots__ = (
        "attempts",
        "began",
        "deadline",
        "error",
        "id",
        "request",
        "retries",
        "status",
        "wish",
        "worker",
    )

    def __init__(self, request: Request, id: bytes, began: float) -> None:
        self.request = request
        self.id = id
        #: Monotonic seconds.
        self.began = began
        #: Until when an answer must have begun, all attempts together; 0: for ever.
        self.deadline = 0.0
        self.wish = _NOTHING_YET
        #: The answer's status; 0: none went out.
        self.status = 0
        self.worker: Worker | None = None
        #: How often a worker was asked, whatever came of it.
        self.attempts = 0
        self.retries: Retries | None = None
        self.error: str | None = None


def forwarded_head(
    request: Request,
    body: bytes | None,
    lines: bytes,
    drop: int = 0,
    target: bytes | None = None,
) -> bytes:
    """The request's head as it goes on, with `lines` in it and `drop` left out.

    `body` is what is sent with it; None: it streams, framed as the client did.
    `target`: instead of the client's.
    """
    head = request.head
    if body is None:
        length, chunked = head.content_length, head.chunked
    else:
        length, chunked = (len(body) if request.has_body else -1), False
    return head.render(
        lines,
        target=target,
        length=length,
        chunked=chunked,
        drop=drop,
        forwarded_for=request.client.forwarded_for,
        upgrade=head.upgrade,
    )
