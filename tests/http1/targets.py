"""What a fuzzer feeds: any bytes to the wire code, beside other parsers.

Each target takes bytes and raises AssertionError, or whatever else went wrong inside.
What ours takes, h11 and llhttp must take and frame alike, or refuse for one of the
reasons in `test_parsers_agree`; what ours refuses needs none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import h11
import httptools

from router.http1.buffer import Buffer
from router.http1.connection import Budget, Ticker
from router.http1.downstream import Downstream
from router.http1.errors import ClientGone, ProtocolError
from router.http1.framing import Framing
from router.http1.request import Request
from router.http1.scan import members
from tests.http1 import parsers
from tests.http1.messages import GET
from tests.http1.parsers import path_of
from tests.http1.test_any_bytes import Ends
from tests.http1.test_parsers_agree import (
    H11_CLOSES,
    H11_REFUSES_ANSWERS,
    LLHTTP_CLOSES,
    LLHTTP_REFUSES,
    agree,
)
from tests.proxy.requests import Wire as Transport


def one(data: bytes) -> None:
    """Feeds one target; the first byte says which."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def pieces(data: bytes) -> list[bytes]:
    """The data behind its first byte, which says in pieces of which size."""
    size = data[0] + 1 if data else 1
    return [data[at : at + size] for at in range(1, len(data), size)]


# --- heads --------------------------------------------------------------------------


def request_head(data: bytes) -> None:
    """One head of a request, up to its blank line."""
    raw = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    agree(raw, parsers.llhttp, refuses=LLHTTP_REFUSES, closes=LLHTTP_CLOSES)
    agree(raw, parsers.h11_, closes=H11_CLOSES)


def answer_head(data: bytes) -> None:
    """One head of an answer."""
    raw = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    agree(raw, parsers.llhttp, answer=True, closes=LLHTTP_CLOSES)
    agree(
        raw,
        parsers.h11_,
        answer=True,
        refuses=H11_REFUSES_ANSWERS,
        closes=H11_CLOSES,
    )


# --- streams ------------------------------------------------------------------------


class Message(NamedTuple):
    """One request as a parser sees it."""

    method: bytes
    target: bytes
    body: bytes


class Stream(NamedTuple):
    """What a parser makes of a stream: whole requests, and whether it wants more."""

    requests: list[Message]
    waits: bool


def requests(data: bytes) -> None:
    """A client's stream: the same requests for all, as far as all go."""
    parts = pieces(data)
    stream = b"".join(parts)
    ours = our_requests(parts)
    assert ours == our_requests([stream])
    for other in (h11_requests(stream), llhttp_requests(stream)):
        both = min(len(ours.requests), len(other.requests))
        assert ours.requests[:both] == other.requests[:both]
        if len(ours.requests) > both:
            assert not other.waits
        elif len(other.requests) > both:
            assert not ours.waits


def our_requests(parts: list[bytes]) -> Stream:
    """As the client's end reads it; each request is answered at once."""
    found: list[Message] = []

    async def serve(request: Request) -> None:
        try:
            await request.read()
        except (ProtocolError, ClientGone):
            request.respond(b"no")
            return
        assert request.body is not None
        head = request.head
        found.append(Message(head.method, head.target, request.body))
        request.respond(b"yes")

    client = Downstream(
        serve,
        lambda peer, status, what: b"refused",
        Ticker(),
        Budget(1 << 30),
        head_timeout=1,
        idle_timeout=1,
        write_timeout=1,
        max_body=1 << 62,
    )
    client.connection_made(Transport())
    for part in parts:
        client.data_received(part)
    waits = not client.closed
    client.connection_lost(None)
    assert not client.busy
    return Stream(found, waits)


def h11_requests(stream: bytes) -> Stream:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 24)
    connection.receive_data(stream)
    found: list[Message] = []
    head, body = None, b""
    with suppress(h11.RemoteProtocolError):
        while (event := connection.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                target = path_of(bytes(head.target))
                found.append(Message(bytes(head.method), target, body))
                connection.send(h11.Response(status_code=404, headers=[]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return Stream(found, waits=False)
                connection.start_next_cycle()
            else:
                return Stream(found, waits=False)
        return Stream(found, waits=True)
    return Stream(found, waits=False)


class _Heard:
    """The callbacks of httptools, for many messages."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.found: list[Message] = []
        self.url = self.body = b""

    def on_message_begin(self) -> None:
        self.url = self.body = b""

    def on_url(self, data: bytes) -> None:
        self.url += data

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        target = path_of(self.url)
        self.found.append(Message(self.parser.get_method(), target, self.body))


def llhttp_requests(stream: bytes) -> Stream:
    heard = _Heard()
    try:
        heard.parser.feed_data(stream)
    except httptools.HttpParserUpgrade:
        # It reads no body of a request that would change the protocol.
        return Stream(heard.found[:-1], waits=False)
    except httptools.HttpParserError:
        return Stream(heard.found, waits=False)
    return Stream(heard.found, waits=True)


def chunks(data: bytes) -> None:
    """A body in chunks: what is inside, and where it ends."""
    head = b"POST / HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
    requests(data[:1] + head + data[1:])
    framing, payload = Framing(chunked=True), Buffer()
    with suppress(ProtocolError):
        for piece in pieces(data):
            if not framing.done:
                assert framing.consume(piece, payload) <= len(piece)


# --- both ends, bodies ----------------------------------------------------------------


def answers(data: bytes) -> None:
    """A worker's bytes, as an answer to a request that waits for one."""
    ends = Ends()
    ends.client.data_received(GET if len(data) % 2 else GET.replace(b"GET", b"HEAD"))
    (worker,) = ends.workers
    for piece in pieces(data):
        if not worker.closed:
            worker.data_received(piece)
    ends.over()


def clients(data: bytes) -> None:
    """A client's bytes, with limits that are soon reached and workers that answer."""
    ends = Ends()
    for piece in pieces(data):
        ends.client.data_received(piece)
        if ends.workers and not ends.workers[-1].closed:
            ends.workers[-1].data_received(
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            )
    ends.over()


def json_members(data: bytes) -> None:
    """Where the model stands in a body that is JSON, beside the standard library."""
    try:
        (place,) = members(data, (b"model",))
    except ValueError:
        return
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    assert isinstance(value, dict)
    assert (place is None) == ("model" not in value)
    if place is not None:
        with suppress(ValueError):
            assert repr(json.loads(data[place[0] : place[1]])) == repr(value["model"])


TARGETS: tuple[Callable[[bytes], None], ...] = (
    request_head,
    answer_head,
    requests,
    chunks,
    answers,
    clients,
    json_members,
)
