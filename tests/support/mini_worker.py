"""The least of a worker that probes and model reads need, on a real socket.

Answers /health and /v1/models as it is told to and writes down what it was asked. Every
connection serves one request and is closed.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from contextlib import suppress
from types import TracebackType


class MiniWorker:
    """A server whose every behaviour can be changed while it runs.

    `models`: ids of its list; a number: that status instead; bytes: that body.
    `health`: status of /health. `hang`: paths that are taken and never answered.
    """

    def __init__(self, *models: str, up: bool = True) -> None:
        """`up`: it listens as soon as its context is entered."""
        self.models: list[str] | int | bytes = list(models)
        self.health = 200
        self.hang: set[str] = set()
        #: Sent piece by piece instead of any answer.
        self.raw: list[bytes] | None = None
        self.asked: Counter[str] = Counter()
        #: Of each path, how many requests are in hand.
        self.running: Counter[str] = Counter()
        #: Lower-case names; the last head of each path.
        self.headers: dict[str, dict[str, str]] = {}
        self.port = 0
        self._up = up
        # Bound and not listening: connections are refused, and nobody takes the port.
        self._reserved: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens; until now connections were refused."""
        self._server = await asyncio.start_server(self._connected, sock=self._reserved)
        self._reserved = None

    async def stop(self) -> None:
        """Like a process that dies: refused from now on, open connections cut."""
        await self._close()
        self._reserve()

    async def __aenter__(self) -> MiniWorker:
        self._reserve()
        if self._up:
            await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    def _reserve(self) -> None:
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", self.port))
        self.port = self._reserved.getsockname()[1]

    async def _close(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection, writer in list(self._connections.items()):
            writer.transport.abort()
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._server is None:  # accepted before it was closed
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                await self._answer(reader, writer)
            finally:
                writer.close()
            await writer.wait_closed()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *fields = asked.strip().split("\r\n")
        path = first.split()[1]
        self.asked[path] += 1
        self.headers[path] = {
            name.lower(): value for name, value in (f.split(": ", 1) for f in fields)
        }
        self.running[path] += 1
        try:
            while path in self.hang:
                if await _gone(reader):
                    return
            status, body = self._reply(path)
        finally:
            self.running[path] -= 1
        head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nLocation: /\r\n\r\n"
        answer = [head % (status, len(body)), body] if self.raw is None else self.raw
        for piece in answer:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    def _reply(self, path: str) -> tuple[int, bytes]:
        if path == "/health":
            return self.health, b""
        if path != "/v1/models":
            return 404, b""
        if isinstance(self.models, int):
            return self.models, b""
        if isinstance(self.models, bytes):
            return 200, self.models
        entries = [{"id": name, "object": "model"} for name in self.models]
        return 200, json.dumps({"object": "list", "data": entries}).encode()


async def _gone(reader: asyncio.StreamReader) -> bool:
    """Whether the client hangs up; looks for a moment."""
    try:
        async with asyncio.timeout(0.02):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
