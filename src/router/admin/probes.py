"""What machines ask of the router: is it alive, is it ready, what does it serve.

Owns /liveness, /readiness, /health, /v1/models and /metrics. They are open to
everybody, never wait for a worker, and read what is published.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from router.admin.frame import answer, encoded
from router.admin.turns import Page, in_turns
from router.errors import ModelNotFound
from router.fleet.catalogue import Catalogue
from router.fleet.change import Change
from router.fleet.registry import Registry
from router.fleet.snapshot import ModelReadiness, Snapshot
from router.fleet.worker import ModelCard, Status
from router.observe.exposition import CONTENT_TYPE
from router.observe.metrics import Metrics


class ProbeRoutes:
    """The routes that need no key."""

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        *,
        min_ready_workers: int,
        draining: Callable[[], bool],
    ) -> None:
        """`draining`: whether the router is about to stop."""
        self._registry = registry
        self._metrics = metrics
        self._min_ready = min_ready_workers
        self._draining = draining
        self._ever = bool(registry.snapshot.slots)
        self._models = Page(_write_models)
        self._readiness = Page(_write_readiness)
        registry.subscribe(self._follow)

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application."""
        return [
            web.get("/liveness", self.liveness),
            web.get("/readiness", self.readiness),
            web.get("/health", self.health),
            web.get("/metrics", self.metrics),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{id:.+}", self.model),
        ]

    async def liveness(self, _: web.Request) -> web.Response:
        """The loop runs, and that is all it says."""
        return answer({"status": "alive"})

    async def readiness(self, _: web.Request) -> web.Response:
        """Whether requests should be sent here now."""
        snapshot = self._registry.snapshot
        ready = snapshot.counts[Status.READY]
        status = "ready" if ready >= self._min_ready else "not_ready"
        if self._draining():
            status = "draining"
        head = {
            "status": status,
            "ready_workers": ready,
            "total_workers": len(snapshot.slots),
        }
        models = await self._readiness.of(snapshot)
        body = b'%b,"models":%b}' % (msgspec.json.encode(head)[:-1], models)
        return encoded(body, 200 if status == "ready" else 503)

    async def health(self, _: web.Request) -> web.Response:
        """Whether the router does its work: not while it has lost its workers, but
        before it was ever given one."""
        snapshot = self._registry.snapshot
        ready = snapshot.counts[Status.READY]
        healthy = ready >= self._min_ready or not self._ever
        body = {
            "status": "healthy" if healthy else "unhealthy",
            "ready_workers": ready,
            "total_workers": len(snapshot.slots),
        }
        return answer(body, 200 if healthy else 503)

    async def models(self, _: web.Request) -> web.Response:
        """What can be asked for now, as OpenAI lists it."""
        return encoded(await self._models.of(self._registry.snapshot))

    async def model(self, request: web.Request) -> web.Response:
        """One of them; ids may hold `/`, encoded or not."""
        wanted = request.match_info["id"]
        card = self._registry.snapshot.model(wanted)
        if card is None:
            raise ModelNotFound(f"The model `{wanted}` does not exist.")
        return answer(_openai(card))

    async def metrics(self, _: web.Request) -> web.Response:
        """All counters, as Prometheus reads them."""
        return await metrics_page(self._metrics)

    def _follow(self, change: Change) -> None:
        self._ever = self._ever or bool(change.added)


async def metrics_page(metrics: Metrics) -> web.Response:
    """The exposition."""
    await metrics.gathered()
    lines = await in_turns(str.encode, metrics.lines())
    body = b"\n".join([line for line in lines if line] + [b""])
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


async def _write_models(snapshot: Snapshot) -> bytes:
    catalogue = Catalogue()
    await in_turns(catalogue.add, snapshot.workers)
    data = await in_turns(_entry, catalogue.cards())
    return b'{"object":"list","data":[%b]}' % b",".join(data)


async def _write_readiness(snapshot: Snapshot) -> bytes:
    return b"{%b}" % b",".join(await in_turns(_ready, snapshot.readiness()))


def _ready(of: tuple[str, ModelReadiness]) -> bytes:
    name, state = of
    counts = (msgspec.json.encode(name), state.ready, state.total)
    return b'%b:{"ready":%d,"total":%d}' % counts


def _entry(card: ModelCard) -> bytes:
    return msgspec.json.encode(_openai(card))


def _openai(card: ModelCard) -> dict[str, object]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": "vllm",
        "root": card.root,
        "parent": card.parent,
        "max_model_len": card.max_model_len,
        "permission": [],
    }
