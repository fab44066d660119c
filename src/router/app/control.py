"""The control plane: the registry, what keeps it true, and the API for operators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import aiohttp
from aiohttp import web

from router import __version__
from router._core import Index
from router.admin import build_admin, build_metrics
from router.fleet import journal
from router.fleet.change import Change
from router.fleet.client import Client
from router.fleet.discovery import listed, static
from router.fleet.discovery.watch import WatchedList
from router.fleet.health import Health
from router.fleet.models import ModelReader
from router.fleet.registry import Registry
from router.fleet.worker import Worker
from router.observe.metrics import Metrics
from router.settings import Settings

_log = logging.getLogger("router.app")

#: Bytes: the admin application takes every head that the router takes, and its lines.
_ADMIN_HEAD = 1 << 17


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Its parts that others are wired to."""

    registry: Registry
    metrics: Metrics
    health: Health
    models: ModelReader
    #: Makes the protocol of a connection to the admin application.
    admin: Callable[[], asyncio.BaseProtocol]


async def start_control(
    settings: Settings,
    index: Index,
    stack: AsyncExitStack,
    *,
    draining: Callable[[], bool],
    everywhere: Callable[[int], Awaitable[None]] | None = None,
    first_to_know: Callable[[Change], None] | None = None,
) -> ControlPlane:
    """Builds and starts it; `stack` stops it.

    `everywhere`: returns when a version of the index is in use wherever it is.
    `first_to_know`: is told of each publication before anybody else.
    """
    registry = Registry(
        index,
        model_aliases=settings.model_alias,
        unlisted_wildcard=settings.unlisted_workers == "wildcard",
        scheduler=asyncio.get_running_loop().call_later,
        everywhere=everywhere,
    )
    if first_to_know is not None:
        registry.subscribe(first_to_know)
    registry.subscribe(journal.write)

    def load_of(worker: Worker) -> int:
        return index.slots.load_of(worker.slot)

    metrics = Metrics(registry, load_of, __version__)
    client = Client()
    stack.callback(client.close)
    models = ModelReader(
        registry,
        client,
        refresh_checks=settings.model_refresh_checks,
        api_key=settings.api_key,
    )
    stack.push_async_callback(models.stop)
    health = Health(
        registry,
        models,
        client,
        interval=settings.health_check_interval_secs,
        timeout=settings.health_check_timeout_secs,
        endpoint=settings.health_check_endpoint,
        failure_threshold=settings.health_failure_threshold,
        success_threshold=settings.health_success_threshold,
        startup_timeout=settings.worker_startup_timeout_secs,
        api_key=settings.api_key,
    )
    stack.push_async_callback(health.stop)

    # For what admins ask of workers. A connection that was kept may have been closed
    # by its server meanwhile, and a POST is not sent twice.
    session = await stack.enter_async_context(
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
    )
    admin = build_admin(
        registry,
        metrics,
        session,
        load_of,
        admin_api_key=settings.admin_api_key,
        worker_api_key=settings.api_key,
        min_ready_workers=settings.min_ready_workers,
        worker_startup_timeout=settings.worker_startup_timeout_secs,
        dp_size=settings.intra_node_data_parallel_size,
        draining=draining,
    )
    runner = web.AppRunner(
        admin,
        access_log=None,
        handler_cancellation=True,
        max_line_size=_ADMIN_HEAD,
        max_field_size=_ADMIN_HEAD,
        max_headers=512,
        auto_decompress=False,
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    assert runner.server is not None
    # Before the first request can come: a model of these workers, none of which was
    # asked yet, is not unknown.
    for registration in static.registrations(
        settings.worker_urls,
        dp_size=settings.intra_node_data_parallel_size,
        dp_start_rank=settings.dp_start_rank,
    ):
        registry.register(registration)
    if settings.workers_file is not None:
        await _follow_file(settings, settings.workers_file, registry, stack)
    registry.flush()
    return ControlPlane(registry, metrics, health, models, runner.server)


async def _follow_file(
    settings: Settings, path: str, registry: Registry, stack: AsyncExitStack
) -> None:
    """Has the workers that a file lists, as long as it lists them. Raises OSError."""
    watched = WatchedList(
        path,
        partial(listed.parse, dp_size=settings.intra_node_data_parallel_size),
        listed.ListedWorkers(registry).follow,
    )
    stack.push_async_callback(watched.stop)
    await watched.start()


async def serve_metrics(
    settings: Settings, metrics: Metrics, stack: AsyncExitStack
) -> None:
    """Serves /metrics at a port of its own, if one is set. Raises OSError."""
    if settings.prometheus_port is None:
        return
    runner = web.AppRunner(build_metrics(metrics), access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, settings.prometheus_host, settings.prometheus_port)
    await site.start()


def tell_listening(settings: Settings, port: int) -> None:
    """The line that says that the router serves."""
    _log.info(
        "listening",
        extra={
            "host": settings.host,
            "port": port,
            "policy": settings.policy,
            "workers": len(settings.worker_urls),
            "processes": settings.processes,
            "version": __version__,
        },
    )
