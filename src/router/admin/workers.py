"""/workers: the fleet seen and changed.

Owns these routes and nothing of the fleet: what a field means and whether it is good
is said in router.fleet. A change is answered once it is published; none waits for a
worker.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from aiohttp import web

from router.admin.frame import answer, encoded, json_object, peer
from router.admin.listing import Listing, LoadOf
from router.errors import BadRequest
from router.fleet import registration
from router.fleet.registry import Registry
from router.fleet.worker import Registration, Worker, to_json

log = logging.getLogger(__name__)


class WorkerRoutes:
    """The routes of /workers."""

    def __init__(self, registry: Registry, load_of: LoadOf, *, dp_size: int) -> None:
        """`dp_size`: ranks of a URL that is registered without saying how many."""
        self._registry = registry
        self._load_of = load_of
        self._listing = Listing(load_of)
        self._dp_size = dp_size
        registry.subscribe(self._listing.follow)

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application. A key is an id or a URL, encoded or not."""
        return [
            web.get("/workers", self.list),
            web.post("/workers", self.add),
            web.post("/workers/{key:.+}/drain", self.drain),
            web.get("/workers/{key:.+}", self.show),
            web.patch("/workers/{key:.+}", self.patch),
            web.delete("/workers/{key:.+}", self.remove),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """All workers, or all candidates of ?model=."""
        workers = self._registry.workers(request.query.get("model"))
        return encoded(await self._listing.write(workers))

    async def add(self, request: web.Request) -> web.Response:
        """Registers a worker; one of the same URL is replaced."""
        wanted = registration.parse(await json_object(request))
        workers, replaced = await self.register(wanted, peer(request))
        body: dict[str, object] = {
            "worker": self._json(workers[0]),
            "replaced": replaced,
        }
        if workers[0].dp_rank is not None:
            body["workers"] = [self._json(worker) for worker in workers]
        return answer(body, 201)

    async def register(
        self, wanted: Registration, client: str
    ) -> tuple[tuple[Worker, ...], bool]:
        """The workers of a registration once it is published, and whether others of
        its URL had to go."""
        if wanted.dp_size is None and self._dp_size > 1:
            wanted = replace(wanted, dp_size=self._dp_size)
        registered = self._registry.register(wanted)
        await self._registry.settled()
        for worker in registered.workers:
            _tell("worker registered", worker, client)
        return registered.workers, bool(registered.replaced)

    async def show(self, request: web.Request) -> web.Response:
        """One worker."""
        return answer(self._json(self._registry.find(_key(request))))

    async def patch(self, request: web.Request) -> web.Response:
        """Changes what a worker was registered with."""
        change = registration.parse_patch(await json_object(request))
        workers = self._registry.patch(_key(request), change)
        return await self._changed("worker changed", workers, request)

    async def drain(self, request: web.Request) -> web.Response:
        """No new requests; goes when it is empty."""
        workers = self._registry.drain(_key(request))
        return await self._changed("worker draining", workers, request)

    async def remove(self, request: web.Request) -> web.Response:
        """Goes now, or within ?drain_secs=; running requests finish."""
        key, seconds = _key(request), _drain_secs(request)
        if seconds > 0:
            workers = self._registry.drain(key, seconds)
        else:
            workers = self._registry.remove(key)
        return await self._changed("worker removed", workers, request)

    async def _changed(
        self, event: str, workers: tuple[Worker, ...], request: web.Request
    ) -> web.Response:
        await self._registry.settled()
        for worker in workers:
            _tell(event, worker, peer(request))
        return answer(self._json(workers[0]))

    def _json(self, worker: Worker) -> dict[str, object]:
        return to_json(worker, self._load_of(worker))


def _tell(event: str, worker: Worker, client: str) -> None:
    log.info(event, extra={"worker": worker.id, "url": worker.url, "client": client})


def _key(request: web.Request) -> str:
    return request.match_info["key"]


def _drain_secs(request: web.Request) -> float:
    text = request.query.get("drain_secs", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BadRequest(
            "`drain_secs` must be a number of seconds, 0 or more.", param="drain_secs"
        )
    return seconds
