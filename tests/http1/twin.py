"""The relay of the tests once more, in plain Python on httptools.

An oracle for whole exchanges: it shares no line with the compiled ends, holds every
message whole and opens a connection for each. What workers and clients see of both must
be the same; where the two differ, one of them is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httptools

from tests.support.raw_worker import RawWorker

_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding"}
_HOP |= {b"upgrade", b"content-length", b"x-request-id"}
_NOT_TO_WORKER = _HOP | {b"host", b"te", b"trailer", b"expect", b"proxy-authorization"}


@dataclass
class Message:
    """A request or an answer, as httptools tells of it."""

    url: bytes = b""
    reason: bytes = b""
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    method: bytes = b""
    status: int = 0
    version: str = ""
    keep_alive: bool = False
    #: Its head is whole; all of it is.
    begun: bool = False
    complete: bool = False

    def values(self, name: bytes) -> list[bytes]:
        return [value.strip() for key, value in self.pairs if key.lower() == name]

    @property
    def chunked(self) -> bool:
        return bool(self.values(b"transfer-encoding"))

    @property
    def until_close(self) -> bool:
        return not (self.chunked or self.values(b"content-length"))

    def passed_on(self, dropped: set[bytes]) -> list[tuple[bytes, bytes]]:
        """The fields that go on: end-to-end, and not written anew."""
        named = b",".join(self.values(b"connection")).lower().split(b",")
        gone = dropped | {name.strip() for name in named}
        return [(name, value) for name, value in self.pairs if name.lower() not in gone]


class Messages:
    """Feeds a parser and keeps the messages that came out of it."""

    def __init__(self, *, answers: bool) -> None:
        self.all: list[Message] = []
        self.parser: httptools.HttpRequestParser | httptools.HttpResponseParser
        if answers:
            self.parser = httptools.HttpResponseParser(self)
        else:
            self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        self.all.append(Message())

    def on_url(self, data: bytes) -> None:
        self.all[-1].url += data

    def on_status(self, data: bytes) -> None:
        self.all[-1].reason += data

    def on_header(self, name: bytes, value: bytes) -> None:
        message = self.all[-1]
        (message.trailers if message.begun else message.pairs).append((name, value))

    def on_headers_complete(self) -> None:
        message, parser = self.all[-1], self.parser
        message.begun = True
        message.version = parser.get_http_version()
        message.keep_alive = parser.should_keep_alive()
        if isinstance(parser, httptools.HttpRequestParser):
            message.method = parser.get_method()
        else:
            message.status = parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.all[-1].body += data

    def on_message_complete(self) -> None:
        self.all[-1].complete = True


class Twin:
    """Serves everything with this worker, as `relay.Relay` does."""

    def __init__(self, worker: RawWorker) -> None:
        self.worker = worker
        self.port = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._main()])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()

    async def _client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        requests = Messages(answers=False)
        goes_on = True
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                # It refuses bytes behind a request that ends the connection.
                with contextlib.suppress(httptools.HttpParserError):
                    requests.parser.feed_data(data)
                while goes_on and requests.all and requests.all[0].complete:
                    goes_on = await self._exchange(requests.all.pop(0), writer)
                    if not goes_on:
                        writer.write_eof()
        writer.close()

    async def _exchange(self, request: Message, client: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection goes on."""
        answer = await self._ask(request)
        if answer is None:
            client.write(_own_answer(request.keep_alive))
            return request.keep_alive
        old = request.version == "1.0"
        empty = request.method == b"HEAD" or answer.status in (204, 304)
        to_the_end = (answer.until_close and not empty) or (old and answer.chunked)
        goes_on = request.keep_alive and not to_the_end
        client.write(_answer_head(answer, goes_on=goes_on, old=old))
        if not empty and answer.chunked and not old:
            if answer.body:
                client.write(b"%x\r\n%b\r\n" % (len(answer.body), answer.body))
            if answer.complete:
                lines = [b"%b: %b\r\n" % pair for pair in answer.trailers]
                client.write(b"".join((b"0\r\n", *lines, b"\r\n")))
        elif not empty:
            client.write(answer.body)
        return goes_on and (answer.complete or empty)

    async def _ask(self, request: Message) -> Message | None:
        """The worker's final answer; None if its head did not come."""
        host = ("127.0.0.1", self.worker.port)
        reader, writer = await asyncio.open_connection(*host)
        lines = [b"%b %b HTTP/1.1" % (request.method, request.url), b"Host: worker"]
        lines += [b"%b: %b" % pair for pair in request.passed_on(_NOT_TO_WORKER)]
        if not request.until_close:
            lines.append(b"Content-Length: %d" % len(request.body))
        writer.write(b"\r\n".join((*lines, b"", request.body)))
        answers = Messages(answers=True)
        try:
            while data := await reader.read(1 << 16):
                answers.parser.feed_data(data)
                last = answers.all[-1]
                if last.status >= 200 and (last.complete or request.method == b"HEAD"):
                    return last
        finally:
            writer.close()
        last = answers.all[-1] if answers.all else Message()
        if last.status < 200 or not last.begun:
            return None
        last.complete = last.until_close
        return last


def _answer_head(answer: Message, *, goes_on: bool, old: bool) -> bytes:
    lines = [b"HTTP/1.1 %d %b" % (answer.status, answer.reason)]
    lines += [b"%b: %b" % pair for pair in answer.passed_on(_HOP)]
    lines.append(b"X-Worker: w")
    if not goes_on:
        lines.append(b"Connection: close")
    elif old:
        lines.append(b"Connection: keep-alive")
    if answer.status != 204:
        lines += [b"Content-Length: %b" % v for v in answer.values(b"content-length")]
        if answer.chunked and not old:
            lines.append(b"Transfer-Encoding: chunked")
    return b"\r\n".join((*lines, b"", b""))


def _own_answer(keep_alive: bool) -> bytes:
    close = b"" if keep_alive else b"Connection: close\r\n"
    return b"HTTP/1.1 502 No\r\n%bContent-Length: 0\r\n\r\n" % close
