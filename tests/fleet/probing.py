"""Health and model reads over real sockets, with everything that belongs to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from router._core import Index, Slots
from router.fleet.client import Client
from router.fleet.health import Health
from router.fleet.models import ModelReader
from router.fleet.registry import Registry
from router.fleet.worker import Registration, Status, Worker
from tests.support.mini_worker import MiniWorker

#: Seconds that something may take on a busy machine; nothing is measured by it.
PATIENCE = 20.0


@dataclass
class Probing:
    """A registry that is probed."""

    registry: Registry
    models: ModelReader
    health: Health

    def register(self, worker: MiniWorker, **more: object) -> Worker:
        registration = Registration(worker.url, **more)  # type: ignore[arg-type]
        return self.registry.register(registration).workers[0]

    def status(self, worker: MiniWorker) -> Status:
        return self.registry.find(worker.url).status

    def error(self, worker: MiniWorker) -> str | None:
        return self.registry.find(worker.url).last_error

    async def ready(self, *workers: MiniWorker) -> None:
        await until(lambda: all(self.status(w) is Status.READY for w in workers))
        await self.registry.settled()

    async def is_(self, status: Status, worker: MiniWorker) -> None:
        await until(lambda: self.status(worker) is status)
        await self.registry.settled()


@asynccontextmanager
async def probing(
    *,
    interval: float = 10.0,
    timeout: float = 5.0,
    refresh_checks: int = 5,
    failure_threshold: int = 3,
    success_threshold: int = 1,
    startup_timeout: float = 0.0,
    api_key: str | None = None,
    unlisted_wildcard: bool = False,
    endpoint: str = "/health",
    before: Sequence[MiniWorker] = (),
) -> AsyncIterator[Probing]:
    """`before`: workers that are registered before anything probes them."""
    loop = asyncio.get_running_loop()
    registry = Registry(
        Index(Slots(seed=1)),
        unlisted_wildcard=unlisted_wildcard,
        scheduler=loop.call_later,
    )
    for worker in before:
        registry.register(Registration(worker.url))
    registry.flush()
    client = Client()
    models = ModelReader(
        registry,
        client,
        refresh_checks=refresh_checks,
        timeout=timeout,
        api_key=api_key,
    )
    health = Health(
        registry,
        models,
        client,
        interval=interval,
        timeout=timeout,
        endpoint=endpoint,
        failure_threshold=failure_threshold,
        success_threshold=success_threshold,
        startup_timeout=startup_timeout,
        api_key=api_key,
    )
    try:
        yield Probing(registry, models, health)
    finally:
        await health.stop()
        await models.stop()
        client.close()


async def until(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds; fails if it takes too long."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)
