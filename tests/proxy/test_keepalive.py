"""Peers that are gone without a word are noticed, on both sides."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from router.http1.connection import Ticker
from router.proxy.lines import RequestIds
from router.proxy.server import Limits, Server
from router.proxy.upstream import Connections
from tests.proxy.test_connections import at
from tests.support.http import RawClient
from tests.support.raw_worker import RawWorker, swallow


def is_watched(transport: Any) -> bool:
    """Whether the system asks the peer, and before a proxy or a firewall forgets it."""
    tcp = transport.get_extra_info("socket")
    asks = tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    idle = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    return bool(asks) and idle <= 120


linux = pytest.mark.skipif(
    not hasattr(socket, "TCP_KEEPIDLE"), reason="the option has another name"
)


@linux
async def test_a_connection_to_a_worker_is_watched() -> None:
    connections = Connections(Ticker(), connect_timeout=10, idle_timeout=10)
    with RawWorker(swallow) as worker:
        upstream = await connections.connect(at(worker.port))
        assert is_watched(upstream.transport)
        upstream.abort()


@linux
async def test_a_connection_of_a_client_is_watched() -> None:
    nobody = cast(Any, None)
    limits = Limits(header_timeout=10, write_timeout=10, max_payload=1, max_buffered=1)
    server = Server(Ticker(), nobody, nobody, nobody, RequestIds(()), limits, nobody)
    port = await server.start("127.0.0.1", 0)
    try:
        with RawClient(port):
            while not server.clients():
                await asyncio.sleep(0.001)
            assert is_watched(server.clients()[0].transport)
    finally:
        server.close()
