"""One system, up and running before a mock fleet, and checked to answer rightly."""

from __future__ import annotations

import http.client
import shlex
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from bench.rig import processes
from bench.rig.configs import Setup
from bench.rig.engines import METRICS_PORT, PORT, Engines
from bench.rig.http import CHAT, chat, get, post
from bench.rig.processes import HOLD_S, Lock, prefer, tree
from bench.rig.systems import SYSTEMS


class Failed(Exception):
    """A system that did not start, or does not answer as it should."""


class Running:
    """A mock fleet and (unless the system is `direct`) a router before it."""

    def __init__(
        self,
        name: str,
        policy: str,
        workers: int,
        models: int,
        *,
        directory: Path,
        health_s: int,
        lock: Lock | None = None,
        mocks: int = 1,
    ) -> None:
        """With `lock`, the start is itself measured.

        It is then alone on the machine for as long as the lock may be held. `mocks`:
        processes of the mock fleet at least.
        """
        self.name, self.spec = name, SYSTEMS[name]
        self.n, self.n_models, self.policy = workers, models, policy
        self.dir = directory / name
        self.dir.mkdir(parents=True, exist_ok=True)
        self.engines = Engines(workers, models, mocks)
        addresses = tuple(self.engines.addresses)
        self.port = PORT if self.spec.command else _port(addresses[0])
        self.router: subprocess.Popen[bytes] | None = None
        #: Seconds until it listened, until all workers could be reached, CPU spent.
        self.listen_s = self.start_s = self.start_cpu_s = 0.0
        self._lock, self._held = lock, False
        self._setup = Setup(
            addresses=addresses,
            models=tuple(i * models // workers for i in range(workers)),
            n_models=models,
            policy=policy,
            dir=self.dir,
            cfg=self.dir / "config",
            port=PORT,
            mport=METRICS_PORT,
            health_s=health_s,
        )

    def __enter__(self) -> Running:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        processes.stop(self.router)
        self.engines.stop()

    def family(self) -> list[int]:
        """The router's processes; none without a router."""
        return tree(self.router.pid) if self.router else []

    def _start(self) -> None:
        self.engines.start(self.dir)
        if not self.spec.command:
            return
        if self.spec.config:
            self._setup.cfg.write_text(self.spec.config(self._setup))
        argv = self.spec.argv(self._setup)
        command = self.dir / f"command-{self.policy}-{self.n}-{self.n_models}.txt"
        command.write_text(shlex.join(argv) + "\n")
        if self._lock:
            self._lock.__enter__()
            self._held = True
        try:
            self._start_router(argv)
        finally:
            self._let_go()

    def _start_router(self, argv: list[str]) -> None:
        spec, limit, begin = self.spec, self.spec.start_s, time.time()
        with (self.dir / "router.log").open("wb") as log:
            self.router = processes.spawn(
                argv, spec.cpus, log, env=spec.env, cwd=self.dir
            )
        if self._held:
            prefer([self.router.pid, *self.engines.pids()], True)
        self._wait_for(lambda: get(PORT, spec.ready).status == 200, limit, "router")
        self.listen_s = time.time() - begin
        if self.n_models > 1 and spec.register:
            self._register()
        if spec.workers:
            self._wait_for(
                lambda: self._healthy() >= self.n, limit, f"{self.n} workers"
            )
        for model in {0, self.n_models - 1}:
            probe = partial(self._serves, f"model-{model}")
            self._wait_for(probe, limit, "first reply")
        self.start_s = time.time() - begin
        self.start_cpu_s = processes.cpu_of(self.family())[0]

    def _register(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        for url, model in zip(self._setup.urls, self._setup.models, strict=True):
            body = {"url": url, "model_id": f"model-{model}"}
            answer = post(PORT, "/workers", body, connection=connection)
            if answer.status >= 300:
                raise Failed(f"POST /workers: {answer.status} {answer.body[:200]!r}")
            self._let_go(HOLD_S)
        connection.close()

    def _healthy(self) -> int:
        listed = get(PORT, self.spec.workers, 20).json()["workers"]
        return sum(1 for worker in listed if worker.get("is_healthy"))

    def _serves(self, model: str) -> bool:
        return post(PORT, CHAT, chat(model)).status == 200

    def _let_go(self, after: float = 0.0) -> None:
        """Give the machine lock back once it was held for `after` seconds."""
        if self._lock and self._held and self._lock.left() <= HOLD_S - after:
            prefer([*self.family(), *self.engines.pids()], False)
            self._lock.__exit__()
            self._held = False

    def _wait_for(self, probe: Callable[[], bool], limit: float, what: str) -> None:
        end, why = time.time() + limit, "no answer"
        while time.time() < end:
            if failure := self.engines.failure():
                raise Failed(failure)
            if self.router and self.router.poll() is not None:
                raise Failed(f"router exited with {self.router.returncode}")
            begin = time.time()
            try:
                if probe():
                    return
                why = "not yet"
            except (
                OSError,
                http.client.HTTPException,
                ValueError,
                KeyError,
                TypeError,
            ) as error:
                why = repr(error)
            self._let_go(HOLD_S)
            # A question that takes its time is not to be what the start consists of.
            time.sleep(max(0.02, 3 * (time.time() - begin)))
        raise Failed(f"{what}: not there after {limit} s ({why})")

    def preflight(self) -> dict[str, object]:
        """Check a reply, a stream and stickiness before anything is measured.

        Returns notes of what passed unchanged; raises Failed for a wrong answer.
        """
        notes: dict[str, object] = {}
        answer = post(self.port, CHAT, chat(f"model-{self.n_models - 1}"))
        value = answer.json()
        if answer.status != 200 or not ("worker" in value or "choices" in value):
            raise Failed(f"bad reply {answer.status} {answer.body[:200]!r}")
        if worker := value.get("worker"):
            if value["model"] != f"model-{self.n_models - 1}":
                raise Failed("a request went to a worker of another model")
            notes["reply_unchanged"] = answer.body == _direct(worker, chat())
        request = chat("model-0", stream=True)
        answer = post(self.port, CHAT, request)
        events = answer.body.count(b"data: {")
        if answer.status != 200 or b"[DONE]" not in answer.body or events < 50:
            raise Failed(f"bad stream: {answer.status}, {events} events")
        if worker := answer.headers.get("x-worker"):
            notes["stream_unchanged"] = answer.body == _direct(worker, request)
        if self.policy == "sticky" and self.spec.command:
            kept = sum(self._keeps(f"probe-{k}") for k in range(20))
            notes["sticky_keys_ok"] = f"{kept}/20"
        return notes

    def _keeps(self, key: str) -> bool:
        """Whether four requests of one session reach one worker."""
        seen = set()
        for _ in range(4):
            answer = post(self.port, CHAT, chat(), {self.spec.key: key})
            seen.add(answer.headers.get("x-worker") or answer.json().get("worker"))
        return len(seen) == 1


def _direct(worker: str, request: object) -> bytes:
    """What an engine says to a request without a router."""
    host = worker.partition(":")[0]
    return post(_port(worker), CHAT, request, host=host).body


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
