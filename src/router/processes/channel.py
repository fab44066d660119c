"""A channel between two processes: whole messages over a socket pair.

Owns the framing (a length, then the message) and what happens when one side does not
keep up. Its end is how a process learns, at once and however it happened, that the
other one is gone.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from router.processes.messages import Boot

_LENGTH = struct.Struct("<I")
#: Bytes that may wait for the other side. Past it that hangs: the channel ends.
MOST_WAITING = 256 << 20

_In = TypeVar("_In")


class Channel(asyncio.Protocol, Generic[_In]):
    """This process's end.

    `received` is given each message; what it raises ends the channel. `lost` is called
    once when it has ended.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[_In],
        received: Callable[[_In], None],
        lost: Callable[[], None],
    ) -> None:
        self._decoder = decoder
        self._received = received
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    async def open(self, sock: socket.socket) -> None:
        """Takes over one end of a stream socket pair."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=sock)

    def send(self, message: msgspec.Struct) -> None:
        """Sends a message, or does nothing if the channel has ended."""
        self.send_encoded(msgspec.msgpack.encode(message))

    def send_encoded(self, message: bytes) -> None:
        """As `send`, for what goes to several."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(_LENGTH.pack(len(message)) + message)
        if transport.get_write_buffer_size() > MOST_WAITING:
            transport.abort()

    def close(self) -> None:
        """Ends the channel once all is sent."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not descend from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._lost()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            end = at + _LENGTH.size + length
            if len(buffer) < end:
                break
            message = self._decoder.decode(bytes(buffer[at + _LENGTH.size : end]))
            at = end
            self._received(message)
        del buffer[:at]


def read_boot(sock: socket.socket) -> Boot:
    """The first message to a data process, before there is a loop.

    Raises EOFError if the other side has gone.
    """
    (length,) = _LENGTH.unpack(_read(sock, _LENGTH.size))
    return msgspec.msgpack.decode(_read(sock, length), type=Boot)


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError("the control process has gone")
        data += more
    return data
