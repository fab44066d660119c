"""One bounded GET of a worker, for model lists.

Owns the HTTP client's settings and what an outcome is called. Never raises for what a
server or the network does, and never follows a server to another place.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from enum import Enum, auto

import aiohttp
from yarl import URL

#: A list of a thousand adapters has about 0.5 MB.
MOST_BYTES = 8 * 1024 * 1024
_CHUNK = 64 * 1024

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
    """Outcome of a GET: a status, or a failure and its reason for operators."""

    status: int = 0
    body: bytes = b""
    failure: Failure | None = None
    reason: str | None = None

    @property
    def good(self) -> bool:
        """Whether there was an answer and it is a success."""
        return self.failure is None and 200 <= self.status < 300


class _TooLargeError(Exception):
    """The body goes past MOST_BYTES."""


def open_session() -> aiohttp.ClientSession:
    """A session as `get` needs it; call it with a running loop, close it in the end.

    Connections are not kept: vLLM closes idle ones after 5 s, and a probe on one that
    is about to be closed would say that a good worker is dead. Nor are cookies.
    Certificates of https workers are verified.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
    )


async def get(
    session: aiohttp.ClientSession, url: str, *, timeout: float, api_key: str | None
) -> Answer:
    """GETs `url` within `timeout` seconds, the body at most MOST_BYTES long.

    `api_key`: sent as bearer.
    """
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        async with (
            asyncio.timeout(timeout),
            session.get(
                URL(url, encoded=True),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as response,
        ):
            return Answer(response.status, await _read(response))
    except TimeoutError:
        return Answer(failure=Failure.TIMED_OUT, reason=f"no answer in {timeout:g} s")
    except _TooLargeError:
        reason = f"answer of more than {MOST_BYTES} bytes"
        return Answer(failure=Failure.BROKEN, reason=reason)
    except aiohttp.ClientConnectorError as error:
        return failed("cannot connect", error.os_error)
    except (aiohttp.ClientError, OSError) as error:
        return failed("connection lost", error)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > MOST_BYTES:
            raise _TooLargeError
    return bytes(body)


def failed(what: str, error: Exception) -> Answer:
    """What an exception stands for. `what`: had been tried, for operators."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ECONNREFUSED:
        return Answer(failure=Failure.REFUSED, reason="connection refused")
    if number in _OWN_SHORTAGES:
        return Answer(failure=Failure.OURS, reason=str(error))
    return Answer(failure=Failure.BROKEN, reason=f"{what}: {error}")
