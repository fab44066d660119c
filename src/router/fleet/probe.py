"""One probe: connect, GET, look at the status, hang up.

Owns the connection of a probe. It is made by hand because it is the only thing the
control plane does often: a large fleet is probed hundreds of times a second beside the
requests, and a whole HTTP client costs several times what the probe needs, which is
the status line. Model lists are read with a whole client (`fetch`). Never raises for
what a server or the network does.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from router.fleet.fetch import Answer, Failure, failed
from router.fleet.names import Names
from router.fleet.worker import Endpoint

#: An HTTP head may be longer; the status line is at its start.
_MOST_BYTES = 64 * 1024


class Prober:
    """Probes servers: certificates of https ones are verified."""

    def __init__(self, path: str, timeout: float) -> None:
        """`path`: what is asked for. `timeout`: seconds for all of a probe."""
        self._path = path
        self._timeout = timeout
        self._names = Names()
        self._tls = ssl.create_default_context()
        self._loop = asyncio.get_running_loop()

    async def probe(self, endpoint: Endpoint, api_key: str | None) -> Answer:
        """Asks once. `api_key`: sent as bearer."""
        request = _request(self._path, endpoint.authority, api_key)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._ask(endpoint, request)
        except TimeoutError:
            reason = f"no answer in {self._timeout:g} s"
            return Answer(failure=Failure.TIMED_OUT, reason=reason)
        except OSError as error:
            return failed("cannot connect", error)

    async def _ask(self, endpoint: Endpoint, request: bytes) -> Answer:
        answer: asyncio.Future[Answer] = self._loop.create_future()
        hosts = await self._names.addresses(endpoint.host, endpoint.port)
        for last, host in enumerate(hosts, start=1 - len(hosts)):
            try:
                transport, _ = await self._loop.create_connection(
                    lambda: _Asking(request, answer),
                    host,
                    endpoint.port,
                    ssl=self._tls if endpoint.tls else None,
                    server_hostname=endpoint.host if endpoint.tls else None,
                )
                break
            except OSError:
                if last == 0:
                    raise
        try:
            return await answer
        finally:
            transport.close()


class _Asking(asyncio.Protocol):
    """Sends the request and waits for the head of the answer."""

    def __init__(self, request: bytes, answer: asyncio.Future[Answer]) -> None:
        self._request = request
        self._answer = answer
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > _MOST_BYTES:
            self._settle(_status(self._head))

    def connection_lost(self, error: Exception | None) -> None:
        why = f": {error}" if error is not None else ""
        reason = f"connection lost before the answer{why}"
        self._settle(Answer(failure=Failure.BROKEN, reason=reason))

    def _settle(self, answer: Answer) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)


def _request(path: str, authority: str, api_key: str | None) -> bytes:
    key = "" if api_key is None else f"Authorization: Bearer {api_key}\r\n"
    return (
        f"GET {path} HTTP/1.1\r\nHost: {authority}\r\n{key}"
        "Accept: */*\r\nUser-Agent: fleetrouter\r\nConnection: close\r\n\r\n"
    ).encode("latin-1")


def _status(head: bytes) -> Answer:
    version, _, rest = head.partition(b" ")
    status = rest[:3]
    if version in (b"HTTP/1.1", b"HTTP/1.0") and len(status) == 3 and status.isdigit():
        return Answer(int(status))
    return Answer(failure=Failure.BROKEN, reason="the answer is not HTTP/1.1")
