"""The router's own answers, as bytes.

Owns how an error becomes an HTTP answer; what an error says is the error's. Knows
nothing of connections.
"""

from __future__ import annotations

from http import HTTPStatus

from router.errors import (
    BadRequest,
    HeadersTooLarge,
    PayloadTooLarge,
    RequestTimeout,
    RouterError,
)

_OF_STATUS: dict[int, type[RouterError]] = {
    400: BadRequest,
    408: RequestTimeout,
    413: PayloadTooLarge,
    431: HeadersTooLarge,
}


def malformed(status: int, what: str) -> RouterError:
    """The error for a client that sent `what`, which is not HTTP as we take it."""
    return _OF_STATUS.get(status, BadRequest)(f"The request has {what}.")


def render(
    error: RouterError, request_id: bytes, *, keep_alive: bool, head_only: bool = False
) -> bytes:
    """A whole answer, head and body.

    `keep_alive`: whether the connection goes on. `head_only`: the request was HEAD.
    """
    body = error.body()
    lines = [
        b"HTTP/1.1 %d %b" % (error.status, HTTPStatus(error.status).phrase.encode()),
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        b"X-Request-Id: " + request_id,
    ]
    if error.retry_after is not None:
        lines.append(b"Retry-After: %d" % error.retry_after)
    if not keep_alive:
        lines.append(b"Connection: close")
    return b"\r\n".join((*lines, b"", b"" if head_only else body))


def event(error: RouterError) -> bytes:
    """The error as the last event of a stream that was cut short."""
    return b"data: %b\n\n" % error.body()
