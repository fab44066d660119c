"""The admin routes of vllm-router, for the scripts that call them.

Owns /add_worker, /remove_worker, /list_workers, /get_loads, /flush_cache and
/finish_session. Answers that are text there are the same text here; errors have the
router's own shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiohttp
import msgspec
from aiohttp import web

from router.admin.frame import answer, encoded, peer, query
from router.admin.listing import LoadOf
from router.admin.turns import in_turns
from router.admin.workers import WorkerRoutes
from router.errors import BadRequest, WorkerNotFound, WorkerTimeout, WorkerUnreachable
from router.fleet import registration
from router.fleet.change import Change
from router.fleet.registry import Registry
from router.fleet.worker import Status, Worker

#: Workers asked at once by /flush_cache, seconds for each, and for all of them.
FLUSH_WORKERS = 64
FLUSH_TIMEOUT = 5.0
FLUSH_TIMEOUT_ALL = 60.0
#: How long /add_worker waits if workers may take for ever to start.
ADD_TIMEOUT = 600.0


class Changes:
    """Lets coroutines wait for the fleet to change."""

    def __init__(self, registry: Registry) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        registry.subscribe(self._follow)

    async def next(self) -> None:
        """Returns after the next publication."""
        await self._changed.wait()

    def _follow(self, _: Change) -> None:
        """Any thread may publish."""
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class CompatRoutes:
    """vllm-router's routes, over the same registry."""

    def __init__(
        self,
        registry: Registry,
        workers: WorkerRoutes,
        session: aiohttp.ClientSession,
        load_of: LoadOf,
        *,
        api_key: str | None,
        startup_timeout: float,
    ) -> None:
        """`api_key`: sent to workers that have none of their own. `startup_timeout`:
        seconds that /add_worker waits for a worker; 0: ADD_TIMEOUT."""
        self._registry = registry
        self._workers = workers
        self._session = session
        self._load_of = load_of
        self._api_key = api_key
        self._startup_timeout = startup_timeout or ADD_TIMEOUT
        self._changes = Changes(registry)

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application."""
        return [
            web.post("/add_worker", self.add_worker),
            web.post("/remove_worker", self.remove_worker),
            web.get("/list_workers", self.list_workers),
            web.get("/get_loads", self.get_loads),
            web.post("/flush_cache", self.flush_cache),
            web.post("/finish_session", self.finish_session),
        ]

    async def add_worker(self, request: web.Request) -> web.Response:
        """Registers ?url= and answers once it is ready."""
        wanted = registration.parse({"url": query(request, "url")})
        if self._has(wanted.url):
            raise BadRequest(f"Worker {wanted.url} already exists", param="url")
        workers, _ = await self._workers.register(wanted, peer(request))
        try:
            async with asyncio.timeout(self._startup_timeout):
                while not self._all_ready(workers):
                    await self._changes.next()
        except (TimeoutError, WorkerNotFound) as error:
            raise WorkerTimeout(
                f"The worker was not up within {self._startup_timeout:g} s, "
                "or was removed meanwhile."
            ) from error
        await self._registry.settled()
        return web.Response(text=f"Successfully added worker: {wanted.url}")

    async def remove_worker(self, request: web.Request) -> web.Response:
        """Takes out ?url=."""
        url = query(request, "url")
        self._registry.remove(url)
        await self._registry.settled()
        return web.Response(text=f"Successfully removed worker: {url}")

    async def list_workers(self, _: web.Request) -> web.Response:
        """URLs in registration order."""
        return answer({"urls": [worker.url for worker in self._registry.workers()]})

    async def get_loads(self, _: web.Request) -> web.Response:
        """Requests in flight, as the router counts them."""
        loads = await in_turns(self._load, self._registry.workers())
        return encoded(b'{"workers":[%b]}' % b",".join(loads))

    def _load(self, worker: Worker) -> bytes:
        return msgspec.json.encode(
            {"worker": worker.url, "load": self._load_of(worker)}
        )

    async def finish_session(self, request: web.Request) -> web.Response:
        """Nothing to let go of: no policy remembers sessions. Idempotent."""
        session_id = request.query.get("session_id", "")
        return answer({"status": "ok", "session_id": session_id})

    async def flush_cache(self, _: web.Request) -> web.Response:
        """Empties the prefix cache of every ready worker, ranks of one server once."""
        servers = {
            worker.base_url: worker
            for worker in self._registry.workers()
            if worker.status is Status.READY
        }
        failed = await self._flush_all(servers.values())
        if failed:
            raise WorkerUnreachable(
                f"Cache flushed on {len(servers) - len(failed)} of {len(servers)} "
                f"servers; not on: {', '.join(failed)}"
            )
        return web.Response(text="Cache flushed on all servers")

    async def _flush_all(self, workers: Iterable[Worker]) -> list[str]:
        """`id (reason)` of each worker where it failed."""
        failed = {worker.id: "not reached in time" for worker in workers}
        slots = asyncio.Semaphore(FLUSH_WORKERS)

        async def flush(worker: Worker) -> None:
            async with slots:
                reason = await self._flush(worker)
            if reason is None:
                del failed[worker.id]
            else:
                failed[worker.id] = reason

        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_ALL), asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(flush(worker))
        except TimeoutError:
            pass  # `failed` names those that are left
        return [f"{worker_id} ({reason})" for worker_id, reason in failed.items()]

    async def _flush(self, worker: Worker) -> str | None:
        """Why it failed, or None."""
        key = worker.api_key or self._api_key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            async with self._session.post(
                f"{worker.base_url}/reset_prefix_cache",
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=FLUSH_TIMEOUT),
            ) as response:
                return None if response.ok else f"status {response.status}"
        except TimeoutError:
            return f"no answer in {FLUSH_TIMEOUT:g} s"
        except aiohttp.ClientError:
            return "unreachable"

    def _has(self, url: str) -> bool:
        try:
            self._registry.find(url)
        except WorkerNotFound:
            return False
        return True

    def _all_ready(self, workers: Iterable[Worker]) -> bool:
        """Raises WorkerNotFound if one is gone again."""
        found = [self._registry.find(worker.id) for worker in workers]
        return all(worker.status is Status.READY for worker in found)
