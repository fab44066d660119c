"""Clients that know which process serves them, and what is there of a router."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from router.simulate import SimulatedFleet
from tests.support.router_process import RouterProcess, serving

LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere there is one process only"
)
QUICK = ("--health-check-interval-secs", "0.2")


def children(pid: int) -> list[int]:
    """Pids of the processes that this one started and that live."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    """Whether there is such a process, and not only its exit code."""
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    return False


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _inode(server_port: int, client_port: int) -> str | None:
    """Of the server's end of a connection on loopback."""
    ends = [f"0100007F:{server_port:04X}", f"0100007F:{client_port:04X}"]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == ends:
            return fields[9]
    return None


def _holds(pid: int, inode: str) -> bool:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(entry) == f"socket:[{inode}]":
                return True
    return False


class Client:
    """One connection that is kept."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        router: RouterProcess,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.router = router
        #: Pid of the process that serves it.
        self.process = 0

    @classmethod
    async def open(cls, router: RouterProcess) -> Self:
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
        client = cls(reader, writer, router)
        assert (await client.ask("GET", "/liveness"))[0] == 200
        own = writer.get_extra_info("sockname")[1]
        inode = _inode(router.port, own)
        assert inode is not None
        (client.process,) = [p for p in children(router.pid) if _holds(p, inode)]
        return client

    def send(self, method: str, path: str, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if data else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: router\r\n{kind}"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self.writer.write(head.encode() + data)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and header fields of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head[:-4].split("\r\n")
        fields = (line.partition(":") for line in lines)
        return int(status.split()[1]), {
            name.lower(): value.strip() for name, _, value in fields
        }

    async def answer(self) -> tuple[int, Any]:
        """Status and content of the next answer: JSON, or text."""
        status, fields = await self.head()
        data = await self.body(fields)
        if fields["content-type"].startswith("application/json"):
            return status, json.loads(data)
        return status, data.decode()

    async def body(self, fields: dict[str, str]) -> bytes:
        if "content-length" in fields:
            return await self.reader.readexactly(int(fields["content-length"]))
        data = b""
        while size := int(await self.reader.readline(), 16):
            data += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()
        return data

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        async with asyncio.timeout(30):
            self.send(method, path, body)
            return await self.answer()

    async def complete(self, model: str = "m") -> str:
        """A completion; the id of the worker that it came from."""
        async with asyncio.timeout(30):
            self.send("POST", "/v1/completions", {"model": model, "prompt": "hi"})
            status, fields = await self.head()
            data = await self.body(fields)
            assert status == 200, data
            return fields["x-router-worker"]

    async def stream(self) -> None:
        """Begins a stream; returns once its head is there."""
        async with asyncio.timeout(30):
            body = {"model": "m", "prompt": "hi", "stream": True}
            self.send("POST", "/v1/completions", body)
            status, _ = await self.head()
            assert status == 200

    async def rest(self) -> bytes:
        """All bytes of a stream up to its last chunk, or up to where it broke off."""
        data = b""
        async with asyncio.timeout(30):
            with suppress(ConnectionResetError):
                while not data.endswith(b"0\r\n\r\n"):
                    more = await self.reader.read(1 << 16)
                    if not more:
                        break
                    data += more
        return data

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


async def one_each(router: RouterProcess, processes: int = 2) -> list[Client]:
    """A client of each process, in the order of pids."""
    found: dict[int, Client] = {}
    async with asyncio.timeout(30):
        while len(found) < processes:
            client = await Client.open(router)
            if found.setdefault(client.process, client) is not client:
                await client.close()
    return [found[pid] for pid in sorted(found)]


async def ready(client: Client, count: int) -> list[dict[str, Any]]:
    """The workers, once so many of them are ready."""
    async with asyncio.timeout(20):
        while True:
            _, body = await client.ask("GET", "/workers")
            workers: list[dict[str, Any]] = body["workers"]
            if sum(worker["status"] == "ready" for worker in workers) >= count:
                return workers
            await asyncio.sleep(0.02)


async def in_flight(client: Client) -> int:
    """What the router counts on all workers."""
    _, body = await client.ask("GET", "/workers")
    return int(body["stats"]["in_flight"])


async def until_idle(client: Client) -> None:
    """Returns once nothing is in flight: an answer's end is seen, then counted."""
    async with asyncio.timeout(10):
        while await in_flight(client):
            await asyncio.sleep(0.01)


async def metric(client: Client, name: str) -> float:
    """The sum of a metric's samples."""
    _, page = await client.ask("GET", "/metrics")
    samples = [
        line for line in page.splitlines() if line.startswith((name, f"{name}{{"))
    ]
    return sum(float(line.rpartition(" ")[2]) for line in samples)


async def close(clients: Sequence[Client]) -> None:
    for client in clients:
        await client.close()


@asynccontextmanager
async def two(
    fleet: SimulatedFleet, *flags: str
) -> AsyncIterator[tuple[RouterProcess, list[Client]]]:
    """A router of two processes before a fleet that is ready, and a client of each."""
    flags = ("--processes", "2", "--worker-urls", *fleet.urls, *QUICK, *flags)
    async with serving(*flags) as router:
        clients = await one_each(router)
        try:
            await ready(clients[0], len(fleet))
            yield router, clients
        finally:
            await close(clients)
