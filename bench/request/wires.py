"""An event loop whose TCP connections end in the benchmark.

A whole router runs on it, as composed by `app`, without a line of it being changed:
where it would listen, its protocol factory is kept; where it would connect, it gets a
`Wire`. So what is measured is the router's own code, and nothing of the kernel or of a
loop's transports. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any


class Wire(asyncio.Transport):
    """One end of a connection: keeps what is written to it."""

    def __init__(self, loop: WireLoop, protocol: asyncio.Protocol) -> None:
        extra = {"peername": ("127.0.0.1", 40_000), "socket": _Socket()}
        super().__init__(extra)
        self._loop = loop
        self._closing = False
        self.protocol = protocol
        self.sent: list[bytes] = []
        self.send = protocol.data_received

    def connect(self) -> None:
        """The connection is there."""
        self.protocol.connection_made(self)

    def written(self) -> bytes:
        """What was written since the last call."""
        text = b"".join(self.sent)
        self.sent.clear()
        return text

    def write(self, data: Any) -> None:
        """Keeps the bytes; the wire that was written to last is known to the loop."""
        self._loop.latest = self
        self.sent.append(data)

    def writelines(self, list_of_data: Any) -> None:
        """As `write`."""
        self._loop.latest = self
        self.sent.extend(list_of_data)

    def get_write_buffer_size(self) -> int:
        """All was taken."""
        return 0

    def can_write_eof(self) -> bool:
        """As TCP can."""
        return True

    def write_eof(self) -> None:
        """Nobody waits for it."""

    def pause_reading(self) -> None:
        """What is fed is fed."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def close(self) -> None:
        """Ends it, as the peer's end would."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        """As `close`."""
        self.close()


class WireLoop(asyncio.SelectorEventLoop):
    """Where TCP is concerned, all peers are the benchmark."""

    def __init__(self) -> None:
        super().__init__()
        #: Makes the protocol of a client's connection, one for each listening address.
        self.factories: list[Callable[[], asyncio.Protocol]] = []
        #: Connections that were made to others.
        self.opened: list[Wire] = []
        #: The wire that was written to last; there is always one but at the start.
        self.latest: Wire

    def accept(self, factory: Callable[[], asyncio.Protocol]) -> Wire:
        """A client's connection to the router."""
        wire = Wire(self, factory())
        wire.connect()
        return wire

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connected at once: what is sent is fed to a wire."""

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], *args: Any, **kw: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """A connection to nobody but the benchmark."""
        if sock := kw.get("sock"):
            sock.close()
        wire = Wire(self, protocol_factory())
        self.opened.append(wire)
        wire.connect()
        return wire, wire.protocol

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], *args: Any, **kw: Any
    ) -> _Server:
        """Keeps the factory, and listens nowhere."""
        self.factories.append(protocol_factory)
        return _Server()


class _Server:
    """Stands in for what listens."""

    def __init__(self) -> None:
        self.sockets = (_Socket(),)

    def close(self) -> None:
        """Nothing is there to close."""


class _Socket:
    """Stands in for a socket, listening or not."""

    family = socket.AF_INET

    def fileno(self) -> int:
        """None of the system's."""
        return -1

    def getsockname(self) -> tuple[str, int]:
        """Where nobody can connect."""
        return "127.0.0.1", 1

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Takes every option."""
