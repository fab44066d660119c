"""Requests for tests: given to a real client's end, taken out of it again."""

from __future__ import annotations

import asyncio
from typing import cast

from router.http1.connection import Budget, Ticker
from router.http1.downstream import Downstream
from router.http1.request import Request


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = b""
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def request(
    body: bytes = b"", *headers: tuple[str, str], target: str = "/v1/chat/completions"
) -> Request:
    """A whole request, as the proxy is given it."""
    seen: list[Request] = []

    async def serve(request: Request) -> None:
        seen.append(request)

    client = Downstream(
        serve,
        lambda peer, status, what: b"%d %b" % (status, what.encode()),
        Ticker(),
        Budget(1 << 30),
        head_timeout=1,
        idle_timeout=1,
        write_timeout=1,
        max_body=1 << 30,
    )
    client.connection_made(Wire())
    lines = [f"POST {target} HTTP/1.1", "Host: router"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    client.data_received("\r\n".join((*lines, "", "")).encode("latin-1") + body)
    assert seen, cast(Wire, client.transport).written
    return seen[0]


JSON = ("Content-Type", "application/json")
