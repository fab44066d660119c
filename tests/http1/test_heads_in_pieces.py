"""A head means the same however it is cut on its way through the client's end."""

from __future__ import annotations

import pytest

from router.http1.connection import Budget, Ticker
from router.http1.downstream import Downstream
from router.http1.errors import ProtocolError
from router.http1.head import parse_request
from router.http1.request import Request
from tests.http1.test_heads import CHUNKED, START_LINES, get
from tests.proxy.requests import Wire as Transport

TAKEN = [
    *(get(start=start) for start, *_ in START_LINES),
    get(b"A:b", b"", start=b"POST / HTTP/1.1")[:-2],
    get(b"X: \x80\xff", b"Empty:", b"A: b", b"A: c"),
    get(b"Connection: close"),
    b"GET / HTTP/1.0\r\n\r\n",
    b"\r\n" + get(b"A: b"),
]
PERSISTENT = [raw for raw in TAKEN if b"close" not in raw and b"1.0" not in raw]
REFUSED = {
    get(start=b"GET /"): 400,
    get(start=b"GET / HTTP/1.2"): 400,
    get(start=b"GET /\xff HTTP/1.1"): 400,
    get(start=b"CONNECT h:1 HTTP/1.1"): 400,
    get(start=b""): 400,
    get(b"A : b"): 400,
    get(b"A: b\x00"): 400,
    get(b"A: b\rc"): 400,
    get(b"A: b\r\n c"): 400,
    get(b"A: b\nc: d"): 400,
    get(b"Host: r"): 400,
    get(host=b"a,b"): 400,
    b"GET / HTTP/1.1\r\n\r\n": 400,
    b"GET / HTTP/1.1\nHost: r\n\n": 400,
    b"\r\n\r\n" + get(): 400,
    b"\n" + get(): 400,
    get(b"Content-Length: 1, 1"): 400,
    get(b"Content-Length: 1", CHUNKED): 400,
    get(b"Content-Length: 1001"): 413,
    get(*[b"A: b"] * 256): 431,
}


def outcomes(*pieces: bytes) -> list[object]:
    """What the client's end makes of these pieces: requests, or a refusal's status."""
    found: list[object] = []

    async def serve(request: Request) -> None:
        head = request.head
        found.append((head.method, head.target, head.minor, head.pairs()))
        request.respond(b"")

    def refuse(peer: str, status: int, what: str) -> bytes:
        found.append(status)
        return b""

    client = Downstream(
        serve,
        refuse,
        Ticker(),
        Budget(1 << 20),
        head_timeout=1,
        idle_timeout=1,
        write_timeout=1,
        max_body=1000,
    )
    client.connection_made(Transport())
    for piece in pieces:
        client.data_received(piece)
    return found


def everywhere(raw: bytes) -> list[list[bytes]]:
    """Byte by byte, and cut in two at every position."""
    single = [raw[at : at + 1] for at in range(len(raw))]
    return [single] + [[raw[:at], raw[at:]] for at in range(1, len(raw))]


@pytest.mark.parametrize("raw", TAKEN)
def test_a_head_is_the_same_wherever_it_is_cut(raw: bytes) -> None:
    head = parse_request(raw.removeprefix(b"\r\n"))
    expected = [(head.method, head.target, head.minor, head.pairs())]
    assert outcomes(raw) == expected
    for pieces in everywhere(raw):
        assert outcomes(*pieces) == expected


@pytest.mark.parametrize("raw", PERSISTENT)
def test_heads_that_follow_one_another_are_told_apart_wherever_they_are_cut(
    raw: bytes,
) -> None:
    stream = raw + get(start=b"GET /next HTTP/1.1") + raw
    whole = outcomes(stream)
    assert len(whole) == 3
    for pieces in everywhere(stream):
        assert outcomes(*pieces) == whole


@pytest.mark.parametrize("raw", REFUSED)
def test_a_head_is_refused_wherever_it_is_cut(raw: bytes) -> None:
    assert outcomes(raw) == [REFUSED[raw]]
    for pieces in everywhere(raw) if len(raw) < 200 else []:
        assert outcomes(*pieces) == [REFUSED[raw]]


@pytest.mark.parametrize("raw", [raw for raw in REFUSED if not raw.startswith(b"\r")])
def test_what_follows_a_refusal_is_never_a_request(raw: bytes) -> None:
    assert outcomes(raw + get()) == [REFUSED[raw]]
    assert outcomes(raw, get()) == [REFUSED[raw]]


def test_the_tables_agree_with_the_parser() -> None:
    for raw in REFUSED:
        if raw.endswith(b"\r\n\r\n") and b"1001" not in raw:
            with pytest.raises(ProtocolError):
                parse_request(raw)
