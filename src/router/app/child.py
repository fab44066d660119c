"""A data process: the data plane on an index that the control process publishes."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack

import msgspec
import uvloop

from router import __version__
from router._core import Index, Slot, Slots
from router.app.collector import Collector
from router.app.data import DataPlane, Reports, start_data
from router.fleet.registry import SLICE_SECS
from router.fleet.worker import Worker
from router.observe import logs
from router.observe.metrics import Metrics
from router.processes.channel import Channel, read_boot
from router.processes.door import through
from router.processes.memory import Memory
from router.processes.messages import (
    HEARTBEAT_SECONDS,
    Applied,
    Ask,
    Boot,
    Counted,
    Down,
    Drain,
    Hello,
    ModelMissing,
    Publication,
    Refused,
    Serving,
)
from router.processes.mirror import Mirror
from router.processes.parent import die_with
from router.processes.shares import Bound, Shares
from router.settings import Settings


def run_child(channel: int) -> int:
    """Runs a data process until it is drained or its control process has gone.

    `channel`: descriptor of its end of a socket pair. The exit code: 0 once drained.
    """
    # The control process tells when to end. Who presses Ctrl-C signals all of them.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sock = socket.socket(fileno=channel)
    try:
        boot = read_boot(sock)
    except EOFError:
        return 1
    die_with(boot.parent)
    settings = msgspec.msgpack.decode(boot.settings, type=Settings)
    logs.setup(
        settings.log_level,
        settings.log_format,
        sys.stderr,
        access_log=settings.access_log,
    )
    return uvloop.run(DataProcess(settings, boot).run(sock))


class DataProcess:
    """One of several that serve, on the running loop."""

    def __init__(self, settings: Settings, boot: Boot) -> None:
        self._settings = settings
        self._boot = boot
        self._memory = Memory(boot.memory, boot.processes)
        slots = Slots(rows=self._memory.rows, row=boot.row)
        self._slots = slots
        self._index = Index(slots)
        self._mirror = Mirror(self._index)
        self._metrics = Metrics(self._mirror, self._load_of, __version__)
        decoder = msgspec.msgpack.Decoder(Down)
        self._channel = Channel(decoder, self._hear, self._left_alone)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._code = 1
        self._news: asyncio.Queue[Publication] = asyncio.Queue()
        self._teller: asyncio.TimerHandle | None = None

    async def run(self, sock: socket.socket) -> int:
        """Serves until it is told to end; the exit code."""
        Collector().start()
        async with AsyncExitStack() as stack:
            self._data = self._start(stack)
            if self._data.keys is not None:
                await self._data.keys.start()
            await self._channel.open(sock)
            self._channel.send(Hello())
            async with asyncio.TaskGroup() as tasks:
                # Should it fail, that ends this process: the next one begins anew.
                following = tasks.create_task(self._follow())
                await self._over.wait()
                following.cancel()
        return self._code

    def _start(self, stack: AsyncExitStack) -> DataPlane:
        settings = self._settings
        door = socket.socket(fileno=self._boot.door)
        stack.callback(door.close)
        data = start_data(
            settings,
            self._mirror,
            self._index,
            self._metrics,
            Reports(self._refused, self._model_missing),
            through(door),
            stack,
        )
        budget, hold = data.server.budget, data.hold
        shares = Shares(
            self._memory,
            self._boot.row,
            self._slots,
            (
                Bound(
                    settings.max_buffered_bytes,
                    lambda: budget.held,
                    lambda most: setattr(budget, "limit", most),
                ),
                Bound(
                    settings.hold_queue_size,
                    lambda: len(hold),
                    lambda most: setattr(hold, "size", most),
                ),
            ),
            data.in_flight,
            hold.wake,
        )
        shares.start()
        stack.callback(shares.stop)
        return data

    # --- what the control process says ------------------------------------------------

    def _hear(self, message: Down) -> None:
        match message:
            case Publication():
                self._news.put_nowait(message)
            case Ask(number):
                self._tell(number)
            case Drain(within):
                self._in_background(self._drain(within))

    async def _follow(self) -> None:
        """Goes by what is published, and serves once it does.

        As the registry does, it lets requests through between slices of long work.
        """
        listening = False
        while True:
            news = await self._news.get()
            self._mirror.begin(news)
            while not self._mirror.prepare(SLICE_SECS):
                await asyncio.sleep(0)
            self._mirror.finish()
            self._channel.send(Applied(news.version))
            if not listening:
                listening = True
                await self._listen()
            await asyncio.sleep(0)

    async def _listen(self) -> None:
        listeners = [socket.socket(fileno=number) for number in self._boot.listeners]
        await self._data.server.start_at(listeners)
        self._channel.send(Serving())
        self._keep_telling()

    async def _drain(self, within: float) -> None:
        await self._data.drain(within)
        self._tell(0)
        self._code = 0
        self._channel.close()  # once that is sent

    def _left_alone(self) -> None:
        if self._teller is not None:
            self._teller.cancel()
        self._over.set()

    # --- what it says -----------------------------------------------------------------

    def _refused(self, slot: Slot, reason: str) -> None:
        self._channel.send(Refused(slot.number, slot.generation, reason))

    def _model_missing(self, slot: Slot) -> None:
        self._channel.send(ModelMissing(slot.number, slot.generation))

    def _keep_telling(self) -> None:
        self._tell(0)
        loop = asyncio.get_running_loop()
        self._teller = loop.call_later(HEARTBEAT_SECONDS, self._keep_telling)

    def _tell(self, asked: int) -> None:
        self._channel.send(Counted(self._metrics.take(), asked))

    def _load_of(self, worker: Worker) -> int:
        return self._slots.load_of(worker.slot)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
