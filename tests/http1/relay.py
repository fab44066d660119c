"""The smallest proxy there can be out of the two compiled ends, for tests of the ends.

One worker, no policy, no retries but the resend on a reused connection; it runs a loop
in a thread of its own, so that tests talk to both of its sides with blocking sockets.
Leaving it checks what must hold after any test: nothing failed inside, no request is
left, every byte of the body budget was given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from router.http1.connection import Budget, Connection, Ticker
from router.http1.downstream import Downstream
from router.http1.errors import (
    BodyOverBudget,
    BodyTimeout,
    ClientGone,
    ProtocolError,
    UpstreamLost,
    UpstreamTimeout,
)
from router.http1.request import Request
from router.http1.upstream import Upstream
from tests.http1.messages import GET
from tests.support.http import Answer, RawClient, ask
from tests.support.raw_worker import RawWorker, Script, answer

T = TypeVar("T")
#: Starts a worker that does what the script says, and a relay before it.
Wire = Callable[..., "Relay"]

#: What the kernel may hold of bytes that were not read. Its own choice can be so large
#: that nothing ever seems to be slow.
RECEIVE = 1 << 18
EVENT = b'data: {"error": "cut"}\n\n'


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, sizes in bytes; none matters unless a test says so."""

    head: float = 20.0
    idle: float = 20.0
    write: float = 20.0
    answer: float = 20.0
    gap: float = 20.0
    body: float = 1 << 30
    budget: float = 1 << 30
    #: The kernel's buffer for what a client has not read (0: its own).
    send: float = 0


