"""The data processes: started, started again when they die, ended.

Owns the child processes and their channels. A child is started by exec, not by fork:
the event loop, its threads and its descriptors are no part of it, whenever that is. It
is known to be dead when its channel ends, which the system sees to however it died, and
to hang when it is silent: then it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from time import monotonic

import msgspec

from router.processes import listeners
from router.processes.channel import Channel
from router.processes.messages import HEARTBEAT_SECONDS, Boot, Drain, Serving, Up

_log = logging.getLogger("router.processes")

#: Seconds before a process is started again: at once if the last one lived for
#: LONG_LIFE, else twice as long each time.
FIRST_DELAY, LONGEST_DELAY = 0.5, 5.0
LONG_LIFE = 10.0
#: Seconds that a process may take beyond its drain timeout.
DRAIN_MARGIN = 5.0
#: Seconds until the first processes serve.
START_TIMEOUT = 60.0
#: Heartbeats that a process which serves may leave out. A garbage collection or an
#: index of 10,000 workers takes a fraction of one; a process that is ended loses all
#: its streams.
MOST_MISSED = 10
_REAP_SECONDS = 0.005


class StartFailed(OSError):
    """A data process did not come up when the router was started."""


class Child:
    """One data process, from its start to its end."""

    def __init__(self, row: int) -> None:
        self.row = row
        self.channel: Channel[Up]
        self.process: subprocess.Popen[bytes]
        self.began = monotonic()
        self.serving = False
        #: Heartbeats that did not come since it was heard of last.
        self.missed = 0
        #: Set once it has ended and nothing of it is left.
        self.over = asyncio.Event()


class Supervisor:
    """Keeps a data process running for each row. Lives on one event loop.

    `sockets`: each process's own, that listen; connections wait in them while it is
    started again. `inherited`: descriptors that all of them get. `boot`: what one
    begins with. `received` is given their messages, and `lost` a process that has
    died, before another one takes its row.
    """

    def __init__(
        self,
        sockets: Sequence[Sequence[socket.socket]],
        inherited: Sequence[int],
        boot: Callable[[int, tuple[int, ...]], Boot],
        received: Callable[[Child, Up], None],
        lost: Callable[[Child], None],
    ) -> None:
        self._sockets = sockets
        self._inherited = tuple(inherited)
        self._boot = boot
        self._received = received
        self._lost = lost
        self._children: dict[int, Child] = {}
        self._delays = [0.0] * len(sockets)
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.TimerHandle | None = None
        self._progress = asyncio.Event()
        self._ending = False
        self._started = False
        self._decoder = msgspec.msgpack.Decoder(Up)
        #: Processes started in place of others.
        self.restarts = 0

    @property
    def children(self) -> tuple[Child, ...]:
        """Those that serve."""
        return tuple(child for child in self._children.values() if child.serving)

    @property
    def answering(self) -> tuple[Child, ...]:
        """Those that serve and were heard of lately: they can be waited for."""
        return tuple(child for child in self.children if child.missed <= 2)

    async def start(self) -> None:
        """Returns when all processes serve. Raises StartFailed."""
        self._watch()
        for row in range(len(self._sockets)):
            await self._spawn(row)
        with suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT):
                while len(self._children) == len(self._sockets):
                    if len(self.children) == len(self._sockets):
                        self._started = True
                        return
                    await self._progress.wait()
        raise StartFailed("a data process did not start; its own words are above")

    async def drain(self, within: float) -> None:
        """Lets all processes finish their requests; returns when they have ended."""
        self._ending = True
        for child in self._children.values():
            if child.serving:
                child.channel.send(Drain(within))
            else:
                child.process.kill()
        # Held by the processes alone now, so that closing them there closes them.
        listeners.close(self._sockets)
        with suppress(TimeoutError):
            async with asyncio.timeout(within + DRAIN_MARGIN):
                await self._all_over()

    async def stop(self) -> None:
        """Ends what is left at once."""
        self._ending = True
        listeners.close(self._sockets)
        for child in self._children.values():
            child.process.kill()
        await self._all_over()
        if self._watching is not None:
            self._watching.cancel()
        for task in self._tasks:
            task.cancel()

    async def _all_over(self) -> None:
        for child in list(self._children.values()):
            await child.over.wait()

    def _watch(self) -> None:
        """Ends processes that hang.

        Their silence is counted in looks, not in seconds: when this process itself was
        held up, it hears what they said meanwhile before it looks a second time.
        """
        self._watching = asyncio.get_running_loop().call_later(
            HEARTBEAT_SECONDS, self._watch
        )
        for child in self._children.values():
            child.missed += 1
            most = MOST_MISSED if child.serving else START_TIMEOUT / HEARTBEAT_SECONDS
            if child.missed == most + 1:
                _log.error(
                    "a data process hangs",
                    extra={"row": child.row, "pid": child.process.pid},
                )
                child.process.kill()  # its channel ends, and the rest follows

    # --- one process ------------------------------------------------------------------

    async def _spawn(self, row: int) -> None:
        child = Child(row)
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as failing:
            failing.callback(ours.close)
            numbers = tuple(listener.fileno() for listener in self._sockets[row])
            # -P: never a `router` that happens to lie in the working directory.
            child.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "router.data_process"),
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *numbers, *self._inherited),
            )
            failing.pop_all()
        self._children[row] = child
        child.channel = Channel(
            self._decoder,
            lambda message: self._hear(child, message),
            lambda: self._in_background(self._bury(child)),
        )
        await child.channel.open(ours)
        child.channel.send(self._boot(row, numbers))

    def _hear(self, child: Child, message: Up) -> None:
        child.missed = 0
        if isinstance(message, Serving):
            child.serving = True
            self._step()
        self._received(child, message)

    async def _bury(self, child: Child) -> None:
        """The channel has ended: makes sure that the process has, too."""
        child.serving = False
        child.process.kill()
        while child.process.poll() is None:
            await asyncio.sleep(_REAP_SECONDS)
        self._lost(child)
        del self._children[child.row]
        child.over.set()
        self._step()
        if not self._ending:
            _log.error(
                "a data process died",
                extra={
                    "row": child.row,
                    "pid": child.process.pid,
                    "code": child.process.returncode,
                },
            )
            if self._started:
                await self._again(child)

    async def _again(self, child: Child) -> None:
        row = child.row
        if monotonic() - child.began >= LONG_LIFE:
            self._delays[row] = 0.0
        await asyncio.sleep(self._delays[row])
        self._delays[row] = min(max(2 * self._delays[row], FIRST_DELAY), LONGEST_DELAY)
        if self._ending:
            return
        self.restarts += 1
        try:
            await self._spawn(row)
        except OSError as error:
            _log.error("cannot start a data process", extra={"reason": str(error)})
            self._in_background(self._again(child))

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _step(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()
