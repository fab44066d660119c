"""Many connections of one process, and what the router's process holds for them."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.router_process import RouterProcess

#: Both processes need as many, and some more.
MANY = 5_000
SPARE = 1_000


def rss(router: RouterProcess) -> int:
    """Bytes of memory that the router's process has."""
    return int(Path(f"/proc/{router.pid}/statm").read_text().split()[1]) * 4096


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """This process may open so many meanwhile; skips where the system says no."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + SPARE:
        pytest.skip(f"the system allows {hard} descriptors only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + SPARE), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Crowd:
    """Connections to one port that are written to and read from all together."""

    def __init__(self, port: int, count: int, *, receive: int = 0) -> None:
        """receive: size of the kernel's buffer for what is not read (0: its own)."""
        self.sockets: list[socket.socket] = []
        for _ in range(count):
            each = socket.socket()
            if receive:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            each.connect(("127.0.0.1", port))
            each.setblocking(False)
            self.sockets.append(each)

    def send(self, data: bytes) -> None:
        """The same bytes over each; what is full or gone takes none."""
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.send(data)

    def send_each(self, batches: Sequence[bytes]) -> None:
        """One of the batches over each; all of it must find room."""
        for each, data in zip(self.sockets, batches, strict=True):
            assert each.send(data) == len(data)

    def count(self, mark: bytes, wanted: int) -> int:
        """How often it comes over all of them; returns once it is so often."""
        found = 0
        with selectors.DefaultSelector() as selector:
            for each in self.sockets:
                selector.register(each, selectors.EVENT_READ, [each, b""])
            while found < wanted and (events := selector.select(20)):
                for key, _ in events:
                    each, rest = key.data
                    data = rest + each.recv(1 << 20)
                    found += data.count(mark)
                    key.data[1] = data[-len(mark) + 1 :]
        return found

    def answers(self) -> list[bytes]:
        """The first bytes that come over each, waiting for them; b"" for an end."""
        with selectors.DefaultSelector() as selector:
            for each in self.sockets:
                selector.register(each, selectors.EVENT_READ)
            found = []
            while selector.get_map():
                events = selector.select(20)
                assert events, f"{len(selector.get_map())} heard nothing"
                for key, _ in events:
                    selector.unregister(key.fileobj)
                    assert isinstance(key.fileobj, socket.socket)
                    with contextlib.suppress(ConnectionResetError):
                        found.append(key.fileobj.recv(1 << 16))
        return found

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sockets:
            each.close()
