"""The HTTP API for operators: workers, probes, metrics, vllm-router's routes.

Owns one aiohttp application, which the proxy reaches over a private socket as if it
were a worker. Here, off the way of a request, a framework is right.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from aiohttp import web

from router.admin.compat import CompatRoutes
from router.admin.frame import MAX_BODY, admission, errors
from router.admin.listing import LoadOf
from router.admin.paths import is_admin_path
from router.admin.probes import ProbeRoutes, metrics_page
from router.admin.workers import WorkerRoutes
from router.fleet.registry import Registry
from router.observe.metrics import Metrics

__all__ = ["build_admin", "build_metrics", "is_admin_path"]


def build_admin(
    registry: Registry,
    metrics: Metrics,
    session: aiohttp.ClientSession,
    load_of: LoadOf,
    *,
    admin_api_key: str | None,
    worker_api_key: str | None,
    min_ready_workers: int,
    worker_startup_timeout: float,
    dp_size: int,
    draining: Callable[[], bool],
) -> web.Application:
    """The admin application. To be called on the loop it will run on.

    `session`: for what is asked of workers. `load_of`: a worker's requests in flight.
    `worker_startup_timeout`: seconds, 0: none. `dp_size`: ranks of a URL that is
    registered without saying how many. `draining`: whether the router is stopping.
    """
    workers = WorkerRoutes(registry, load_of, dp_size=dp_size)
    probes = ProbeRoutes(
        registry, metrics, min_ready_workers=min_ready_workers, draining=draining
    )
    compat = CompatRoutes(
        registry,
        workers,
        session,
        load_of,
        api_key=worker_api_key,
        startup_timeout=worker_startup_timeout,
    )
    app = web.Application(
        middlewares=[errors, admission(admin_api_key)], client_max_size=MAX_BODY
    )
    app.add_routes([*probes.routes(), *workers.routes(), *compat.routes()])
    return app


def build_metrics(metrics: Metrics) -> web.Application:
    """An application with /metrics and nothing else, for a port of its own."""

    async def page(_: web.Request) -> web.Response:
        return await metrics_page(metrics)

    app = web.Application(middlewares=[errors])
    app.add_routes([web.get("/metrics", page)])
    return app
