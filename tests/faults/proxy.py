"""A proxy between router and worker that does harm to the bytes that pass.

Owns the faults and who gets which: each connection that the router opens takes the next
one of the schedule, none once it is used up. Knows nothing of HTTP but how to tell the
router's own probes, which pass unharmed and unseen.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum
from time import sleep

from tests.support.raw_worker import RawConnection

_PROBES = (b"GET /health ", b"GET /v1/models ")


class Act(Enum):
    """What happens once so many bytes have passed."""

    CUT = "both sides are closed in order"
    RESET = "both sides are reset"
    HALF_CLOSE = "nothing more passes, as if the sender had ended its side"
    STALL = "nothing more passes, and nobody is told"
    DELAY = "a moment of silence"
    DRIP = "from here on it comes byte by byte"
    CORRUPT = "one byte is another one"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one connection. `at`: bytes that pass before; `byte`: for CORRUPT.

    `answer`: it is in the way of the answers, else in that of the requests.
    """

    act: Act
    at: int
    answer: bool = True
    byte: int = 0


class Schedule:
    """The faults still to come, of all proxies together."""

    def __init__(self) -> None:
        self._faults: deque[Fault] = deque()

    def set(self, faults: list[Fault]) -> None:
        """These are next; what was left is forgotten."""
        self._faults = deque(faults)

    def next(self) -> Fault | None:
        """The next connection's fault."""
        with contextlib.suppress(IndexError):
            return self._faults.popleft()
        return None


class FaultProxy:
    """The script of a RawWorker that stands for the worker at `port`."""

    def __init__(self, schedule: Schedule, port: int) -> None:
        self._schedule = schedule
        self._port = port
        self._open: set[RawConnection] = set()

    def __call__(self, connection: RawConnection) -> None:
        first = connection.read_some()
        if not first:
            return
        probe = first.startswith(_PROBES)
        fault = None if probe else self._schedule.next()
        if not probe:
            self._open.add(connection)
        try:
            with socket.create_connection(("127.0.0.1", self._port), 10) as worker:
                worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _Passage(connection, worker, fault).run(first)
        finally:
            connection.close()
            self._open.discard(connection)

    def __len__(self) -> int:
        """Connections of requests that the router has open now."""
        return len(self._open)

    def drop(self) -> None:
        """Closes them all, so that each request comes over a new one."""
        for connection in list(self._open):
            connection.end()


class _Passage:
    """One connection and its way on, with a thread for the answers."""

    def __init__(
        self, router: RawConnection, worker: socket.socket, fault: Fault | None
    ) -> None:
        self._router = router
        self._worker = worker
        self._fault = fault

    def run(self, first: bytes) -> None:
        """Returns when both sides have ended."""
        answers = threading.Thread(target=self._answers, daemon=True)
        answers.start()
        requests = _Way(self._fault if self._fault and not self._fault.answer else None)
        data = first
        while data:
            self._pass(requests, data, answer=False)
            data = self._router.read_some()
        self._end_worker(reset=self._router.ended == "reset")
        answers.join()

    def _answers(self) -> None:
        way = _Way(self._fault if self._fault and self._fault.answer else None)
        while data := self._received():
            self._pass(way, data, answer=True)
        if not way.stalled:
            self._router.half_close()

    def _received(self) -> bytes:
        try:
            return self._worker.recv(1 << 16)
        except OSError:
            return b""

    def _pass(self, way: _Way, data: bytes, *, answer: bool) -> None:
        for piece, act in way.pieces(data):
            if piece and answer:
                self._router.send(piece)
            elif piece:
                with contextlib.suppress(OSError):
                    self._worker.sendall(piece)
            if act in (Act.CUT, Act.RESET):
                self._end_worker(reset=act is Act.RESET)
                # A reset must not overtake the bytes before it.
                sleep(0.002 if act is Act.RESET else 0)
                self._router.end(reset=act is Act.RESET)
            elif act is Act.HALF_CLOSE and answer:
                self._router.half_close()
            elif act is Act.HALF_CLOSE:
                with contextlib.suppress(OSError):
                    self._worker.shutdown(socket.SHUT_WR)

    def _end_worker(self, *, reset: bool) -> None:
        with contextlib.suppress(OSError):
            if reset:
                linger = b"\1\0\0\0\0\0\0\0"
                self._worker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._worker.shutdown(socket.SHUT_RDWR)


class _Way:
    """One direction of a connection: what of its bytes passes, and what then."""

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault
        self._passed = 0
        self._dripping = False
        #: Nothing passes any more.
        self.stalled = False

    def pieces(self, data: bytes) -> list[tuple[bytes, Act | None]]:
        """The pieces that pass, each with what happens behind it."""
        if self.stalled:
            return []
        fault = self._fault
        before = self._passed
        self._passed += len(data)
        if fault is None or not before <= fault.at < self._passed:
            return self._dripped(data) if self._dripping else [(data, None)]
        at = fault.at - before
        head, rest = data[:at], data[at:]
        match fault.act:
            case Act.DELAY:
                sleep(0.01)
                return [(head, None), (rest, None)]
            case Act.DRIP:
                self._dripping = True
                return [(head, None), *self._dripped(rest)]
            case Act.CORRUPT:
                return [(head + bytes([fault.byte]) + rest[1:], None)]
            case _:
                self.stalled = True
                return [(head, fault.act)]

    def _dripped(self, data: bytes) -> list[tuple[bytes, Act | None]]:
        """The first hundred bytes one by one, so that no test takes for ever."""
        drops = [(data[n : n + 1], None) for n in range(min(100, len(data)))]
        return [*drops, (data[100:], None)]
