"""A worker made of raw sockets and a script, for what no real server would send.

Shares no code with the simulated vLLM, so that a mistake in one does not hide in the
other. Each connection runs the script in a thread of its own; every byte that arrived
is kept, by connection.

    with RawWorker(answer(OK)) as worker:              # every request: these bytes
        ...
        assert worker.connections[0].received == b"POST /v1/chat/..."

    def script(connection: RawConnection) -> None:     # or anything at all
        connection.read_request()
        connection.send(HEAD, BODY[:7], delay=0.01)
        connection.reset()
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from time import monotonic, sleep
from types import TracebackType
from typing import Self

RST = struct.pack("ii", 1, 0)


class RawConnection:
    """One accepted connection and every byte that came over it."""

    def __init__(self, accepted: socket.socket, number: int) -> None:
        #: 0 for the worker's first connection, and so on.
        self.number = number
        #: Everything that arrived, from the first byte on.
        self.received = b""
        #: The requests that `read_request` returned, in order.
        self.requests: list[bytes] = []
        #: How the peer ended it: "", "eof" or "reset".
        self.ended = ""
        self.opened_at = monotonic()
        self._socket = accepted
        self._taken = 0
        self._to_reset = False

    # --- reading --------------------------------------------------------------------

    def read_some(self) -> bytes:
        """Waits for bytes; b"" at the end. Keeps what it read in `received`."""
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError:
            self.ended = self.ended or "reset"
            return b""
        self.received += data
        if not data:
            self.ended = self.ended or "eof"
        return data

    def drop(self, count: int) -> int:
        """Reads the next `count` bytes, keeps only their number, and tells it.

        Less than `count` came if the peer ended before.
        """
        before = self.received[: self._taken]
        self.received = self.received[self._taken :]
        dropped = 0
        while dropped < count and (self.received or self.read_some()):
            size = min(len(self.received), count - dropped)
            self.received = self.received[size:]
            dropped += size
        self.received = before + self.received
        return dropped

    def read_until(self, mark: bytes) -> bytes:
        """The bytes up to and with `mark`; less if the peer ended before."""
        while (at := self.received.find(mark, self._taken)) < 0:
            if not self.read_some():
                return self._take(len(self.received) - self._taken)
        return self._take(at + len(mark) - self._taken)

    def read_exactly(self, count: int) -> bytes:
        """The next `count` bytes; less if the peer ended before."""
        while len(self.received) - self._taken < count and self.read_some():
            pass
        return self._take(min(count, len(self.received) - self._taken))

    def read_all(self) -> bytes:
        """Everything until the peer's end."""
        while self.read_some():
            pass
        return self._take(len(self.received) - self._taken)

    def read_request(self) -> bytes:
        """The next request, head and body as on the wire; b"" if there is none."""
        head = self.read_until(b"\r\n\r\n")
        request = head + self._read_body(head.lower())
        if request:
            self.requests.append(request)
        return request

    def _read_body(self, head: bytes) -> bytes:
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name == b"content-length":
                return self.read_exactly(int(value))
            if name == b"transfer-encoding":
                return self._read_chunks()
        return b""

    def _read_chunks(self) -> bytes:
        body = b""
        while True:
            line = self.read_until(b"\r\n")
            body += line
            size = int(line.partition(b";")[0], 16) if line else 0
            if size == 0:
                break
            body += self.read_exactly(size + 2)
        while line and line != b"\r\n":
            line = self.read_until(b"\r\n")
            body += line
        return body

    def _take(self, count: int) -> bytes:
        taken = self.received[self._taken : self._taken + count]
        self._taken += count
        return taken

    # --- writing and ending -----------------------------------------------------------

    def send(self, *pieces: bytes, delay: float = 0.0) -> None:
        """Sends each piece in a packet of its own, `delay` seconds between them.

        A peer that is gone is no error: the script goes on.
        """
        with contextlib.suppress(OSError):
            for number, piece in enumerate(pieces):
                if number and delay:
                    sleep(delay)
                self._socket.sendall(piece)

    def half_close(self) -> None:
        """Ends this direction only: the peer sees the end and may still send."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends the connection in order."""
        with contextlib.suppress(OSError):
            if not self._to_reset:
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def end(self, *, reset: bool = False) -> None:
        """Ends it from another thread than the one that reads, which then closes it.

        To close it under that one would leave it waiting for ever.
        """
        with contextlib.suppress(OSError):
            if reset:
                self._to_reset = True
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
            self._socket.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)

    def reset(self) -> None:
        """Ends the connection with RST."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
        self._socket.close()


Script = Callable[[RawConnection], None]


def answer(*pieces: bytes, delay: float = 0.0) -> Script:
    """Answers every request of a connection with the same bytes, in these pieces."""

    def script(connection: RawConnection) -> None:
        while connection.read_request():
            connection.send(*pieces, delay=delay)

    return script


def answer_in_turn(*answers: bytes) -> Script:
    """Answers a connection's first request with the first, and so on; then closes."""

    def script(connection: RawConnection) -> None:
        for data in answers:
            if not connection.read_request():
                return
            connection.send(data)

    return script


