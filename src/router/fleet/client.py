"""One bounded GET of a worker, for probes and model lists.

Owns the connections that the control plane makes and what an outcome is called. They
are made by hand because a large fleet is asked hundreds of times a second beside the
requests, and a whole HTTP client costs several times what is needed here. Knows
nothing of what is asked for and why. Never raises for what a server or the network
does, and never follows a server to another place.

A connection serves one request: servers close idle ones after seconds, and a probe on
one that is about to be closed would say that a good worker is dead. Only a probe with a
model list right behind it keeps its own for that, which saves the kernel half the work.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

from router.fleet.names import Names
from router.fleet.worker import Endpoint
from router.http1.buffer import Buffer
from router.http1.errors import ProtocolError
from router.http1.framing import Framing
from router.http1.head import ResponseHead, parse_response

#: A list of a thousand adapters has about 0.5 MB.
MOST_BYTES = 8 * 1024 * 1024
_MOST_HEAD = 64 * 1024
#: Connections kept for the next request at most, and for how many seconds. That one
#: comes at once, or not at all.
MOST_KEPT = 32
KEEP_SECS = 1.0

#: The router itself is short of something: says nothing about the worker.
_OWN_SHORTAGES = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
}


class Failure(Enum):
    """Why there is no answer."""

    REFUSED = auto()
    TIMED_OUT = auto()
    #: Lost, unreachable, unresolved, not HTTP, too large.
    BROKEN = auto()
    #: The router's own shortage, of descriptors or ports.
    OURS = auto()


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a request: a status, or a failure and its reason for operators."""

    status: int = 0
    body: bytes = b""
    failure: Failure | None = None
    reason: str | None = None

    @property
    def good(self) -> bool:
        """Whether there was an answer and it is a success."""
        return self.failure is None and 200 <= self.status < 300


class Client:
    """Asks workers. Lives on one event loop."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: for https workers; None: certificates are verified as usual."""
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._names = Names()
        self._kept: dict[Endpoint, tuple[_Connection, asyncio.TimerHandle]] = {}

    async def get(
        self,
        endpoint: Endpoint,
        path: str,
        *,
        timeout: float,
        api_key: str | None,
        whole: bool = True,
        keep: bool = False,
    ) -> Answer:
        """Asks once, within `timeout` seconds.

        `api_key`: sent as bearer. `whole`: with the body, of at most MOST_BYTES; False:
        the status is enough. `keep`: another request to this server comes right behind
        it; the connection is kept for that if the answer is a success.
        """
        request = _request(path, endpoint.authority, api_key, keep)
        try:
            async with asyncio.timeout(timeout):
                return await self._ask(endpoint, request, whole, keep)
        except TimeoutError:
            reason = f"no answer in {timeout:g} s"
            return Answer(failure=Failure.TIMED_OUT, reason=reason)
        except OSError as error:
            return _failed(error)

    def close(self) -> None:
        """Closes what is kept."""
        for endpoint in list(self._kept):
            self._drop(endpoint)

    async def _ask(
        self, endpoint: Endpoint, request: bytes, whole: bool, keep: bool
    ) -> Answer:
        connection = self._take(endpoint)
        if connection is not None:
            answer = await self._ask_on(connection, endpoint, request, whole, keep)
            if not connection.silent:
                return answer
            # The server had closed it meanwhile.
        connection = await self._connect(endpoint)
        return await self._ask_on(connection, endpoint, request, whole, keep)

    async def _ask_on(
        self,
        connection: _Connection,
        endpoint: Endpoint,
        request: bytes,
        whole: bool,
        keep: bool,
    ) -> Answer:
        try:
            answer = await connection.ask(request, whole)
            keep = keep and answer.good and connection.reusable
        except asyncio.CancelledError:
            keep = False
            raise
        finally:
            if not (keep and self._keep(endpoint, connection)):
                connection.transport.close()
        return answer

    async def _connect(self, endpoint: Endpoint) -> _Connection:
        """At the first of its addresses that takes it. Raises OSError."""
        if endpoint.tls and self._tls is None:
            # Made when it is wanted: it reads all of the system's certificates.
            self._tls = ssl.create_default_context()
        hosts = await self._names.addresses(endpoint.host, endpoint.port)
        for last, host in enumerate(hosts, start=1 - len(hosts)):
            try:
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self._loop),
                    host,
                    endpoint.port,
                    ssl=self._tls if endpoint.tls else None,
                    server_hostname=endpoint.host if endpoint.tls else None,
                )
            except OSError:
                if last == 0:
                    raise
            else:
                return connection
        raise OSError(f"no address of {endpoint.host}")

    def _keep(self, endpoint: Endpoint, connection: _Connection) -> bool:
        if len(self._kept) >= MOST_KEPT or endpoint in self._kept:
            return False
        timer = self._loop.call_later(KEEP_SECS, self._drop, endpoint)
        self._kept[endpoint] = connection, timer
        return True

    def _take(self, endpoint: Endpoint) -> _Connection | None:
        """The connection that was kept, if it is still open."""
        kept = self._kept.pop(endpoint, None)
        if kept is None:
            return None
        connection, timer = kept
        timer.cancel()
        return connection if connection.reusable else None

    def _drop(self, endpoint: Endpoint) -> None:
        connection, timer = self._kept.pop(endpoint)
        timer.cancel()
        connection.transport.close()


