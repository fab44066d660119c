"""What is measured: one client's connection, whole requests or chunks, over wires.

A router of 16 workers runs on a `WireLoop`; the benchmark is its client and its
workers at once. A request's bytes go into the client's wire, the worker that the router
chose answers, and the answer is there when `data_received` returns. Owns what is sent;
times and counts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from time import monotonic

from bench.request.wires import Wire, WireLoop
from router import settings
from router.app import Router

WORKERS = 16
#: Sessions that take turns.
SESSIONS = 64
#: Seconds in which a router must have asked its workers for their models.
PATIENCE = 60.0

_MODELS = b'{"object": "list", "data": [{"id": "model-%d", "object": "model"}]}'
_FIRST_PORT = 10_000
_HOST = re.compile(rb"\r\nHost: [\d.]+:(\d+)\r\n")
_TEXT = b"The router forwards this answer as it is, so only its length counts. " * 5


def message(first: str, body: bytes, *fields: str) -> bytes:
    """A JSON message with its Content-Length."""
    lines = [first, *fields, "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    return head.encode() + body


def chat(size: int, *fields: str) -> bytes:
    """A chat request with a body of `size` bytes, its model at the front."""
    request = {"model": "model-0", "temperature": 0.7, "messages": []}
    request["messages"] = [{"role": "user", "content": ""}]
    fill = size - len(json.dumps(request))
    request["messages"] = [{"role": "user", "content": ("token " * fill)[:fill]}]
    body = json.dumps(request).encode()
    return message(
        "POST /v1/chat/completions HTTP/1.1", body, "Host: 127.0.0.1:28080", *fields
    )


def chunk(text: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(text), text)


ANSWER = message(
    "HTTP/1.1 200 OK",
    json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "model-0",
            "choices": [{"index": 0, "message": {"content": _TEXT.decode()}}],
            "usage": {"prompt_tokens": 64, "completion_tokens": 64},
        }
    ).encode(),
    "X-Worker: 127.0.0.1:21000",
)
EVENT = chunk(
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"model-0","choices":[{"index":0,"delta":{"content":" token"},'
    b'"logprobs":null,"finish_reason":null}]}\n\n'
)
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Case:
    """A name, and what does it `count` times."""

    name: str
    run: Callable[[int], None]


class Client:
    """A client's connection to one router, and that router's workers.

    They serve `models` models in equal blocks; all requests are for the first one.
    """

    def __init__(
        self,
        loop: WireLoop,
        router: Callable[[], asyncio.Protocol],
        workers: int,
        models: int,
    ) -> None:
        self._loop = loop
        self._wire = loop.accept(router)
        self._workers = workers
        self._models = models

    async def joined(self) -> None:
        """Returns once requests reach all workers of the model, each over a connection
        of its own.

        Until then the benchmark answers what the router asks its workers of itself.
        """
        used = set[int]()
        request = chat(300)
        self._wire.send(request)
        end = monotonic() + PATIENCE
        while monotonic() < end:
            await asyncio.sleep(0.001)
            for wire in self._loop.opened:
                asked = wire.written()
                if asked.startswith(b"GET "):
                    body = self._models_of(asked) if b" /v1/models" in asked else b""
                    wire.send(message("HTTP/1.1 200 OK", body, "Connection: close"))
                elif asked:
                    wire.send(ANSWER)
                    used.add(id(wire))
            if self._wire.written():
                if len(used) == self._workers // self._models:
                    return
                self._wire.send(request)
        raise RuntimeError(f"only {len(used)} workers were asked")

    def _models_of(self, asked: bytes) -> bytes:
        """The list of the worker that was asked."""
        host = _HOST.search(asked)
        assert host is not None
        number = int(host[1]) - _FIRST_PORT
        return _MODELS % (number * self._models // self._workers)

    def exchange(self, requests: Sequence[bytes]) -> Callable[[int], None]:
        """Whole requests in turn, each with its whole answer at once."""
        loop, client = self._loop, self._wire

        def run(count: int) -> None:
            for request in islice(cycle(requests), count):
                client.send(request)
                worker = loop.latest
                worker.send(ANSWER)
                worker.sent.clear()
                client.sent.clear()

        for request in requests:
            self._check(request)
        return run

    def _check(self, request: bytes) -> None:
        """Both bodies pass as they are."""
        self._wire.send(request)
        worker = self._asked()
        assert worker.written().endswith(_body(request))
        worker.send(ANSWER)
        answer = self._wire.written()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(_body(ANSWER))

    def stream(self, request: bytes) -> Callable[[int], None]:
        """Chunks of one open stream."""
        wire = self._wire

        def run(count: int) -> None:
            wire.send(request)
            worker = self._asked()
            send, forwarded = worker.send, wire.sent
            send(STREAM)
            wire.written()
            for _ in range(count):
                send(EVENT)
                forwarded.clear()
            send(EVENT)
            assert wire.written() == EVENT
            send(LAST)
            assert wire.written() == LAST
            worker.written()

        return run

    def _asked(self) -> Wire:
        """The wire of the worker that was chosen."""
        assert self._loop.latest is not self._wire, self._wire.written()
        return self._loop.latest


def _body(message: bytes) -> bytes:
    return message[message.index(b"\r\n\r\n") :]


@contextlib.asynccontextmanager
async def cases(loop: WireLoop) -> AsyncIterator[list[Case]]:
    """All cases, ready to be run."""
    sessions = [chat(300, f"X-Session-ID: session-{k}") for k in range(SESSIONS)]
    async with (
        client(loop, "round_robin") as plain,
        client(loop, "consistent_hash") as sticky,
    ):
        yield [
            Case("300 B", plain.exchange([chat(300)])),
            Case("8 KB", plain.exchange([chat(8192)])),
            Case("64 KB", plain.exchange([chat(65_536)])),
            Case("300 B, session header", sticky.exchange(sessions)),
            Case("chunk of a stream", plain.stream(chat(300))),
        ]


@contextlib.asynccontextmanager
async def client(
    loop: WireLoop, policy: str, workers: int = WORKERS, models: int = 1
) -> AsyncIterator[Client]:
    """A client of a router with a fleet that is up."""
    urls = [f"http://127.0.0.1:{_FIRST_PORT + n}" for n in range(workers)]
    flags = ["--port", "0", "--policy", policy, "--log-level", "warning"]
    # Nothing may come due: the loop stands still while requests are measured.
    flags += ["--health-check-interval-secs", "3600"]
    flags += ["--upstream-idle-timeout-secs", "3600", "--worker-urls", *urls]
    router = Router(settings.load(flags, {}))
    await router.start()
    try:
        one = Client(loop, loop.factories[-1], workers, models)
        await one.joined()
        yield one
    finally:
        await router.stop()
