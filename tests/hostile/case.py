"""What a hostile request is, what is expected of it, and short ways to write both.

Owns the words of the corpus. Knows nothing of sockets.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A request that a smuggler would like to be one.
POISON = b"GET /poison HTTP/1.1\r\nHost: r\r\n\r\n"
#: A request that nobody minds, behind one that is hostile.
NEXT = b"GET /next HTTP/1.1\r\nHost: r\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as a worker may see it; `body` once its coding is undone."""

    target: bytes
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Case:
    """Bytes of a client, the statuses it gets, in order, and what a worker sees.

    `lives`: whether another request can be sent over the connection afterwards.
    """

    name: str
    data: bytes
    statuses: tuple[int, ...]
    lives: bool
    seen: tuple[Seen, ...] = ()


def refused(name: str, data: bytes, status: int = 400) -> Case:
    """Answered with an error; the connection ends and no worker hears of it."""
    return Case(name, data, (status,), lives=False)


def served(name: str, data: bytes, *seen: Seen, lives: bool = True) -> Case:
    """Taken for what it is: these requests and no others (default: /x, no body)."""
    seen = seen or (Seen(b"/x"),)
    return Case(name, data, (200,) * len(seen), lives, seen)


def then_refused(name: str, data: bytes, *seen: Seen, status: int = 400) -> Case:
    """These requests are served, what stands behind them is not."""
    return Case(name, data, (*(200,) * len(seen), status), lives=False, seen=seen)


def start(line: bytes, *lines: bytes) -> bytes:
    """A head of this first line, Host and further lines."""
    return b"\r\n".join((line, b"Host: r", *lines, b"", b""))


def get(*lines: bytes) -> bytes:
    """GET /x with these lines behind its Host."""
    return start(b"GET /x HTTP/1.1", *lines)


def post(*lines: bytes, body: bytes = b"") -> bytes:
    """POST /x with these lines behind its Host, and bytes behind its head."""
    return start(b"POST /x HTTP/1.1", *lines) + body


def chunked(body: bytes, *lines: bytes) -> bytes:
    """POST /x whose body is said to be in chunks; `body` stands there as it is."""
    return post(b"Transfer-Encoding: chunked", *lines, body=body)


def sized(length: bytes, body: bytes = b"hello") -> bytes:
    """POST /x with this as its Content-Length."""
    return post(b"Content-Length: " + length, body=body)


def coded(coding: bytes, body: bytes = b"5\r\nhello\r\n0\r\n\r\n") -> bytes:
    """POST /x with this as its Transfer-Encoding."""
    return post(b"Transfer-Encoding: " + coding, body=body)