class Relay:
    """Serves everything with this worker.

    A request whose target starts with /hold has its body held whole, any other
    request's body streams. `log` tells what became of each request.
    """

    def __init__(
        self, worker: RawWorker, limits: Limits | None = None, *, loop: str = "uvloop"
    ) -> None:
        self.worker = worker
        self.limits = limits or Limits()
        self.log: list[str] = []
        self.faults: list[dict[str, Any]] = []
        self.budget = Budget(int(self.limits.budget))
        self.port = 0
        self._pool: list[Upstream] = []
        self._stack = contextlib.ExitStack()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[loop], daemon=True)

    # --- from the test's thread -----------------------------------------------------

    def ask(self, question: Callable[[], T]) -> T:
        """What `question` gives inside the loop."""
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: answer.set_result(question()))
        return answer.result(10)

    def connect(self, *, receive: int = RECEIVE, timeout: float = 10.0) -> RawClient:
        """A client; it is closed with the relay, if it was not before."""
        client = RawClient(self.port, receive=receive, timeout=timeout)
        return self._stack.enter_context(client)

    def connections(self) -> set[Connection]:
        """All that are open, to be looked at inside the loop."""
        return self._ticker.connections

    def clients(self) -> list[Downstream]:
        return self.ask(
            lambda: [c for c in self._ticker.connections if isinstance(c, Downstream)]
        )

    def workers(self) -> int:
        """How many connections to the worker are open."""
        return self.ask(
            lambda: sum(isinstance(c, Upstream) for c in self._ticker.connections)
        )

    def idle(self) -> int:
        """How many of them are kept for the next request."""
        return self.ask(lambda: sum(upstream.idle for upstream in self._pool))

    def forget(self) -> None:
        """Closes the idle connections to the worker; to be asked inside the loop."""
        for upstream in self._pool:
            upstream.abort()
        self._pool.clear()

    def drain(self) -> None:
        for client in self.clients():
            self.ask(client.drain)

    def wait(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Returns once `condition` holds. Raises TimeoutError."""
        deadline = monotonic() + seconds
        while not condition():
            if monotonic() > deadline:
                raise TimeoutError(f"waited in vain; {self.log}")
            sleep(0.005)

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
        self._stack.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        if problem is None:
            assert not self._thread.is_alive()
            assert self.faults == []
            assert self.budget.held == 0
            assert len(self._ticker) == 0

    # --- in the loop ------------------------------------------------------------------

    def _run(self, loop: str) -> None:
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, what: self.faults.append(what))
        self._stop = asyncio.Event()
        self._ticker = Ticker(0.02)
        self._ticker.start()
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE)
        if self.limits.send:
            size = int(self.limits.send)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        server = await self._loop.create_server(self._accept, sock=listener)
        self.port = listener.getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for connection in list(self._ticker.connections):
            connection.abort()
        for _ in range(100):
            if len(self._ticker) == 0:
                break
            await asyncio.sleep(0.01)
        self._ticker.stop()

    def _accept(self) -> Downstream:
        return Downstream(
            self._serve,
            self._refuse,
            self._ticker,
            self.budget,
            head_timeout=self.limits.head,
            idle_timeout=self.limits.idle,
            write_timeout=self.limits.write,
            max_body=int(self.limits.body),
        )

    def _refuse(self, peer: str, status: int, what: str) -> bytes:
        self.log.append(f"refused: {what}")
        return own_answer(status, what, keep_alive=False)

    def _serve(self, request: Request) -> Coroutine[None, None, None]:
        return self._exchange(request)

    async def _exchange(self, request: Request) -> None:
        upstream = None
        try:
            if request.head.target.startswith(b"/hold"):
                await request.read()
            upstream = await self._answered(request)
            await self._pass_on(request, upstream)
        except ClientGone:
            self.log.append("gone")
        except UpstreamTimeout:
            self._fail(request, 504, "no answer in time")
        except UpstreamLost as lost:
            self._fail(request, 502, f"lost{' silently' * lost.silent}")
        except BodyTimeout:
            self._fail(request, 408, "body not in time")
        except BodyOverBudget:
            self._fail(request, 503, "over budget")
        except ProtocolError as error:
            self._fail(request, error.status, error.message)
        finally:
            if upstream is not None and not upstream.idle:
                upstream.abort()

    async def _answered(self, request: Request) -> Upstream:
        """A connection with the answer's head; sent again once if a reused one died."""
        while True:
            upstream = await self._connection(request)
            try:
                self._send(request, upstream)
                await upstream.answered()
                return upstream
            except BaseException as error:
                upstream.abort()
                again = upstream.reused and upstream.silent
                if not (isinstance(error, UpstreamLost) and again):
                    raise
                self.log.append("resent")

    async def _connection(self, request: Request) -> Upstream:
        while self._pool and request.body is not None and not request.head.upgrade:
            upstream = self._pool.pop()
            if upstream.idle:
                return upstream
        _, upstream = await self._loop.create_task(
            self._loop.create_connection(
                lambda: Upstream(self._ticker), "127.0.0.1", self.worker.port
            )
        )
        return upstream

    def _send(self, request: Request, upstream: Upstream) -> None:
        upstream.send(
            request,
            b"Host: worker\r\n",
            request.body,
            deadline=monotonic() + self.limits.answer,
        )

    async def _pass_on(self, request: Request, upstream: Upstream) -> None:
        upstream.relay(b"X-Worker: w\r\n", idle_limit=self.limits.gap)
        await upstream.finished()
        if upstream.failure is not None:
            self.log.append(upstream.failure)
            upstream.end_with(EVENT)
            return
        self.log.append(f"{upstream.status} {request.received} {request.sent}")
        if upstream.reusable:
            upstream.park()
            self._pool.append(upstream)

    def _fail(self, request: Request, status: int, what: str) -> None:
        self.log.append(f"{status} {what}")
        if not request.answered:
            request.respond(own_answer(status, what, keep_alive=request.keep_alive))


def own_answer(status: int, what: str, *, keep_alive: bool) -> bytes:
    """An answer of the proxy's own."""
    close = "" if keep_alive else "Connection: close\r\n"
    text = f"HTTP/1.1 {status} No\r\nContent-Length: {len(what)}\r\n{close}\r\n{what}"
    return text.encode()


def relayed(
    wire: Wire, script: Script | bytes, request: bytes = GET, **limits: float
) -> Answer:
    """What a client gets for one request to a worker that does this."""
    if isinstance(script, bytes):
        script = answer(script)
    relay = wire(script, **limits)
    return ask(relay.port, request)
