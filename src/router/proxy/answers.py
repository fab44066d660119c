"""The router's own answers, as bytes.

Owns how an error becomes an HTTP answer; what an error says is the error's. Knows
nothing of connections.
"""

from __future__ import annotations

from http import HTTPStatus

from router.errors import (
    BadRequest,
    HeadersTooLarge,
    Overloaded,
    PayloadTooLarge,
    RequestTimeout,
    RouterError,
    TargetTooLong,
    Unauthorized,
)
from router.http1.errors import BodyOverBudget, BodyTimeout, ProtocolError
from router.http1.request import Request

_OF_STATUS: dict[int, type[RouterError]] = {
    400: BadRequest,
    408: RequestTimeout,
    413: PayloadTooLarge,
    414: TargetTooLong,
    431: HeadersTooLarge,
}


def malformed(status: int, what: str) -> RouterError:
    """The error for a client that sent `what`, which is not HTTP as we take it."""
    return _OF_STATUS.get(status, BadRequest)(f"The request has {what}.")


#: Why the rest of a request's body will not come.
BODY_FAILURES = (ProtocolError, BodyOverBudget, BodyTimeout)


def of_body(failure: ProtocolError | BodyOverBudget | BodyTimeout) -> RouterError:
    """The error for a client whose body failed."""
    match failure:
        case BodyOverBudget():
            return Overloaded(
                "The router holds as many bytes of requests as it may. Try again soon."
            )
        case BodyTimeout():
            return RequestTimeout("The request's body was not whole in time.")
        case ProtocolError():
            return malformed(failure.status, failure.message)


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
    if isinstance(error, Unauthorized):
        lines.append(b"WWW-Authenticate: Bearer")
    if not keep_alive:
        lines.append(b"Connection: close")
    return b"\r\n".join((*lines, b"", b"" if head_only else body))


def give(request: Request, error: RouterError) -> None:
    """Answers a request with an error of the router's own."""
    request.respond(
        render(
            error,
            request.id,
            keep_alive=request.keep_alive,
            head_only=request.head.method == b"HEAD",
        )
    )


def event(error: RouterError) -> bytes:
    """The error as the last event of a stream that was cut short."""
    return b"data: %b\n\n" % error.body()
