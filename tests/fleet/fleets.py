"""Short ways to build a registry and to say what is true of it."""

from __future__ import annotations

from collections.abc import Mapping

from router._core import Index, Pool, Slot, Slots
from router.fleet.change import Change
from router.fleet.registry import Registry
from router.fleet.snapshot import owner
from router.fleet.worker import ModelCard, Registration, Status, Worker


def make_registry(
    *,
    aliases: Mapping[str, str] | None = None,
    unlisted_wildcard: bool = False,
) -> Registry:
    """A registry that publishes each mutation by itself."""
    return Registry(
        Index(Slots(seed=1)),
        model_aliases=aliases,
        unlisted_wildcard=unlisted_wildcard,
        clock=lambda: 1000.0,
    )


def url(number: int = 1) -> str:
    return f"http://10.0.0.{number}:8000"


def cards(*names: str) -> list[ModelCard]:
    """Base models, or `parent/adapter` for a LoRA adapter."""
    found = []
    for name in names:
        parent, _, adapter = name.rpartition("/")
        found.append(ModelCard(adapter, parent=parent or None, root=name))
    return found


def join(
    registry: Registry,
    number: int,
    *models: str,
    registration: Registration | None = None,
) -> Worker:
    """A worker that is registered, healthy, and whose list was read."""
    given = registration or Registration(url(number))
    worker = registry.register(given).workers[0]
    registry.set_health(worker.slot, True)
    registry.sync_models(worker.slot, cards(*models))
    return now(worker)


def now(worker: Worker) -> Worker:
    """The worker's newest published value."""
    return owner(worker.slot)


def status(worker: Worker) -> Status:
    return now(worker).status


def listed(registry: Registry, model: str) -> set[str]:
    """URLs that GET /workers?model= shows."""
    return {worker.url for worker in registry.workers(model)}


def routed(
    registry: Registry, model: str | None, provider: str | None = None
) -> set[str]:
    """URLs that requests for the model get, found by asking until nobody is left."""
    snapshot = registry.snapshot
    pool = snapshot.everyone if model is None else snapshot.pool(model)
    number = 0 if provider is None else snapshot.provider(provider)
    if pool is None or number is None:
        return set()
    return drawn(registry, pool, number)


def drawn(registry: Registry, pool: Pool, provider: int = 0) -> set[str]:
    """URLs of all that the pool gives, one after the other; nothing stays counted."""
    tried: tuple[Slot, ...] = ()
    while (slot := pool.least_load(tried, provider)) is not None:
        tried = (*tried, slot)
    for slot in tried:
        registry.slots.release(slot)
    urls = {owner(slot).url for slot in tried}
    assert len(urls) == len(tried), "a worker was given twice"
    return urls


class Changes(list[Change]):
    """Collects what a registry tells."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        registry.subscribe(self.append)
