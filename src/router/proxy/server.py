"""The listening side: sockets, the ways a request can go, draining.

Owns the listening socket, the connections of clients, and the one fork in the way of a
request: paths of the router itself go to the admin application, as if it were a
worker, everything else to the exchange.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import monotonic

from router.errors import BadRequest, RouterError
from router.http1.connection import Budget, Ticker
from router.http1.downstream import Downstream
from router.http1.errors import BadAnswer, ClientGone, UpstreamLost, UpstreamTimeout
from router.http1.request import Request
from router.http1.upstream import Upstream
from router.proxy import answers
from router.proxy.answers import BODY_FAILURES
from router.proxy.call import Call
from router.proxy.exchange import Exchange
from router.proxy.keepalive import watch
from router.proxy.lines import RequestIds
from router.proxy.upstream import LocalConnections

#: Seconds a client's connection is kept between requests: longer than the pools of
#: clients keep theirs (Go 90, aiohttp 15, httpx 5), so that it is they who close.
IDLE_SECONDS = 120.0
#: What the admin application can be asked. Its parser refuses words it does not know,
#: so that TRACE, which no path of ours takes either, is asked in place of any other.
_ADMIN_METHODS = frozenset(
    (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")
)
#: Connections that may wait to be accepted; the system may allow fewer.
BACKLOG = 2048
#: Seconds in which a drained router still takes connections, so that a balancer that
#: has not yet seen /readiness at 503 does not fail.
DRAIN_GRACE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what clients send. Times in seconds, sizes in bytes."""

    header_timeout: float
    write_timeout: float
    max_payload: int
    max_buffered: int


class AdminDoor:
    """The way of the router's own paths: to the application inside the router."""

    def __init__(
        self,
        connections: LocalConnections,
        ids: RequestIds,
        finished: Callable[[Call], None],
    ) -> None:
        """`finished` is told of each call once it is over."""
        self._connections = connections
        self._ids = ids
        self._finished = finished

    async def serve(self, request: Request) -> None:
        """One request, from its head to the end of its answer."""
        call = Call(request)
        request.id = self._ids.of(request.head)
        try:
            upstream = await self._ask(call)
            upstream.relay(b"")
            call.status = upstream.status
            await upstream.finished()
        except RouterError as error:
            call.answer(error)
        except (UpstreamLost, UpstreamTimeout, BadAnswer):
            call.answer(RouterError("The admin API did not answer."))
        except BODY_FAILURES as failure:
            call.answer(answers.of_body(failure))
        except ClientGone:
            pass
        finally:
            self._let_go(call)
            self._finished(call)

    async def _ask(self, call: Call) -> Upstream:
        """Sends the request; the connection, with its answer's head there."""
        request = call.request
        upstream = None
        if request.body is not None:
            upstream = self._connections.take("admin")
        if upstream is None:
            upstream = await self._connections.connect(_Inside())
        call.upstream = upstream
        lines = b"Host: router\r\nX-Router-Peer: %b\r\n" % request.client.peer.encode()
        known = request.head.method in _ADMIN_METHODS
        upstream.send(request, lines, request.body, method=None if known else b"TRACE")
        await upstream.answered()
        if upstream.head.header(b"x-request-id") is None:
            # The application gives each answer its id. This is its parser's.
            raise BadRequest("The router's own paths do not take such a request.")
        return upstream

    def _let_go(self, call: Call) -> None:
        upstream = call.upstream
        if upstream is not None:
            self._connections.let_go("admin", upstream)
            if call.status and upstream.failure is not None:
                upstream.end_with(b"")


@dataclass(frozen=True, slots=True)
class _Inside:
    """The address of what is inside the router."""

    host: str = ""
    port: int = 0
    tls: bool = False


class Server:
    """Listens, and gives each request to the exchange or to the admin application."""

    def __init__(
        self,
        ticker: Ticker,
        exchange: Exchange,
        admin: AdminDoor,
        is_admin: Callable[[bytes], bool],
        ids: RequestIds,
        limits: Limits,
        refused: Callable[[str, bytes, RouterError, int], None],
    ) -> None:
        """`refused` is told of what is no request: peer, id, answer and its size."""
        self._ticker = ticker
        self._exchange = exchange
        self._admin = admin
        self._is_admin = is_admin
        self._ids = ids
        self._limits = limits
        self._refused = refused
        self._servers: list[asyncio.Server] = []
        self.budget = Budget(limits.max_buffered)
        self.draining = False

    async def start(self, host: str, port: int) -> int:
        """Starts listening; the port. Raises OSError for an address that is taken."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connection, host, port, backlog=BACKLOG)
        self._take(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def start_at(self, listeners: Sequence[socket.socket]) -> None:
        """As `start`, with sockets that listen already."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            server = await loop.create_server(
                self._connection, sock=listener, backlog=BACKLOG
            )
            self._take(server)

    def _take(self, server: asyncio.Server) -> None:
        for listening in server.sockets:
            watch(listening)
        self._servers.append(server)

    async def drain(self, timeout: float) -> bool:
        """Takes no new connections and lets running requests finish.

        Waits `timeout` seconds at most; whether all were done by then.
        """
        self.draining = True
        deadline = monotonic() + timeout
        await asyncio.sleep(min(DRAIN_GRACE_SECONDS, timeout))
        self._stop_listening()
        while clients := self.clients():
            for client in clients:
                client.drain()
            if monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def close(self) -> None:
        """Stops listening and cuts what is still open."""
        self._stop_listening()
        for client in self.clients():
            client.abort()

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()

    def clients(self) -> list[Downstream]:
        """The open connections of clients."""
        return [c for c in self._ticker.connections if isinstance(c, Downstream)]

    def _connection(self) -> Downstream:
        return Downstream(
            self._serve,
            self._refuse,
            self._ticker,
            self.budget,
            head_timeout=self._limits.header_timeout,
            idle_timeout=IDLE_SECONDS,
            write_timeout=self._limits.write_timeout,
            max_body=self._limits.max_payload,
        )

    def _serve(self, request: Request) -> Coroutine[None, None, None]:
        if self._is_admin(request.head.path):
            return self._admin.serve(request)
        return self._exchange.serve(request)

    def _refuse(self, peer: str, status: int, what: str) -> bytes:
        """The answer to what is not a request."""
        error = answers.malformed(status, what)
        request_id = self._ids.new()
        answer = answers.render(error, request_id, keep_alive=False)
        self._refused(peer, request_id, error, len(answer))
        return answer
