"""A router in several processes: this one has the control plane and supervises.

It takes no requests: data processes do (`router.app.child`), each on its own socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from functools import partial
from itertools import count

import msgspec

from router._core import Index, Slots
from router.app.control import (
    ControlPlane,
    serve_metrics,
    start_control,
    tell_listening,
)
from router.app.data import GAUGES
from router.fleet.discovery.watch import WatchedList
from router.processes import listeners
from router.processes.door import Door
from router.processes.memory import Memory
from router.processes.messages import (
    Applied,
    Ask,
    Boot,
    Counted,
    Hello,
    ModelMissing,
    Refused,
    Up,
    plain,
)
from router.processes.publisher import Publisher
from router.processes.supervisor import Child, Supervisor
from router.proxy import keys
from router.proxy.server import BACKLOG
from router.settings import Settings

_log = logging.getLogger("router.app")

#: Seconds that a page of metrics waits for what a process has counted.
GATHER_SECONDS = 1.0


class SeveralProcesses:
    """A whole router on the running loop, and in the processes it starts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._supervisor: Supervisor | None = None
        self._draining = False
        #: What each process shows of itself, by row.
        self._gauges: dict[int, dict[str, int]] = {}
        self._asks = count(1)
        self._asked: dict[tuple[int, int], asyncio.Future[None]] = {}

    async def start(self) -> None:
        """Builds and starts everything. Raises OSError where it cannot serve."""
        settings = self._settings
        stack = self._stack
        if settings.client_api_keys_file is not None:
            # The data processes read it for themselves: here a mistake ends the start.
            path = settings.client_api_keys_file
            await WatchedList(path, keys.parse, lambda _: None).read()
        sockets = listeners.bind(
            settings.host, settings.port, settings.processes, BACKLOG
        )
        stack.callback(listeners.close, sockets)
        port: int = sockets[0][0].getsockname()[1]
        self._memory = Memory.create(settings.processes)
        stack.callback(self._memory.close)
        index = Index(Slots(rows=self._memory.rows))
        self._publisher = Publisher(index, asyncio.get_running_loop().call_later)
        self._control = await start_control(
            settings,
            index,
            stack,
            draining=lambda: self._draining,
            everywhere=self._publisher.everywhere,
            first_to_know=self._publisher.follow,
        )
        self._show_gauges(self._control)
        self._door = Door(self._control.admin)
        stack.callback(self._door.close)
        self._supervisor = Supervisor(
            sockets,
            (self._memory.fd, self._door.outside.fileno()),
            self._boot,
            self._hear,
            self._lost,
        )
        stack.push_async_callback(self._supervisor.stop)
        await self._supervisor.start()
        await serve_metrics(settings, self._control.metrics, stack)
        tell_listening(settings, port)

    async def drain(self) -> None:
        """Lets running requests finish, within the time that is set for it."""
        assert self._supervisor is not None
        _log.info("draining")
        self._draining = True
        await self._supervisor.drain(self._settings.drain_timeout_secs)

    async def stop(self) -> None:
        """Stops everything, in the reverse order."""
        await self._stack.aclose()
        _log.info("stopped")

    # --- data processes ---------------------------------------------------------------

    def _boot(self, row: int, numbers: tuple[int, ...]) -> Boot:
        return Boot(
            row=row,
            processes=self._settings.processes,
            parent=os.getpid(),
            memory=self._memory.fd,
            door=self._door.outside.fileno(),
            listeners=numbers,
            settings=msgspec.msgpack.encode(self._settings, enc_hook=plain),
        )

    def _hear(self, child: Child, message: Up) -> None:
        match message:
            case Hello():
                self._publisher.join(child.channel)
            case Applied(version):
                self._publisher.applied(child.channel, version)
            case Refused(number, generation, reason):
                slot = self._publisher.slot(number, generation)
                if slot is not None:
                    self._control.health.refused(slot, reason)
            case ModelMissing(number, generation):
                slot = self._publisher.slot(number, generation)
                if slot is not None:
                    self._control.models.missing(slot)
            case Counted(tally, asked):
                self._control.metrics.add(tally)
                self._gauges[child.row] = tally.gauges
                self._answered(child.row, asked)

    def _lost(self, child: Child) -> None:
        """A data process has died: what it counted is given back."""
        self._memory.forget(child.row)
        self._publisher.leave(child.channel)
        self._gauges.pop(child.row, None)
        for row, number in list(self._asked):
            if row == child.row:
                self._answered(row, number)

    # --- metrics ----------------------------------------------------------------------

    def _show_gauges(self, control: ControlPlane) -> None:
        for name, help in GAUGES:
            control.metrics.gauge(name, help, partial(self._sum, f"fleetrouter_{name}"))
        control.metrics.gather_with(self._gather)

    def _sum(self, name: str) -> int:
        return sum(gauges.get(name, 0) for gauges in self._gauges.values())

    async def _gather(self) -> None:
        """Returns when all processes have told what they counted, or does not wait."""
        assert self._supervisor is not None
        self._control.metrics.process_restarts = self._supervisor.restarts
        number = next(self._asks)
        waits = []
        for child in self._supervisor.answering:
            future = asyncio.get_running_loop().create_future()
            self._asked[child.row, number] = future
            child.channel.send(Ask(number))
            waits.append(future)
        if waits:
            await asyncio.wait(waits, timeout=GATHER_SECONDS)
        for key in [key for key in self._asked if key[1] == number]:
            del self._asked[key]

    def _answered(self, row: int, number: int) -> None:
        future = self._asked.get((row, number))
        if future is not None and not future.done():
            future.set_result(None)