def cut_after(data: bytes, count: int, *, reset: bool = False) -> Script:
    """Answers with the first `count` bytes of `data`, then closes or resets."""

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(data[:count])
        if reset:
            # The reset must not overtake the bytes in the peer's kernel.
            sleep(0.02)
            connection.reset()

    return script


def swallow(connection: RawConnection) -> None:
    """Reads all and never answers."""
    connection.read_all()


def by_path(routes: dict[bytes, Script], other: Script) -> Script:
    """Chooses by the path of the connection's first request (its query left out)."""

    def script(connection: RawConnection) -> None:
        while not connection.received.count(b" ") >= 2:
            if not connection.read_some():
                return
        target = connection.received.split(b" ", 2)[1].partition(b"?")[0]
        routes.get(target, other)(connection)

    return script


def body_of(request: bytes) -> bytes:
    """The body of a request as the wire had it, chunked coding undone."""
    head, _, body = request.partition(b"\r\n\r\n")
    if b"\r\ntransfer-encoding:" not in head.lower():
        return body
    plain = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        count = int(size.partition(b";")[0], 16)
        if count == 0:
            break
        plain += rest[:count]
        body = rest[count + 2 :]
    return plain


Exchange = Callable[[RawConnection, bytes], None]


def saying(*pieces: bytes, delay: float = 0.0) -> Exchange:
    """Answers a request with these pieces."""
    return lambda connection, request: connection.send(*pieces, delay=delay)


def like_vllm(model: str, other: Exchange) -> Script:
    """Healthy, lists `model`, and leaves every other request to `other`.

    Only the other requests are kept in `requests`.
    """
    card = f'{{"id":"{model}","object":"model","root":"{model}","parent":null}}'
    models = f'{{"object":"list","data":[{card}]}}'.encode()
    known = {b"/health": b"", b"/v1/models": models}

    def script(connection: RawConnection) -> None:
        while request := connection.read_request():
            path = request.split(b" ", 2)[1]
            if path in known:
                connection.requests.pop()
                length = f"Content-Length: {len(known[path])}\r\n\r\n".encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                connection.send(head + length + known[path])
            else:
                other(connection, request)

    return script


class RawWorker:
    """Listens on a loopback port and runs a script on every connection."""

    def __init__(
        self,
        script: Script,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        backlog: int = 512,
        timeout: float = 30.0,
        receive: int = 0,
    ) -> None:
        """timeout: seconds a read of a script may take, so that no test hangs.

        receive: size of the kernel's buffer for what was not read (0: its own).
        """
        self.script = script
        self.host = host
        self.connections: list[RawConnection] = []
        self._timeout = timeout
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._listener = socket.create_server((host, port), backlog=backlog)
        if receive:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def requests(self) -> list[bytes]:
        """All requests read by scripts, over all connections."""
        return [data for each in self.connections for data in each.requests]

    def wait_for(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Returns once `condition` holds. Raises TimeoutError."""
        deadline = monotonic() + timeout
        while not condition():
            if monotonic() > deadline:
                raise TimeoutError("the raw worker never saw what was waited for")
            sleep(0.002)

    def refuse(self) -> None:
        """Stops listening: connections are refused; those that are open stay."""
        # A thread in accept() would keep the listening socket alive past its close.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.refuse()
        for accepted in self._sockets:
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(self._timeout)
        for accepted in self._sockets:
            accepted.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.settimeout(self._timeout)
            connection = RawConnection(accepted, len(self.connections))
            self._sockets.append(accepted)
            self.connections.append(connection)
            thread = threading.Thread(target=self._run, args=[connection], daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: RawConnection) -> None:
        try:
            self.script(connection)
        except TimeoutError:
            connection.ended = connection.ended or "timeout"
        finally:
            connection.close()
