"""The data plane: what a request passes through, in each process that serves."""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from router import policy
from router._core import Index, Slot
from router.admin import is_admin_path
from router.errors import Draining
from router.fleet.change import Change
from router.fleet.discovery.watch import WatchedList
from router.http1.connection import Ticker
from router.observe import logs
from router.observe.metrics import Fleet, Metrics
from router.proxy import keys
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
#: Counted on where the system sets no limit.
_MOST_DESCRIPTORS = 1 << 20
#: Name and help of what each process shows of itself.
GAUGES = (
    ("requests_in_flight", "Being served now."),
    ("client_connections", "Open now."),
    ("upstream_connections", "Kept idle now."),
    ("buffered_bytes", "Of bodies held now."),
    ("hold_waiting", "Waiting for a worker now."),
    ("data_processes", "Serving now."),
)


@dataclass(frozen=True, slots=True)
class Reports:
    """Whom the data plane tells what it finds out about workers."""

    refused: Callable[[Slot, str], None]
    model_missing: Callable[[Slot], None]


@dataclass(frozen=True, slots=True)
class DataPlane:
    """Its parts that others are wired to."""

    server: Server
    hold: HoldQueue
    #: Requests that are being served.
    in_flight: Callable[[], int]
    #: Follows the file of clients' keys; to be started before it listens.
    keys: WatchedList[dict[bytes, keys.Client]] | None

    async def drain(self, within: float) -> None:
        """Lets running requests finish, within so many seconds."""
        if await self.server.drain(within):
            return
        self.hold.end(Draining("The router is stopping. Ask another one."))
        if not await self.server.drain(_LAST_WORDS_SECONDS):
            _log.warning("requests were cut: they did not finish in time")


def start_data(
    settings: Settings,
    fleet: Fleet,
    index: Index,
    metrics: Metrics,
    reports: Reports,
    admin: Callable[[socket.socket], Awaitable[object]],
    stack: AsyncExitStack,
) -> DataPlane:
    """Builds and starts it, but for listening; `stack` stops it.

    `fleet`: whose changes it follows. `admin`: gives a connection to the admin
    application.
    """
    ticker = Ticker()
    ticker.start()
    stack.callback(ticker.stop)
    connections = Connections(
        ticker,
        connect_timeout=settings.connect_timeout_secs,
        idle_timeout=settings.upstream_idle_timeout_secs,
        most_idle=_descriptors() // 4,
    )
    connections.start()
    stack.callback(connections.close)
    hold = HoldQueue(size=settings.hold_queue_size, timeout=settings.hold_timeout_secs)
    ids = RequestIds(_lower(settings.request_id_headers))
    accounts = Accounts(metrics, logs.AccessLog() if settings.access_log else None)
    known = None if settings.client_api_keys_file is None else keys.ClientKeys()
    exchange = _exchange(
        settings, index, connections, hold, metrics, ids, reports, accounts, known
    )
    fleet.subscribe(_Followers(connections, hold))
    door = LocalConnections(ticker, admin)
    door.start()
    stack.callback(door.close)
    server = Server(
        ticker,
        exchange,
        AdminDoor(door, ids, accounts.own),
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
    stack.callback(server.close)

    def in_flight() -> int:
        return exchange.in_flight

    reads: tuple[Callable[[], int], ...] = (
        in_flight,
        lambda: len(server.clients()),
        lambda: len(connections),
        lambda: server.budget.held,
        lambda: len(hold),
        lambda: 1,
    )
    for (name, help), read in zip(GAUGES, reads, strict=True):
        metrics.gauge(name, help, read)
    return DataPlane(server, hold, in_flight, _follow(settings, known, stack))


def _follow(
    settings: Settings, known: keys.ClientKeys | None, stack: AsyncExitStack
) -> WatchedList[dict[bytes, keys.Client]] | None:
    """What gives the keys that the file lists, if there is one."""
    if settings.client_api_keys_file is None or known is None:
        return None
    watched = WatchedList(settings.client_api_keys_file, keys.parse, known.replace)
    stack.push_async_callback(watched.stop)
    return watched


def _exchange(
    settings: Settings,
    index: Index,
    connections: Connections,
    hold: HoldQueue,
    metrics: Metrics,
    ids: RequestIds,
    reports: Reports,
    accounts: Accounts,
    known: keys.ClientKeys | None,
) -> Exchange:
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
        WorkerLines(settings.api_key, client_keys=known is not None),
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
        refused=reports.refused,
        model_missing=reports.model_missing,
        finished=accounts.served,
        keys=known,
    )


class _Followers:
    """What the data plane does when the fleet changed."""

    def __init__(self, connections: Connections, hold: HoldQueue) -> None:
        self._connections = connections
        self._hold = hold

    def __call__(self, change: Change) -> None:
        for worker in change.removed:
            self._connections.forget(worker.base_url)
        self._hold.wake()


def _descriptors() -> int:
    """How many this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _lower(names: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(name.lower().encode() for name in names)
