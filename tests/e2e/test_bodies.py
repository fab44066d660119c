"""Bytes pass as they are: bodies up, answers down, each chunk as it comes.

The worker is raw sockets here, so that what the wire had is what is compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest

from tests.support.http import ask, post
from tests.support.raw_worker import (
    Exchange,
    RawConnection,
    RawWorker,
    body_of,
    like_vllm,
    saying,
)
from tests.support.router_process import RouterProcess

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

JSON_BODIES = {
    "plain": b'{"model":"m","prompt":"hi"}',
    "odd whitespace": b' \r\n\t{ "model"\t:\n"m" ,\r\n "prompt" : "hi" }\n\n ',
    "duplicate keys": b'{"model":"x","model":"y","prompt":"a","model":"m"}',
    "escapes": rb'{"mod\u0065l":"\u006d","prompt":"\ud83d\ude00\u0000\/\"\\"}',
    "raw unicode": '{"model":"m","prompt":"\u00e9\u4e2d\U0001f600"}'.encode(),
    "not unicode": b'{"model":"m","prompt":"\xff\xfe"}',
    "model at the end": b'{"prompt":"' + b"x" * 100_000 + b'","model":"m"}',
    "prompt that looks like JSON": json.dumps(
        {"prompt": '{"model":"nope"},"model":"nope"', "model": "m", "x": {"model": "n"}}
    ).encode(),
    "numbers as written": b'{"model":"m","a":1.0,"b":1E5,"c":-0,"d":9876543210987654}',
    "5 MB": b'{"model":"m","prompt":"' + b"tok " * 1_310_000 + b'"}',
}


class Wire:
    """A raw worker behind a router; what it answers can be changed at any time."""

    def __init__(self) -> None:
        self.answer: Exchange = saying(OK)
        self.worker = RawWorker(like_vllm("m", lambda *asked: self.answer(*asked)))
        self.router = RouterProcess("--worker-urls", self.worker.url)
        self._seen = 0

    @property
    def port(self) -> int:
        return self.router.port

    def taken(self) -> list[bytes]:
        """The requests that the worker got since the last look."""
        requests = self.worker.requests
        new, self._seen = requests[self._seen :], len(requests)
        return new


@pytest.fixture(scope="module")
def running_wire() -> Iterator[Wire]:
    wire = Wire()
    with wire.worker, wire.router:
        wire.router.wait_ready(1)
        yield wire


@pytest.fixture
def wire(running_wire: Wire) -> Wire:
    running_wire.answer = saying(OK)
    running_wire.taken()
    return running_wire


def random_bytes(count: int) -> bytes:
    return Random(5).randbytes(count)


MULTIPART = (
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\n" + random_bytes(300_000) + b"\r\n--xyz\r\n"
    b'Content-Disposition: form-data; name="model"\r\n\r\nm\r\n--xyz--\r\n'
)


def head(path: str, kind: str, framing: str) -> bytes:
    fields = f"Host: router\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n"
    return f"POST {path} HTTP/1.1\r\n{fields}".encode()


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = [
        f"{len(piece):x};ext=1\r\n".encode() + piece + b"\r\n" for piece in pieces
    ]
    return b"".join(framed) + b"0\r\n\r\n"


@pytest.mark.parametrize("body", JSON_BODIES.values(), ids=JSON_BODIES)
def test_a_json_body_arrives_byte_for_byte(wire: Wire, body: bytes) -> None:
    assert ask(wire.port, post("/v1/completions", body)).body == b"ok"
    framed = head("/v1/completions", "application/json", "Transfer-Encoding: chunked")
    assert ask(wire.port, framed, chunked(body, 7001)).body == b"ok"
    assert [body_of(request) == body for request in wire.taken()] == [True, True]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=xyz", MULTIPART),
        ("application/octet-stream", b""),
        ("application/octet-stream", random_bytes(200_000)),
        ("application/x-ndjson", b'{"model":"nope"}\n{"model":"m"}\n'),
        ("text/plain", b'{"model": not json'),
    ],
    ids=["multipart", "empty", "binary", "ndjson", "text"],
)
def test_any_other_body_arrives_byte_for_byte(
    wire: Wire, kind: str, body: bytes
) -> None:
    whole = head("/v1/any", kind, f"Content-Length: {len(body)}")
    assert ask(wire.port, whole, body).body == b"ok"
    framed = head("/v1/any", kind, "Transfer-Encoding: chunked")
    assert ask(wire.port, framed, chunked(body, 4096)).body == b"ok"
    assert [body_of(request) == body for request in wire.taken()] == [True, True]


def test_a_get_without_a_body_passes_with_its_query(wire: Wire) -> None:
    target = b"/v1/responses/resp_1?include=%20a&b=%2F&c"
    got = ask(wire.port, b"GET " + target + b" HTTP/1.1\r\nHost: router\r\n\r\n")
    assert got.status == 200
    (request,) = wire.taken()
    assert request.startswith(b"GET " + target + b" HTTP/1.1\r\n")
    assert body_of(request) == b""


def test_headers_pass_but_those_of_the_hop(wire: Wire) -> None:
    fields = (
        "X-Twice: a\r\nX-Twice: b\r\nX-Odd:  spaced \t\r\nTE: trailers\r\n"
        "Connection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n"
        "Authorization: Bearer k\r\n"
    )
    request = post("/v1/completions", b'{"model":"m"}', fields=fields)
    got = ask(wire.port, request)
    assert got.header(b"x-router-worker") is not None
    assert got.header(b"x-request-id") is not None
    (sent,) = wire.taken()
    lines = sent.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]
    names = [line.partition(b":")[0] for line in lines]
    assert names.count(b"x-twice") == 2
    assert names.count(b"host") == names.count(b"x-request-id") == 1
    assert f"host: 127.0.0.1:{wire.worker.port}".encode() in lines
    assert b"authorization: bearer k" in lines
    assert {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"} <= {*names}
    assert not {b"x-hop", b"keep-alive", b"te"} & {*names}


def test_each_chunk_of_an_answer_goes_out_as_it_came(wire: Wire) -> None:
    events = [f"data: {number}\n\n".encode() for number in range(5)]
    framed = [f"{len(event):x}\r\n".encode() + event + b"\r\n" for event in events]
    start = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    wire.answer = saying(start, *framed, b"0\r\n\r\n", delay=0.05)
    got = ask(wire.port, post("/v1/completions", b'{"model":"m","stream":true}'))
    assert got.body == b"".join(events)
    assert got.chunks == [len(event) for event in events]
    assert got.complete


def test_a_large_answer_passes_whole(wire: Wire) -> None:
    body = random_bytes(8 << 20)
    start = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    wire.answer = saying(start, body)
    assert ask(wire.port, post("/v1/completions", b'{"model":"m"}')).body == body


def test_an_answer_that_ends_with_the_connection_passes_whole(wire: Wire) -> None:
    def end_it(connection: RawConnection, request: bytes) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        connection.send(b"first ", b"second", delay=0.02)
        connection.close()

    wire.answer = end_it
    got = ask(wire.port, post("/v1/completions", b'{"model":"m"}'))
    assert (got.status, got.body, got.complete) == (200, b"first second", True)