class _Connection(asyncio.Protocol):
    """Sends a request and reads its answer; then the next one, if it is reusable."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answer: asyncio.Future[Answer] | None = None
        #: What came of the head until it is whole.
        self._start = bytearray()
        self._head: ResponseHead | None = None
        self._framing = Framing()
        self._body = Buffer()
        self._whole = self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    @property
    def silent(self) -> bool:
        """It was lost before one byte of the answer came."""
        return self._lost and self._head is None and not self._start

    @property
    def reusable(self) -> bool:
        """The answer is over, nothing is behind it, and the server goes on."""
        return (
            self._head is not None
            and self._head.keep_alive
            and self._framing.done
            and not self._start
            and not self.transport.is_closing()
        )

    def ask(self, request: bytes, whole: bool) -> asyncio.Future[Answer]:
        """The answer, as soon as as much of it is there as is wanted."""
        self._head, self._framing, self._whole = None, Framing(), whole
        self._body = Buffer()
        self._answer = answer = self._loop.create_future()
        if self._lost:
            self._settle(_broken("connection lost before the answer"))
        else:
            self.transport.write(request)
        return answer

    def data_received(self, data: bytes) -> None:
        try:
            if self._head is None:
                self._start += data
                self._read_head(len(data))
            else:
                self._read_body(data)
        except ProtocolError as error:
            self._settle(_broken(f"the answer is not HTTP/1.1: {error.message}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        head = self._head
        if error is None and head is not None and _ends_with_connection(head):
            self._settle(Answer(head.status, self._body.pop()))
        why = f": {error}" if error is not None else ""
        until = "before the answer" if head is None else "in the middle of the answer"
        self._settle(_broken(f"connection lost {until}{why}"))

    def _read_head(self, news: int) -> None:
        """Heads up to that of the answer; interim ones (1xx) are passed over."""
        start = max(0, len(self._start) - news - 3)
        while (end := self._start.find(b"\r\n\r\n", start)) >= 0:
            head = parse_response(bytes(self._start[: end + 4]))
            del self._start[: end + 4]
            start = 0
            if head.status >= 200:
                self._head = head
                rest, self._start = bytes(self._start), bytearray()
                self._framing = _framing(head)
                self._read_body(rest)
                return
        if len(self._start) > _MOST_HEAD:
            raise ProtocolError(f"a head of more than {_MOST_HEAD} bytes")

    def _read_body(self, data: bytes) -> None:
        assert self._head is not None
        taken = 0 if self._framing.done else self._framing.consume(data, self._body)
        self._start += data[taken:]
        if not self._whole:
            self._settle(Answer(self._head.status))
        elif max(self._body.size, self._head.content_length) > MOST_BYTES:
            self._settle(_broken(f"answer of more than {MOST_BYTES} bytes"))
        elif self._framing.done:
            self._settle(Answer(self._head.status, self._body.pop()))

    def _settle(self, answer: Answer) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)


def _request(path: str, authority: str, api_key: str | None, keep: bool) -> bytes:
    key = "" if api_key is None else f"Authorization: Bearer {api_key}\r\n"
    close = "" if keep else "Connection: close\r\n"
    return (
        f"GET {path} HTTP/1.1\r\nHost: {authority}\r\n{key}{close}"
        "Accept: */*\r\nAccept-Encoding: identity\r\nUser-Agent: fleetrouter\r\n\r\n"
    ).encode("latin-1")


def _framing(head: ResponseHead) -> Framing:
    """How the body of an answer ends (RFC 9112, 6.3)."""
    if head.status in (204, 304):
        return Framing(0)
    return Framing(head.content_length, head.chunked)


def _ends_with_connection(head: ResponseHead) -> bool:
    return (
        head.content_length < 0 and not head.chunked and head.status not in (204, 304)
    )


def _broken(reason: str) -> Answer:
    return Answer(failure=Failure.BROKEN, reason=reason)


def _failed(error: OSError) -> Answer:
    """What it stands for that there is no connection."""
    if error.errno == errno.ECONNREFUSED:
        return Answer(failure=Failure.REFUSED, reason="connection refused")
    if error.errno in _OWN_SHORTAGES:
        return Answer(failure=Failure.OURS, reason=str(error))
    return _broken(f"cannot connect: {error}")
