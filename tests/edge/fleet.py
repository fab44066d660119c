"""A real registry with an admin application over it, and its metrics."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.test_utils import TestClient, TestServer

from router._core import Index, Slot, Slots
from router.admin import build_admin
from router.fleet import registration
from router.fleet.registry import Registry
from router.fleet.worker import ModelCard, Worker
from router.observe.metrics import Metrics

LOOPBACK = {"X-Router-Peer": "127.0.0.1"}
REMOTE = {"X-Router-Peer": "10.0.0.9"}


@dataclass
class Fleet:
    """What the admin API stands on, without probes: a test says who is ready."""

    registry: Registry
    slots: Slots
    metrics: Metrics
    draining: bool = False

    def add(self, url: str, *models: str, **fields: object) -> Worker:
        """A worker; ready, if it has models."""
        body = {"url": url, "models": list(models), **fields}
        workers = self.registry.register(registration.parse(body)).workers
        for worker in workers:
            if models:
                self.is_ready(worker.slot, *models)
        self.registry.flush()
        return self.registry.find(workers[0].id)

    def is_ready(self, slot: Slot, *models: str) -> None:
        """Its probes and its list are good."""
        self.registry.sync_models(slot, [ModelCard(model) for model in models])
        self.registry.set_health(slot, True)
        self.registry.flush()

    def load_of(self, worker: Worker) -> int:
        """As the core counts it."""
        return self.slots.load_of(worker.slot)


def make_fleet() -> Fleet:
    """An empty fleet on the running loop."""
    slots = Slots()
    registry = Registry(
        Index(slots), scheduler=asyncio.get_running_loop().call_later, clock=lambda: 1.0
    )
    metrics = Metrics(
        registry, lambda worker: slots.load_of(worker.slot), version="1.2.3"
    )
    return Fleet(registry, slots, metrics)


@dataclass
class Admin:
    """A client of the admin application, on this machine unless it says otherwise."""

    fleet: Fleet
    client: TestClient[Any, Any]

    async def ask(
        self,
        method: str,
        path: str,
        json: object = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status, and the body: decoded if it is JSON, else as text."""
        status, body, _ = await self.full(method, path, json, headers)
        return status, body

    async def full(
        self,
        method: str,
        path: str,
        json: object = None,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> tuple[int, Any, Any]:
        """The same and the headers."""
        async with self.client.request(
            method,
            path,
            json=json,
            data=data and io.BytesIO(data),
            headers=headers or LOOPBACK,
        ) as response:
            if response.content_type == "application/json" and method != "HEAD":
                return response.status, await response.json(), response.headers
            return response.status, await response.text(), response.headers


@asynccontextmanager
async def running_admin(
    *,
    admin_api_key: str | None = None,
    worker_api_key: str | None = None,
    min_ready_workers: int = 1,
    worker_startup_timeout: float = 0.0,
    dp_size: int = 1,
) -> AsyncIterator[Admin]:
    """An admin application over an empty fleet, and a client of it."""
    fleet = make_fleet()
    async with aiohttp.ClientSession() as session:
        app = build_admin(
            fleet.registry,
            fleet.metrics,
            session,
            fleet.load_of,
            admin_api_key=admin_api_key,
            worker_api_key=worker_api_key,
            min_ready_workers=min_ready_workers,
            worker_startup_timeout=worker_startup_timeout,
            dp_size=dp_size,
            draining=lambda: fleet.draining,
        )
        async with TestClient(TestServer(app)) as client:
            yield Admin(fleet, client)
