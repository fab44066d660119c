"""Requests and answers as bytes, for tests of the wire."""

from __future__ import annotations

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /hold HTTP/1.1\r\nHost: r\r\n\r\n"

HEAD = b"HTTP/1.1 200 OK\r\n"
#: What follows the head's own lines, for a body in chunks with an extension.
CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n"
EVENTS = HEAD + b"Content-Type: text/event-stream; charset=utf-8\r\n"


def post(
    body: bytes, target: str = "/hold", fields: str = "", version: int = 1
) -> bytes:
    """A request whose body has a length."""
    head = (
        f"POST {target} HTTP/1.{version}\r\nHost: r\r\nContent-Length: {len(body)}\r\n"
    )
    return f"{head}{fields}\r\n".encode() + body


def chunked(*pieces: bytes, target: str = "/hold", end: bytes = b"0\r\n\r\n") -> bytes:
    """A request whose body comes in these chunks."""
    head = f"POST {target} HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return b"".join([head.encode(), *chunks, end])


def body_of(request: bytes) -> bytes:
    return request.split(b"\r\n\r\n", 1)[1]


def old(request: bytes) -> bytes:
    """The same request of a client of HTTP/1.0."""
    return request.replace(b"HTTP/1.1", b"HTTP/1.0")


def unchunked(data: bytes) -> bytes:
    body = b""
    while True:
        line, _, data = data.partition(b"\r\n")
        size = int(line, 16)
        if size == 0:
            assert data == b"\r\n"
            return body
        body += data[:size]
        assert data[size : size + 2] == b"\r\n"
        data = data[size + 2 :]
