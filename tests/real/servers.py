"""Real processes for the tests here: vLLM servers, and the router before them.

Knows how each is started, watched and ended; what they should do stands in the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.router_process import RouterProcess

#: Seconds a server is given to start: 25 to 50 were seen on two busy cores.
START_LIMIT = 240.0

_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Otherwise every server binds its threads to the same cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
}


def fetch(url: str, body: object = None) -> bytes:
    """GET, or POST of JSON; raises OSError (HTTPError among them) unless it is 2xx."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: bytes = answer.read()
        return content


class VllmServer:
    """One `vllm serve` of the tiny model, with LoRA, on a port that stays its own."""

    def __init__(self, venv: Path, model: Path, log: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._program = venv / "bin" / "vllm"
        self._model = model
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it refuses connections until it is ready."""
        argv = [str(self._program), "serve", str(self._model)]
        argv += ["--host", "127.0.0.1", "--port", str(self.port)]
        argv += ["--served-model-name", "tiny", "--dtype", "float32"]
        argv += ["--enforce-eager", "--max-model-len", "16384", "--max-num-seqs", "16"]
        argv += ["--enable-lora", "--max-loras", "2", "--max-lora-rank", "8"]
        argv += ["--shutdown-timeout", "60"]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )

    def running(self) -> bool:
        """Whether its API server's process is there."""
        return self._process is not None and self._process.poll() is None

    async def ready(self) -> float:
        """Wait until it answers; returns that moment on the monotonic clock."""
        end = time.monotonic() + START_LIMIT
        while time.monotonic() < end:
            if not self.running():
                raise RuntimeError(f"vLLM ended at start: see {self._log}")
            with contextlib.suppress(OSError):
                await asyncio.to_thread(fetch, f"{self.url}/health")
                return time.monotonic()
            await asyncio.sleep(0.02)
        raise RuntimeError(f"vLLM was not ready in {START_LIMIT} s: see {self._log}")

    async def ensure_ready(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if not self.running():
            self.stop()
            self.start()
        await self.ready()

    def terminate(self) -> None:
        """SIGTERM: it drains for up to --shutdown-timeout."""
        assert self._process is not None
        self._process.terminate()

    async def exited(self) -> None:
        """Wait until it has ended by itself."""
        while self.running():
            await asyncio.sleep(0.02)

    def kill_engine(self) -> None:
        """kill -9 of the engine's process alone; the API server finds out by itself."""
        assert self._process is not None
        family = _descendants(self._process.pid)
        engines = [pid for pid in family if "EngineCore" in _title(pid)]
        assert engines
        for pid in engines:
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it at once; harmless where it does not run.

        The whole group is killed, since an engine outlives its API server.
        """
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    async def load_adapter(self, folder: Path) -> None:
        """Serve the adapter in `folder` under the folder's name."""
        body = {"lora_name": folder.name, "lora_path": str(folder)}
        await asyncio.to_thread(fetch, f"{self.url}/v1/load_lora_adapter", body)

    async def unload_adapter(self, name: str) -> None:
        """Serve it no more."""
        body = {"lora_name": name}
        await asyncio.to_thread(fetch, f"{self.url}/v1/unload_lora_adapter", body)

    async def running_requests(self) -> float:
        """What the engine works on now."""
        return await self._metric("vllm:num_requests_running")

    async def generated_tokens(self) -> float:
        """Tokens that the engine made since its start."""
        return await self._metric("vllm:generation_tokens_total")

    async def _metric(self, name: str) -> float:
        """The sum of a metric over its labels, from the server's own /metrics."""
        text = await asyncio.to_thread(fetch, f"{self.url}/metrics")
        lines = text.decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith((name + "{", name + " "))
        )


class Router:
    """A running `router serve`, asked without blocking the loop."""

    def __init__(self, process: RouterProcess) -> None:
        self.url = process.url
        self._process = process

    async def get(self, path: str) -> Any:
        """The JSON of one of its own routes."""
        status, value = await asyncio.to_thread(self._process.get, path)
        assert status == 200, (path, status, value)
        return value

    async def id_of(self, server: VllmServer) -> str:
        """The id that it gave to this server."""
        return str((await self._listed(server))["id"])

    async def status(self, server: VllmServer) -> str:
        """What it thinks of this server; empty while it does not list it."""
        return str((await self._listed(server)).get("status", ""))

    async def _listed(self, server: VllmServer) -> dict[str, Any]:
        listed = (await self.get("/workers"))["workers"]
        found = [worker for worker in listed if worker["url"] == server.url]
        return dict(*found)

    async def load(self) -> int:
        """Requests in flight, over all workers."""
        return int((await self.get("/workers"))["stats"]["in_flight"])

    async def models(self) -> dict[str, Any]:
        """Model id -> its entry in /v1/models."""
        return {entry["id"]: entry for entry in (await self.get("/v1/models"))["data"]}


@contextlib.asynccontextmanager
async def serve(*flags: str) -> AsyncIterator[Router]:
    """`router serve` with these flags on a free port; it must end with status 0."""
    with RouterProcess(*flags) as process:
        yield Router(process)


async def until(condition: Callable[[], Awaitable[bool]], limit: float = 120.0) -> None:
    """Wait until the awaited condition holds; raises TimeoutError after `limit` s."""
    async with asyncio.timeout(limit):
        while not await condition():
            await asyncio.sleep(0.02)


def _descendants(root: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    children: dict[int, list[int]] = {}
    for line in listed.stdout.splitlines():
        pid, parent = map(int, line.split())
        children.setdefault(parent, []).append(pid)
    found, todo = [], children.get(root, [])
    while todo:
        found += todo
        todo = [child for pid in todo for child in children.get(pid, [])]
    return found


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""
