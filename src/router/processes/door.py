"""How a data process connects to the control process.

Owns a socket pair over which connected sockets are passed on: a data process makes a
pair of its own, keeps one end and gives the other away. So nothing listens anywhere:
there is no path to leave behind and no name that another program could connect to.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable


class Door:
    """The control process's side: takes the sockets that come."""

    def __init__(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        """`accept` makes a protocol for a connection. To be called on a loop."""
        self._accept = accept
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[object]] = set()
        self._inside, outside = socket.socketpair()
        self._inside.setblocking(False)
        # Shared with the processes that inherit it: a full door must not stop them.
        outside.setblocking(False)
        #: To be inherited by the data processes.
        self.outside = outside
        self._loop.add_reader(self._inside.fileno(), self._come_in)

    def close(self) -> None:
        """Takes no more."""
        self._loop.remove_reader(self._inside.fileno())
        self._inside.close()
        self.outside.close()

    def _come_in(self) -> None:
        # A byte comes with one socket: reading one of them reads no other's socket.
        try:
            _, numbers, _, _ = socket.recv_fds(self._inside, 1, 1)
        except BlockingIOError:
            return
        for number in numbers:
            connection = socket.socket(fileno=number)
            connection.setblocking(False)
            task: asyncio.Task[object] = self._loop.create_task(
                self._loop.connect_accepted_socket(self._accept, connection)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def through(door: socket.socket) -> Callable[[socket.socket], Awaitable[None]]:
    """What gives a connected socket to the control process. It raises OSError."""

    async def hand_over(connection: socket.socket) -> None:
        socket.send_fds(door, [b"\0"], [connection.fileno()])
        connection.close()

    return hand_over
