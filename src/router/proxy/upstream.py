"""Connections to workers: made, kept, and given up in time.

Owns the idle connections and the making of new ones, with its one time limit; what
the operating system says went wrong is translated here and nowhere else. Knows nothing
of requests. Workers close connections that were idle for 5 seconds, so ours are given
up before that.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from router.errors import Overloaded, WorkerUnreachable
from router.http1.connection import Ticker
from router.http1.upstream import Upstream
from router.proxy.keepalive import watch
from router.proxy.seldom import Seldom

_log = logging.getLogger("router.proxy")

#: The system is out of descriptors, ports or memory: our shortage, no worker's.
_OUR_SHORTAGE = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
}
#: Seconds between two looks at idle connections.
_SWEEP_SECONDS = 1.0
#: Share of the idle connections that is closed to make room for others.
_MADE_ROOM = 0.1


class Address(Protocol):
    """Where to connect."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def tls(self) -> bool: ...


class ConnectFailed(WorkerUnreachable):
    """No connection could be made.

    `kind`: refused (nobody listens), connect_timeout or unreachable.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__("The worker could not be reached.")
        self.kind = kind
        self.reason = reason


class Connections:
    """Connections to workers, by a key that is the same for the same address.

    `connect_timeout`: seconds to make one. `idle_timeout`: seconds one is kept unused.
    `most_idle_each`, `most_idle`: how many are kept unused, for a worker and in all;
    beyond it the oldest are closed, so that a large fleet leaves descriptors for
    requests.
    """

    def __init__(
        self,
        ticker: Ticker,
        *,
        connect_timeout: float,
        idle_timeout: float,
        most_idle_each: int = 1024,
        most_idle: int = 4096,
    ) -> None:
        self._ticker = ticker
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._most_idle_each = most_idle_each
        self._most_idle = most_idle
        #: The one used last at the end; and how many there are in all.
        self._idle: dict[str, list[Upstream]] = {}
        self._count = 0
        self._tls: ssl.SSLContext | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._shortage = Seldom(_log, "no socket for a worker")

    def __len__(self) -> int:
        """How many idle connections are kept."""
        return self._count

    def start(self) -> None:
        """Starts giving up idle connections, on the running loop."""
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        """Closes all idle connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for key in list(self._idle):
            self.forget(key)

    def take(self, key: str) -> Upstream | None:
        """An idle connection, the one used last, or None."""
        idle = self._idle.get(key)
        if not idle:
            return None
        oldest = time.monotonic() - self._idle_timeout
        while idle:
            upstream = idle.pop()
            self._count -= 1
            if upstream.idle and upstream.idle_since > oldest:
                return upstream
            upstream.abort()
        return None

    def give_back(self, key: str, upstream: Upstream) -> None:
        """Keeps a connection for the next request."""
        upstream.park()
        try:
            idle = self._idle[key]
        except KeyError:
            idle = self._idle[key] = []
        idle.append(upstream)
        self._count += 1
        if len(idle) > self._most_idle_each:
            self._count -= 1
            idle.pop(0).abort()
        elif self._count > self._most_idle:
            self._make_room()

    def let_go(self, key: str, upstream: Upstream) -> None:
        """An exchange is over: keeps the connection, or closes one of no more use."""
        if upstream.reusable:
            self.give_back(key, upstream)
        else:
            upstream.abort()

    def forget(self, key: str) -> None:
        """Closes the idle connections of a worker that is gone."""
        gone = self._idle.pop(key, [])
        self._count -= len(gone)
        for upstream in gone:
            upstream.abort()

    def _make_room(self) -> None:
        """Closes a share of all idle connections: those unused for longest."""
        since = sorted(u.idle_since for idle in self._idle.values() for u in idle)
        self._close_older(since[int(len(since) * _MADE_ROOM)])

    async def connect(self, address: Address, deadline: float = 0.0) -> Upstream:
        """A new connection, by `deadline` (monotonic seconds, 0: none) at the latest.

        Raises ConnectFailed, TimeoutError for the deadline, or Overloaded for want of
        sockets.
        """
        # A task of its own, since a request's coroutine is none and has no timer.
        task = asyncio.get_running_loop().create_task(self._connect(address, deadline))
        try:
            return await task
        except BaseException:
            # The client left meanwhile, or it failed. Who left has no use for it.
            task.cancel()
            task.add_done_callback(_abandoned)
            raise

    async def _connect(self, address: Address, deadline: float) -> Upstream:
        left = deadline - time.monotonic() if deadline else math.inf
        try:
            async with asyncio.timeout(min(left, self._connect_timeout)):
                return await self._open(address)
        except TimeoutError:
            if left < self._connect_timeout:
                raise
            raise ConnectFailed("connect_timeout", "connect timed out") from None
        except OSError as error:
            if error.errno in _OUR_SHORTAGE:
                self._shortage.warn(reason=error.strerror)
                if self._count:
                    self._make_room()
                raise Overloaded(
                    "The router is out of sockets for connections to workers."
                ) from None
            # Of a name with several addresses the error has the text of all of them.
            refused = f"[Errno {errno.ECONNREFUSED}]" in str(error)
            kind = "refused" if refused else "unreachable"
            raise ConnectFailed(kind, error.strerror or str(error)) from None

    async def _open(self, address: Address) -> Upstream:
        if address.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        transport, upstream = await asyncio.get_running_loop().create_connection(
            lambda: Upstream(self._ticker),
            address.host,
            address.port,
            ssl=self._tls if address.tls else None,
        )
        watch(transport.get_extra_info("socket"))
        return upstream

    def _sweep(self) -> None:
        """Closes what was idle for too long, and forgets workers without any."""
        self._close_older(time.monotonic() - self._idle_timeout)
        self.start()

    def _close_older(self, oldest: float) -> None:
        """Closes what has been idle since then or longer, or is no more of use."""
        for key, idle in list(self._idle.items()):
            kept = []
            for upstream in idle:
                if upstream.idle and upstream.idle_since > oldest:
                    kept.append(upstream)
                else:
                    upstream.abort()
            self._count -= len(idle) - len(kept)
            if kept:
                idle[:] = kept
            else:
                del self._idle[key]


class LocalConnections(Connections):
    """Connections within this machine's router, over socket pairs.

    `hand_over` gives the other end to the server, in this process or another one.
    Nothing is left in the file system, and nobody else can connect.
    """

    def __init__(
        self, ticker: Ticker, hand_over: Callable[[socket.socket], Awaitable[object]]
    ) -> None:
        super().__init__(ticker, connect_timeout=5.0, idle_timeout=4.0)
        self._hand_over = hand_over

    async def _open(self, address: Address) -> Upstream:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            await self._hand_over(theirs)
            _, upstream = await loop.create_unix_connection(
                lambda: Upstream(self._ticker), sock=ours
            )
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return upstream


def _abandoned(task: asyncio.Task[Upstream]) -> None:
    """Ends a connection that came into being although nobody waits for it any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().abort()
