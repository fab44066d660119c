"""Composition root: builds the objects, starts and stops them in order.

Owns the wiring and nothing else. The start order reads from top to bottom in
`Router.start`, the stop order from bottom to top in `Router.stop`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from contextlib import AsyncExitStack

import uvloop
from aiohttp import web

from router import __version__, policy
from router._core import Index, Slots
from router.admin import build_admin, build_metrics, is_admin_path
from router.errors import Draining
from router.fleet import fetch, journal
from router.fleet.change import Change
from router.fleet.discovery import static
from router.fleet.health import Health
from router.fleet.models import ModelReader
from router.fleet.registry import Registry
from router.fleet.worker import Worker
from router.http1.connection import Ticker
from router.observe import logs
from router.observe.metrics import Metrics
from router.proxy.accounts import Accounts
from router.proxy.choice import Chooser
from router.proxy.exchange import Exchange
from router.proxy.hold import HoldQueue
from router.proxy.lines import RequestIds, WorkerLines
from router.proxy.retry import RetryRules
from router.proxy.server import AdminDoor, Limits, Server
from router.proxy.upstream import Connections, LocalConnections
from router.settings import Settings

_log = logging.getLogger("router.app")

#: The policies that ask for a session; the others do not look for one.
_WITH_SESSIONS = frozenset(("consistent_hash",))
#: For the answers to those who still wait for a worker when a drain is over.
_LAST_WORDS_SECONDS = 0.1
#: Bytes: the admin application takes every head that the router takes, and its lines.
_ADMIN_HEAD = 1 << 17
#: Objects made until the collector looks: requests leave no cycles behind, and a look
#: at the oldest generation of a fleet of 10,000 takes 100 ms.
_GC_THRESHOLDS = (50_000, 20, 100)


def run(settings: Settings) -> int:
    """Runs a router until it is told to stop; the process's exit code.

    0 once drained, 1 if a second signal cut the draining short, 2 if it cannot listen.
    """
    logs.setup(
        settings.log_level,
        settings.log_format,
        sys.stderr,
        access_log=settings.access_log,
    )
    _raise_descriptor_limit()
    gc.set_threshold(*_GC_THRESHOLDS)
    return uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    router = Router(settings)
    signals = _Signals()
    try:
        await router.start()
    except OSError as error:
        _log.error("cannot start", extra={"reason": str(error)})
        await router.stop()
        return 2
    # What is there now stays; the collector need not look at it again.
    gc.freeze()
    await signals.first.wait()
    draining = asyncio.create_task(router.drain())
    now = asyncio.create_task(signals.second.wait())
    await asyncio.wait((draining, now), return_when=asyncio.FIRST_COMPLETED)
    cut = not draining.done()
    for task in (draining, now):
        task.cancel()
    await router.stop()
    return 1 if cut else 0


class _Signals:
    """SIGTERM and SIGINT: the first one drains, the second one ends."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._came)

    def _came(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


class Router:
    """A whole router on the running loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._server: Server | None = None
        self._hold: HoldQueue | None = None
        self.port = 0

    async def start(self) -> None:
        """Builds and starts everything. Raises OSError for an address that is taken."""
        settings = self._settings
        stack = self._stack
        loop = asyncio.get_running_loop()

        index = Index(Slots())
        registry = Registry(
            index,
            model_aliases=settings.model_alias,
            unlisted_wildcard=settings.unlisted_workers == "wildcard",
            scheduler=loop.call_later,
        )
        registry.subscribe(journal.write)

        def load_of(worker: Worker) -> int:
            return index.slots.load_of(worker.slot)

        metrics = Metrics(registry, load_of, __version__)
        session = await stack.enter_async_context(fetch.open_session())
        models = ModelReader(
            registry,
            session,
            refresh_checks=settings.model_refresh_checks,
            api_key=settings.api_key,
        )
        stack.push_async_callback(models.stop)
        health = Health(
            registry,
            models,
            interval=settings.health_check_interval_secs,
            timeout=settings.health_check_timeout_secs,
            endpoint=settings.health_check_endpoint,
            failure_threshold=settings.health_failure_threshold,
            success_threshold=settings.health_success_threshold,
            startup_timeout=settings.worker_startup_timeout_secs,
            api_key=settings.api_key,
        )
        stack.push_async_callback(health.stop)

        ticker = Ticker()
        ticker.start()
        stack.callback(ticker.stop)
        connections = Connections(
            ticker,
            connect_timeout=settings.connect_timeout_secs,
            idle_timeout=settings.upstream_idle_timeout_secs,
        )
        connections.start()
        stack.callback(connections.close)
        hold = HoldQueue(
            size=settings.hold_queue_size, timeout=settings.hold_timeout_secs
        )
        self._hold = hold
        worker_lines = WorkerLines(settings.api_key)
        ids = RequestIds(_lower(settings.request_id_headers))
        accounts = Accounts(metrics, logs.AccessLog() if settings.access_log else None)
        exchange = self._exchange(
            index,
            connections,
            hold,
            metrics,
            ids,
            worker_lines,
            health,
            models,
            accounts,
        )
        registry.subscribe(_Followers(connections, hold))

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
            draining=self._draining,
        )
        door = await self._door(admin, ticker)
        server = Server(
            ticker,
            exchange,
            AdminDoor(door, exchange, ids, accounts.own),
            is_admin_path,
            ids,
            Limits(
                header_timeout=settings.header_timeout_secs,
                write_timeout=settings.stream_idle_timeout_secs,
                max_payload=settings.max_payload_size,
                max_buffered=settings.max_buffered_bytes,
            ),
            accounts.refused,
        )
        for name, help, read in (
            ("requests_in_flight", "Being served now.", lambda: exchange.in_flight),
            ("client_connections", "Open now.", lambda: len(server.clients())),
            ("upstream_connections", "Kept idle now.", lambda: len(connections)),
            ("buffered_bytes", "Of bodies held now.", lambda: server.budget.held),
            ("hold_waiting", "Waiting for a worker now.", lambda: len(hold)),
        ):
            metrics.gauge(name, help, read)
        self._register(registry)
        self.port = await server.start(settings.host, settings.port)
        self._server = server
        stack.callback(server.close)
        if settings.prometheus_port is not None:
            await self._serve_metrics(metrics)

        _log.info(
            "listening",
            extra={
                "host": settings.host,
                "port": self.port,
                "policy": settings.policy,
                "workers": len(settings.worker_urls),
                "version": __version__,
            },
        )

    def _register(self, registry: Registry) -> None:
        """Registers the workers of the flags before the first request can come.

        So a model of theirs, none of which was asked yet, is not unknown.
        """
        for registration in static.registrations(
            self._settings.worker_urls,
            dp_size=self._settings.intra_node_data_parallel_size,
            dp_start_rank=self._settings.dp_start_rank,
        ):
            registry.register(registration)
        registry.flush()

    def _exchange(
        self,
        index: Index,
        connections: Connections,
        hold: HoldQueue,
        metrics: Metrics,
        ids: RequestIds,
        worker_lines: WorkerLines,
        health: Health,
        models: ModelReader,
        accounts: Accounts,
    ) -> Exchange:
        settings = self._settings
        choose = policy.make(
            settings.policy,
            balance_factor=settings.balance_factor,
            balance_abs=settings.balance_abs,
        )
        sessions = settings.session_headers if settings.policy in _WITH_SESSIONS else ()
        return Exchange(
            Chooser(index, choose, hold, metrics),
            connections,
            metrics,
            ids,
            worker_lines,
            RetryRules(
                limit=0 if settings.disable_retries else settings.retry_max_retries,
                statuses=frozenset(settings.retry_statuses),
                initial_backoff=settings.retry_initial_backoff_ms / 1000,
                max_backoff=settings.retry_max_backoff_ms / 1000,
                multiplier=settings.retry_backoff_multiplier,
                jitter=settings.retry_jitter_factor,
            ),
            session_headers=_lower(sessions),
            request_timeout=settings.request_timeout_secs,
            idle_limit=settings.stream_idle_timeout_secs,
            refused=health.refused,
            model_missing=models.missing,
            finished=accounts.served,
        )

    async def _door(self, admin: web.Application, ticker: Ticker) -> LocalConnections:
        """Serves the admin application to this process alone."""
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
        self._stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        door = LocalConnections(ticker, runner.server)
        door.start()
        self._stack.callback(door.close)
        return door

    async def _serve_metrics(self, metrics: Metrics) -> None:
        runner = web.AppRunner(build_metrics(metrics), access_log=None)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(
            runner, self._settings.prometheus_host, self._settings.prometheus_port
        )
        await site.start()

    def _draining(self) -> bool:
        return self._server is not None and self._server.draining

    async def drain(self) -> None:
        """Lets running requests finish, within the time that is set for it."""
        assert self._server is not None
        _log.info("draining")
        if await self._server.drain(self._settings.drain_timeout_secs):
            return
        if self._hold is not None:
            self._hold.end(Draining("The router is stopping. Ask another one."))
        if not await self._server.drain(_LAST_WORDS_SECONDS):
            _log.warning("requests were cut: they did not finish in time")

    async def stop(self) -> None:
        """Stops everything, in the reverse order."""
        await self._stack.aclose()
        _log.info("stopped")


class _Followers:
    """What the data plane does when the fleet changed."""

    def __init__(self, connections: Connections, hold: HoldQueue) -> None:
        self._connections = connections
        self._hold = hold

    def __call__(self, change: Change) -> None:
        for worker in change.removed:
            self._connections.forget(worker.base_url)
        self._hold.wake()


def _lower(names: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(name.lower().encode() for name in names)


def _raise_descriptor_limit() -> None:
    """As many descriptors as the system allows: each request in flight needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


__all__ = ["Router", "run"]
