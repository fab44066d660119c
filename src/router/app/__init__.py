"""Composition root: builds the objects, starts and stops them in order.

Owns the wiring and nothing else. A router is a control plane (`control`: who is in the
fleet, the API for operators) and a data plane (`data`: the way of requests). They are
in one process (`single`) or in several (`several`, whose data processes are `child`):
the same two planes either way.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from typing import Protocol

import uvloop

from router.app.collector import Collector
from router.app.several import SeveralProcesses
from router.app.single import Router
from router.observe import logs
from router.settings import Settings

_log = logging.getLogger("router.app")


class _Running(Protocol):
    """A whole router, on the running loop at least in part."""

    async def start(self) -> None:
        """Builds and starts everything. Raises OSError where it cannot serve."""

    async def drain(self) -> None:
        """Lets running requests finish, within the time that is set for it."""

    async def stop(self) -> None:
        """Stops everything, in the reverse order."""


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
    return uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    router: _Running = (
        Router(settings) if settings.processes == 1 else SeveralProcesses(settings)
    )
    signals = _Signals()
    Collector().start()
    try:
        await router.start()
    except OSError as error:
        _log.error("cannot start", extra={"reason": str(error)})
        await router.stop()
        return 2
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


def _raise_descriptor_limit() -> None:
    """As many descriptors as the system allows: each request in flight needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


__all__ = ["Router", "run"]
