"""`router serve` as a real process, for tests that need the whole of it.

    with RouterProcess("--worker-urls", *fleet.urls) as router:
        requests go to router.url

    async with serving("--worker-urls", *fleet.urls) as router:      # beside a loop

Leaving ends it with SIGTERM, after a while with SIGKILL, and checks that nothing of
it is left. What it logged is in `router.logs()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from .ports import free_port


class RouterFailed(AssertionError):
    """The router did not start, or did not end as it should."""


class RouterProcess:
    """A router in a process group of its own, on a free loopback port."""

    def __init__(
        self,
        *flags: str,
        env: dict[str, str] | None = None,
        start_timeout: float = 20.0,
        stop_timeout: float = 20.0,
    ) -> None:
        """flags: of `router serve`, beside --host and --port. env: added to ours."""
        self.port = free_port()
        self.command = [
            *(sys.executable, "-m", "router", "serve"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *flags,
        ]
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._last_logs = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Starts it and waits until GET /liveness answers. Raises RouterFailed."""
        self._folder = tempfile.TemporaryDirectory(prefix="router-")
        with self._log_file().open("wb") as log:
            self._process = subprocess.Popen(
                self.command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = monotonic() + self._start_timeout
        while not self._live():
            if self._process.poll() is not None or monotonic() > deadline:
                self.kill()
                raise RouterFailed(f"the router did not start:\n{self.logs()}")
            sleep(0.02)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL past the time limit; gives the exit code.

        Raises RouterFailed if it had to be killed or left processes behind.
        """
        self._running().send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """As `stop`, for an end that was asked for otherwise."""
        process = self._running()
        try:
            code = process.wait(self._stop_timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RouterFailed(f"it did not end:\n{self.logs()}") from None
        left = _group_exists(process.pid)
        self.kill()
        if left:
            raise RouterFailed(f"it left processes behind:\n{self.logs()}")
        return code

    def poll(self) -> int | None:
        """The exit code of one that ended by itself; None: it runs."""
        return self._running().poll()

    def kill(self) -> None:
        """SIGKILL to all of it, if there is anything; keeps the logs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._folder is not None:
            self._last_logs = self.logs()
            self._folder.cleanup()
            self._folder = None

    def logs(self) -> str:
        """All it wrote to stdout and stderr so far."""
        if self._folder is None:
            return self._last_logs
        return self._log_file().read_text(errors="replace")

    def get(self, path: str, *, timeout: float = 5.0) -> tuple[int, Any]:
        """GET of one of its own routes: status and JSON (or text) of the answer."""
        return self.call("GET", path, timeout=timeout)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
        timeout: float = 5.0,
    ) -> tuple[int, Any]:
        """A request to it on a fresh connection, with a JSON body if there is one.

        Raises OSError if it does not answer.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            kind = {} if data is None else {"content-type": "application/json"}
            connection.request(method, path, data, {**kind, **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def workers(self) -> list[dict[str, Any]]:
        """What GET /workers lists, in its order."""
        status, body = self.get("/workers")
        if status != 200:
            raise RouterFailed(f"GET /workers answered {status}: {body}")
        listed: list[dict[str, Any]] = body["workers"]
        return listed

    def wait_ready(self, count: int, *, timeout: float = 15.0) -> None:
        """Returns once `count` workers are ready. Raises RouterFailed."""
        deadline = monotonic() + timeout
        while sum(w["status"] == "ready" for w in self.workers()) < count:
            if monotonic() > deadline:
                raise RouterFailed(f"not {count} ready: {self.workers()}")
            sleep(0.02)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if problem is not None:
            print(self.logs(), file=sys.stderr)
            self.kill()
        elif self._process is not None:
            code = self.stop()
            if code != 0:
                raise RouterFailed(f"exit code {code}:\n{self.logs()}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RouterFailed("the router is not running")
        return self._process

    def _log_file(self) -> Path:
        if self._folder is None:
            raise RouterFailed("the router was not started")
        return Path(self._folder.name) / "router.log"

    def _live(self) -> bool:
        try:
            return self.get("/liveness", timeout=2.0)[0] == 200
        except (OSError, http.client.HTTPException):
            return False


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def serving(*flags: str) -> AsyncIterator[RouterProcess]:
    """A router process beside a running loop, which is never blocked by it."""
    router = RouterProcess(*flags)
    await asyncio.to_thread(router.start)
    try:
        yield router
    except BaseException as problem:
        await asyncio.to_thread(router.__exit__, type(problem), problem, None)
        raise
    await asyncio.to_thread(router.__exit__, None, None, None)
