"""What is asked and answered behind the faults, so that any wrong byte is seen.

A target says what the answer is to be: /<framing>/<size>/<token>. The answer's body is
made of the token, and so is the body of the request, to which the worker holds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.proxy.messages import LAST, STREAM, answer_of, chunk, ok
from tests.support.raw_worker import RawConnection, body_of

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
FRAMINGS = ("length", "chunks", "events", "close")
UPLOADS = ("none", "held", "length", "chunks")
#: The worker did not get what was sent to it.
WRONG = 418
MODELS = b'{"object":"list","data":[{"id":"m","object":"model","root":"m"}]}'

_START = re.compile(rb"(GET|POST) /(\w+)/(\d+)/([^/ ]+)/(\d+) HTTP/1\.1\r\n")


def made_of(token: bytes, size: int) -> bytes:
    """`size` bytes that nobody takes for those of another token."""
    return (token * (size // len(token) + 1))[:size]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. Sizes in bytes. `leaves`: the client does not read the answer."""

    framing: str
    size: int
    upload: str
    upload_size: int
    leaves: bool = False

    def request(self, token: bytes) -> bytes:
        """The whole of it."""
        method = "GET" if self.upload == "none" else "POST"
        target = f"/{self.framing}/{self.size}/{token.decode()}/{self.upload_size}"
        head = f"{method} {target} HTTP/1.1\r\nHost: r\r\n".encode()
        body = made_of(token, self.upload_size)
        match self.upload:
            case "none":
                return head + b"\r\n"
            case "chunks":
                pieces = [body[at : at + 5000] for at in range(0, len(body), 5000)]
                return head + CHUNKED + b"\r\n" + b"".join(map(chunk, pieces)) + LAST
            case "held":
                body = b'{"model":"m","x":"%b"}' % body
                head += b"Content-Type: application/json\r\n"
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def answer(self, token: bytes) -> bytes:
        """The body that belongs to it."""
        return _body(self.framing, self.size, token)


def _body(framing: str, size: int, token: bytes) -> bytes:
    if framing == "events":
        return b"data: %b\n\n" % token * (size // 100)
    return made_of(token, size)


def serve(connection: RawConnection) -> None:
    """The script of the worker."""
    while True:
        try:
            request = connection.read_request()
        except ValueError:  # a length that is none
            return
        if request.startswith(b"GET /health "):
            connection.send(ok(b""))
        elif request.startswith(b"GET /v1/models "):
            connection.send(ok(MODELS))
        elif connection.ended or not request:
            return
        elif answer := _answer(request):
            connection.send(*answer)
            if b"Content-Length" not in answer[0] and CHUNKED not in answer[0]:
                return
        else:
            connection.send(answer_of(WRONG))
            return


def _answer(request: bytes) -> tuple[bytes, ...]:
    """The answer in pieces; nothing if the request is not as it was sent."""
    match = _START.match(request)
    if match is None or match[2].decode() not in FRAMINGS:
        return ()
    framing, size, token = match[2].decode(), int(match[3]), match[4]
    sent = body_of(request).removeprefix(b'{"model":"m","x":"').removesuffix(b'"}')
    expected = made_of(token, int(match[5])) if match[1] == b"POST" else b""
    if sent != expected or size > 1 << 20:
        return ()
    body = _body(framing, size, token)
    match framing:
        case "length":
            return (HEAD + b"Content-Length: %d\r\n\r\n" % size + body,)
        case "chunks":
            pieces = [body[at : at + 3000] for at in range(0, size, 3000)]
            return (HEAD + CHUNKED + b"\r\n", *map(chunk, pieces), LAST)
        case "events":
            count = body.count(b"\n\n")
            return (STREAM, *[chunk(b"data: %b\n\n" % token)] * count, LAST)
        case _:
            return (HEAD + b"\r\n" + body,)
