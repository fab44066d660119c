"""A whole router beside the test, on a thread and a loop of its own.

The test speaks to it over raw sockets and sees what users and operators see: answers,
GET /workers, /metrics. Leaving fails if the router logged an error, or if the loop had
an exception that nobody handled.

    with RawWorker(like_vllm("m", saying(ok()))) as worker, running(worker) as router:
        assert router.ask(post("/v1/completions", b'{"model":"m"}')).status == 200
        router.at_rest()
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import uvloop

from router import settings
from router.app import Router
from tests.support.http import Answer, RawClient, ask
from tests.support.raw_worker import RawWorker, like_vllm

#: Seconds that a test waits for a state that must come. None takes as long.
PATIENCE = 20.0

_SAMPLE = re.compile(r"(?P<name>\w+)(\{(?P<labels>.*)\})? (?P<value>\S+)")


class Running:
    """A router that runs."""

    def __init__(self, *flags: str) -> None:
        self.port = 0
        #: What went wrong inside that no answer told of.
        self.faults: list[str] = []
        self._settings = settings.load(["--port", "0", *flags], {})
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="router")
        self._inside: tuple[asyncio.AbstractEventLoop, Router, asyncio.Event] | None
        self._inside = None

    # --- asking -----------------------------------------------------------------------

    def client(self) -> RawClient:
        """A connection to it."""
        return RawClient(self.port, timeout=PATIENCE)

    def ask(self, request: bytes, *pieces: bytes) -> Answer:
        """One request on a connection of its own."""
        return ask(self.port, request, *pieces, timeout=PATIENCE)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """A request to one of its own routes: status, and JSON or text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body).encode()
            )
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def workers(self) -> list[dict[str, Any]]:
        """As GET /workers lists them."""
        listed: list[dict[str, Any]] = self.call("GET", "/workers")[1]["workers"]
        return listed

    def id_of(self, worker: RawWorker) -> str:
        """What X-Router-Worker calls it."""
        return str(next(w["id"] for w in self.workers() if w["base_url"] == worker.url))

    def samples(self) -> dict[str, float]:
        """/metrics: name with labels -> value, without the prefix of our names."""
        found = {}
        for line in self.call("GET", "/metrics")[1].splitlines():
            if match := _SAMPLE.fullmatch(line):
                name = match["name"].removeprefix("fleetrouter_")
                labels = f"{{{match['labels']}}}" if match["labels"] else ""
                found[name + labels] = float(match["value"])
        return found

    def sample(self, name: str) -> float:
        """One of them; 0 if it is not there (yet)."""
        return self.samples().get(name, 0.0)

    # --- waiting for a state ----------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Returns once `holds()`; what a test waits for always comes, or it fails."""
        deadline = monotonic() + PATIENCE
        while not holds():
            assert monotonic() < deadline, f"it never came to this: {what}"
            sleep(0.005)

    def ready(self, count: int) -> None:
        """Returns once `count` workers are ready."""
        self.until(lambda: self._ready() == count, f"{count} workers are ready")

    def serving(self, count: int) -> None:
        """Returns once `count` requests are in flight at workers."""
        self.until(
            lambda: sum(w["load"] for w in self.workers()) == count,
            f"{count} requests are at workers",
        )

    def at_rest(self, *clients: RawClient) -> None:
        """Returns once nothing is left of any request: no load, nothing held.

        `clients`: connections that are still open.
        """
        # The connection that asks is one more.
        most = len(clients) + 1
        self.until(lambda: not self._left(most), f"nothing left of {self._left(most)}")

    def tasks(self) -> list[str]:
        """The tasks that the way of a request has running now."""
        assert self._inside is not None
        loop, _, _ = self._inside
        found: Future[list[str]] = Future()

        def look() -> None:
            names = [str(task.get_coro()) for task in asyncio.all_tasks(loop)]
            found.set_result([name for name in names if "Connections." in name])

        loop.call_soon_threadsafe(look)
        return found.result(PATIENCE)

    def _ready(self) -> int:
        return sum(worker["status"] == "ready" for worker in self.workers())

    def _left(self, most: int) -> list[str]:
        samples = self.samples()
        left = [w["id"] for w in self.workers() if w["load"]]
        left += [
            name
            for name in ("requests_in_flight", "hold_waiting", "buffered_bytes")
            if samples[name]
        ]
        return left + ["client_connections"] * (samples["client_connections"] > most)

    # --- its life ---------------------------------------------------------------------

    def start(self) -> None:
        """Returns once it listens."""
        self._thread.start()
        assert self._started.wait(PATIENCE), "the router did not start"
        assert self.port, f"the router did not start: {self.faults}"

    def drain(self) -> Future[None]:
        """Begins to drain it, as a first signal would."""
        assert self._inside is not None
        loop, router, _ = self._inside
        return asyncio.run_coroutine_threadsafe(router.drain(), loop)

    def stop(self) -> None:
        """Ends it, as a second signal would, and whatever it had open."""
        if self._inside is not None:
            loop, _, stopping = self._inside
            loop.call_soon_threadsafe(stopping.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the router did not stop"

    def _run(self) -> None:
        try:
            uvloop.run(self._main())
        except Exception as error:
            self.faults.append(repr(error))
            raise
        finally:
            self._started.set()

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: self.faults.append(str(about)))
        stopping = asyncio.Event()
        router = Router(self._settings)
        self._inside = (loop, router, stopping)
        try:
            await router.start()
            self.port = router.port
            self._started.set()
            await stopping.wait()
        finally:
            self._inside = None
            await router.stop()


class _Errors(logging.Handler):
    """Collects what the router logs as errors."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        self._faults.append(self.format(record))


@contextmanager
def running(*workers: RawWorker, flags: tuple[str, ...] = ()) -> Iterator[Running]:
    """A router in front of these workers, once they are ready.

    Checks of ready workers are so far apart that they come in no test's way.
    """
    urls = ("--worker-urls", *(worker.url for worker in workers)) if workers else ()
    router = Running("--health-check-interval-secs", "3600", *urls, *flags)
    errors = _Errors(router.faults)
    logging.getLogger("router").addHandler(errors)
    try:
        router.start()
        try:
            if workers:
                router.ready(len(workers))
            yield router
        finally:
            router.stop()
    finally:
        logging.getLogger("router").removeHandler(errors)
    assert not router.faults, "\n".join(router.faults)


@contextmanager
def deaf(router: Running, model: str = "deaf") -> Iterator[None]:
    """A worker that is ready, and to which no connection comes into being any more."""
    with RawWorker(like_vllm(model, lambda connection, request: None)) as worker:
        router.call("POST", "/workers", {"url": worker.url})
        router.until(lambda: router.workers()[-1]["status"] == "ready", "it is ready")
        worker.refuse()
        with socket.create_server(("127.0.0.1", worker.port), backlog=0) as listener:
            filling = [socket.socket() for _ in range(8)]
            for each in filling:
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    each.connect(listener.getsockname())
            try:
                yield
            finally:
                for each in filling:
                    each.close()
