"""The benchmark of open streams: what its clients take for whole."""

from __future__ import annotations

import asyncio

import pytest
from bench.request.wires import Wire, WireLoop
from bench.streams.clients import REQUEST, Clients, Stream

BODY = b"5\r\ndata\n\r\n0\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nX-Worker: 127.0.0.1:1\r\n\r\n"


def fed(*pieces: bytes) -> Clients:
    """What the clients know after one stream got these pieces and its end."""
    loop = WireLoop()

    async def run() -> Clients:
        clients = Clients(1, 1, {"127.0.0.1:1": BODY})
        wire = Wire(loop, Stream(clients))
        wire.connect()
        assert wire.written() == REQUEST
        for piece in pieces:
            wire.send(piece)
        wire.close()
        await asyncio.sleep(0)
        return clients

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def test_a_stream_is_whole_however_it_is_cut() -> None:
    answer = HEAD + BODY
    for at in range(len(answer)):
        clients = fed(answer[:at], answer[at:])
        assert (clients.begun, clients.whole, clients.broken) == (1, 1, [])


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + BODY[:-1],
        HEAD + BODY.replace(b"data", b"dada"),
        HEAD + BODY + b"x",
        HEAD.replace(b"200", b"503") + BODY,
        HEAD.replace(b".1:1", b".2:1") + BODY,
        b"",
    ],
)
def test_a_stream_that_is_not_the_engines_is_broken(answer: bytes) -> None:
    clients = fed(answer)
    assert (clients.whole, bool(clients.broken)) == (0, True)
