"""Clients that hold streams open and compare each byte with what the engine sent.

Owns the clients' end of the streams. It knows HTTP as far as the heads of answers, and
that the router passes a chunked body on as it is.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import cast

from bench.rig.http import CHAT, chat

_BODY = json.dumps(chat(stream=True)).encode()
REQUEST = (
    f"POST {CHAT} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_BODY)}\r\n\r\n"
).encode() + _BODY
_END = b"0\r\n\r\n"
#: Connections that are opened at once, and the seconds until the next ones.
_BATCH, _PAUSE = 100, 0.02


class Clients:
    """`count` streams of a router at a port of this machine.

    `expected`: what each engine, named as in X-Worker, sends as a stream's body.
    """

    def __init__(self, port: int, count: int, expected: Mapping[str, bytes]) -> None:
        self._port = port
        self._count = count
        self.expected = expected
        #: Streams that have begun, that came whole, that did not.
        self.begun = self.whole = 0
        self.broken: list[str] = []
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Returns once all have begun. Raises RuntimeError where one is broken."""
        loop = asyncio.get_running_loop()
        for first in range(0, self._count, _BATCH):
            batch = range(first, min(first + _BATCH, self._count))
            await asyncio.gather(
                *(
                    loop.create_connection(
                        lambda: Stream(self), "127.0.0.1", self._port
                    )
                    for _ in batch
                )
            )
            await asyncio.sleep(_PAUSE)
        await self._until(lambda: self.begun == self._count)

    async def ended(self) -> None:
        """Returns once all are whole. Raises RuntimeError where one is broken."""
        await self._until(lambda: self.whole == self._count)

    def changed(self) -> None:
        """A stream has begun, ended or broken."""
        self._changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            if self.broken:
                raise RuntimeError(f"{len(self.broken)} streams: {self.broken[0]}")
            self._changed.clear()
            await self._changed.wait()


class Stream(asyncio.Protocol):
    """One stream."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._head = b""
        self._expected: bytes | None = None
        self._got = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        """Compares what came with what must come."""
        if self._expected is None:
            data = self._read_head(data)
        expected = self._expected
        if expected is None or not data:
            return
        if not expected.startswith(data, self._got):
            self._break(f"other bytes than the engine's after {self._got}")
            return
        self._got += len(data)
        if self._got == len(expected):
            self._clients.whole += 1
            self._clients.changed()
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Early, if it was not whole."""
        if self._expected is None or self._got != len(self._expected):
            self._break(f"cut after {self._got} bytes: {error}")

    def _read_head(self, data: bytes) -> bytes:
        """What of `data` is after the head, once that is there."""
        self._head += data
        head, end, body = self._head.partition(b"\r\n\r\n")
        if not end:
            return b""
        status, fields = _head(head)
        self._expected = self._clients.expected.get(fields.get("x-worker", ""))
        if status != 200 or self._expected is None:
            self._break(head.decode("latin-1"))
            return b""
        self._clients.begun += 1
        self._clients.changed()
        return body

    def _break(self, why: str) -> None:
        self._clients.broken.append(why)
        self._clients.changed()
        self._transport.abort()


def streamed(address: str) -> bytes:
    """The body, in its chunks, that the engine at HOST:PORT answers with."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(REQUEST)
        answer = b""
        while not answer.endswith(_END):
            piece = connection.recv(1 << 20)
            if not piece:
                raise OSError(f"{address} closed in the middle of a stream")
            answer += piece
    return answer.partition(b"\r\n\r\n")[2]


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    fields = {name.lower(): value.strip() for name, _, value in pairs}
    return int(first.split()[1]), fields
