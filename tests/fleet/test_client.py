"""Whole answers, and the connection that a probe keeps for the list behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing

import pytest

from router.fleet import address
from router.fleet.client import Answer, Client, Failure
from router.fleet.worker import Endpoint
from tests.fleet.probing import until

OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """Answers each request on a connection with the next of `answers`, then closes."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self.connections = self.closed = 0
        self.asked: list[bytes] = []

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        for answer in self.answers:
            try:
                self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            except asyncio.IncompleteReadError:
                break
            writer.write(answer)
        writer.close()
        self.closed += 1

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Endpoint]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            yield address.parse(f"http://127.0.0.1:{port}").endpoint


async def read(client: Client, endpoint: Endpoint) -> Answer:
    return await client.get(endpoint, "/v1/models", timeout=20.0, api_key=None)


async def check(client: Client, endpoint: Endpoint) -> Answer:
    return await client.get(
        endpoint, "/health", timeout=20.0, api_key=None, whole=False, keep=True
    )


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 4\r\n\r\nlist",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nl\r\n3\r\nist\r\n0\r\n\r\n",
        OK + b"\r\nlist",
        b"HTTP/1.1 103 X\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nlist",
    ],
)
async def test_a_body_is_read_to_its_end(answer: bytes) -> None:
    with closing(Client()) as client:
        async with Peer(answer).listening() as endpoint:
            assert await read(client, endpoint) == Answer(200, b"list")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (OK + b"Content-Length: 5\r\n\r\nlist", "lost in the middle"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nlist\r\n", "lost in the middle"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nz\r\n", "not HTTP/1.1"),
        (OK + b"Content-Length: 99999999\r\n\r\n", "more than"),
    ],
)
async def test_a_body_that_has_no_end_is_a_failure(answer: bytes, reason: str) -> None:
    with closing(Client()) as client:
        async with Peer(answer).listening() as endpoint:
            answered = await read(client, endpoint)
    assert answered.failure is Failure.BROKEN
    assert reason in (answered.reason or "")


async def test_a_check_and_the_list_behind_it_share_a_connection() -> None:
    peer = Peer(
        OK + b"Content-Length: 2\r\n\r\nok", OK + b"Content-Length: 4\r\n\r\nlist"
    )
    with closing(Client()) as client:
        async with peer.listening() as endpoint:
            assert await check(client, endpoint) == Answer(200)
            assert await read(client, endpoint) == Answer(200, b"list")
    assert peer.connections == 1
    assert [b"Connection: close" in asked for asked in peer.asked] == [False, True]


@pytest.mark.parametrize(
    "wait",
    [lambda peer: None, lambda peer: until(lambda: peer.closed == 1)],
    ids=["meanwhile", "before"],
)
async def test_a_server_that_closes_all_the_same_is_asked_anew(
    wait: Callable[[Peer], Awaitable[None] | None],
) -> None:
    peer = Peer(OK + b"Content-Length: 0\r\n\r\n")
    with closing(Client()) as client:
        async with peer.listening() as endpoint:
            assert await check(client, endpoint) == Answer(200)
            if (waiting := wait(peer)) is not None:
                await waiting
            assert await read(client, endpoint) == Answer(200)
    assert peer.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n",
        OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n",
        OK + b"Content-Length: 0\r\n\r\nmore",
        OK + b"Content-Length: 9\r\n\r\n",
    ],
)
async def test_a_connection_that_may_not_serve_again_is_closed(answer: bytes) -> None:
    peer = Peer(answer, OK)
    with closing(Client()) as client:
        async with peer.listening() as endpoint:
            await check(client, endpoint)
            await until(lambda: peer.closed == 1)


async def test_a_connection_that_nobody_comes_back_for_is_closed() -> None:
    peer = Peer(OK + b"Content-Length: 0\r\n\r\n", OK)
    with closing(Client()) as client:
        async with peer.listening() as endpoint:
            assert (await check(client, endpoint)).good
            await until(lambda: peer.closed == 1)
            assert peer.connections == 1
