"""Whatever bytes come in whatever pieces, both ends stay in order.

Nothing raises, no request is left, and every byte of the body budget is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from hypothesis import example, given
from hypothesis import strategies as st

from router.http1.connection import Budget, Ticker
from router.http1.downstream import Downstream
from router.http1.errors import (
    BodyOverBudget,
    ClientGone,
    ProtocolError,
    UpstreamLost,
)
from router.http1.request import Request
from router.http1.upstream import Upstream
from tests.http1.messages import CHUNKS, GET, HEAD, OK, chunked, old, post
from tests.proxy.requests import Wire as Transport

Serve = Callable[[Request], Coroutine[None, None, None]]

GARBAGE = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b" ",
    b"0",
    b"\x00",
    b"\xff",
    b"5\r\n",
    b"HTTP/1.1 ",
]
REQUESTS = [
    GET,
    old(GET),
    post(b"12345"),
    post(b"x" * 40, "/stream"),
    post(b"", fields="Expect: 100-continue\r\n"),
    chunked(b"ab", b"c" * 30),
    chunked(b"ab", target="/stream"),
    GET.replace(b"GET", b"HEAD"),
    GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
]
ANSWERS = [
    OK,
    HEAD + CHUNKS + b"\r\n",
    HEAD + b"\r\nto the end",
    b"HTTP/1.1 100 C\r\n\r\n",
    b"HTTP/1.1 204 N\r\n\r\n",
    b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n",
]


def streams(parts: list[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Pieces of a stream of whole messages, parts of them and garbage."""
    part = st.one_of(
        st.sampled_from(parts),
        st.builds(
            lambda p, a, b: p[a:b], st.sampled_from(parts), *[st.integers(0, 99)] * 2
        ),
        st.sampled_from(GARBAGE),
        st.binary(max_size=9),
    )
    return st.builds(_cut, st.lists(part, max_size=8), st.integers(1, 60))


def _cut(parts: list[bytes], size: int) -> list[bytes]:
    data = b"".join(parts)
    return [data[at : at + size] for at in range(0, len(data), size)]


class Ends:
    """A client's end, and a worker's end for each of its requests."""

    def __init__(self, serve: Serve | None = None) -> None:
        self.budget = Budget(100)
        self.ticker = Ticker()
        self.workers: list[Upstream] = []
        self.client = Downstream(
            serve or self.serve,
            lambda peer, status, what: b"refused",
            self.ticker,
            self.budget,
            head_timeout=1,
            idle_timeout=1,
            write_timeout=1,
            max_body=60,
        )
        self.client.connection_made(Transport())

    async def serve(self, request: Request) -> None:
        try:
            if request.head.target == b"/hold":
                await request.read()
            await self.ask(request)
        except (BodyOverBudget, ProtocolError, UpstreamLost):
            if not request.answered:
                request.respond(b"failed")
        except ClientGone:
            pass

    async def ask(self, request: Request) -> None:
        worker = Upstream(self.ticker)
        worker.connection_made(Transport())
        self.workers.append(worker)
        try:
            worker.send(request, b"", request.body)
            await worker.answered()
            worker.relay(b"")
            await worker.finished()
            if worker.failure is not None:
                worker.end_with(b"cut")
        finally:
            worker.abort()

    def over(self) -> None:
        """Everybody leaves; nothing is left."""
        self.client.connection_lost(None)
        for worker in self.workers:
            worker.connection_lost(None)
        assert not self.client.busy
        assert self.budget.held == 0
        assert len(self.ticker) == 0


@given(streams(REQUESTS), st.booleans())
def test_any_bytes_of_a_client(pieces: list[bytes], answered: bool) -> None:
    ends = Ends()
    for piece in pieces:
        ends.client.data_received(piece)
        if answered and ends.workers and not ends.workers[-1].closed:
            ends.workers[-1].data_received(OK)
    ends.over()


def test_a_connection_that_ended_before_it_was_used_tells_when_it_is_used() -> None:
    heard: list[bool] = []

    async def serve(request: Request) -> None:
        worker = Upstream(Ticker())
        worker.connection_made(Transport())
        worker.eof_received()
        worker.connection_lost(None)
        try:
            worker.send(request, b"", request.body)
            await worker.answered()
        except UpstreamLost as lost:
            heard.append(lost.silent)
        request.respond(b"failed")

    ends = Ends(serve)
    ends.client.data_received(GET)
    assert heard == [True]
    ends.over()


@given(
    streams(ANSWERS), st.sampled_from(REQUESTS), st.sampled_from(["eof", "reset", ""])
)
@example([HEAD + b"\r\nx"], GET, "eof")
def test_any_bytes_of_a_worker(pieces: list[bytes], request: bytes, end: str) -> None:
    ends = Ends()
    ends.client.data_received(request)
    for piece in pieces:
        if ends.workers and not ends.workers[0].closed:
            ends.workers[0].data_received(piece)
    if end and ends.workers and not ends.workers[0].closed:
        ends.workers[0].eof_received()
        ends.workers[0].connection_lost(OSError() if end == "reset" else None)
    ends.over()
