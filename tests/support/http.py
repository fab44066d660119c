"""A client of raw sockets: sends any bytes, reads answers strictly.

For tests of the wire. The reader accepts exactly what HTTP/1.1 allows a server to
send and nothing more, so that a sloppy answer is a failure and not a pass.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from dataclasses import dataclass, field
from time import sleep
from types import TracebackType
from typing import Self

_STATUS = re.compile(rb"HTTP/1\.([01]) ([0-9]{3}) ([\t\x20-\x7e\x80-\xff]*)")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(;[\t\x20-\x7e\x80-\xff]*)?")


class BadAnswer(AssertionError):
    """The server sent what HTTP/1.1 does not allow."""


class Ended(BadAnswer):
    """The connection ended too early."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response as it came."""

    status: int
    reason: bytes
    #: Names in lower case, duplicates and order kept.
    headers: list[tuple[bytes, bytes]]
    body: bytes
    version: bytes = b"1.1"
    #: Sizes of the chunks, empty if the body was not chunked.
    chunks: list[int] = field(default_factory=list)
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    #: False when the connection ended before the body did.
    complete: bool = True

    def header(self, name: bytes) -> bytes | None:
        """The only value of `name`, or None. Raises BadAnswer if there are several."""
        values = [value for key, value in self.headers if key == name.lower()]
        if len(values) > 1:
            raise BadAnswer(f"{name!r} stands {len(values)} times")
        return values[0] if values else None


class RawClient:
    """One connection. Every read waits at most `timeout` seconds."""

    def __init__(
        self,
        port: int,
        *,
        host: str = "127.0.0.1",
        timeout: float = 10.0,
        receive: int = 0,
    ) -> None:
        """receive: size of the kernel's buffer for what was not read (0: its own)."""
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM
        )
        self._socket.settimeout(timeout)
        if receive:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        try:
            self._socket.connect((host, port))
        except OSError:
            self._socket.close()
            raise
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._ended = False
        self._reset = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- sending --------------------------------------------------------------------

    def send(self, *pieces: bytes, delay: float = 0.0) -> None:
        """Sends each piece in a packet of its own, `delay` seconds between them."""
        for number, piece in enumerate(pieces):
            if number and delay:
                sleep(delay)
            self._socket.sendall(piece)

    def fill(self) -> int:
        """Sends zeros until nobody takes any more for a moment; how many."""
        timeout = self._socket.gettimeout()
        self._socket.settimeout(0.02)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while True:
                sent += self._socket.send(bytes(1 << 16))
        self._socket.settimeout(timeout)
        return sent

    def half_close(self) -> None:
        """Says that nothing more will be sent; answers can still be read."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """Ends the connection with RST."""
        no_linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        self._socket.close()

    # --- reading --------------------------------------------------------------------

    def read_all(self) -> bytes:
        """Every byte until the server ends the connection, however it does."""
        while self._more():
            pass
        data, self._buffer = self._buffer, b""
        return data

    def read_some(self) -> bytes:
        """The bytes that are there, waiting for the first; b"" at the end."""
        if not self._buffer:
            self._more()
        data, self._buffer = self._buffer, b""
        return data

    def read_answer(self, method: bytes = b"GET") -> Answer:
        """The next final answer, interim ones (1xx, but 101) skipped.

        method: of the request it answers; HEAD has no body. Raises BadAnswer.
        """
        while True:
            version, status, reason, headers = self._read_head()
            if status >= 200 or status == 101:
                break
        if method == b"HEAD" or status in (101, 204, 304):
            return Answer(status, reason, headers, b"", version)
        return self._read_body(version, status, reason, headers)

    def ended(self) -> bool:
        """Whether the server has ended the connection and all of it was read."""
        return not self._buffer and not self._more()

    def was_reset(self) -> bool:
        """Whether the server has reset the connection, once all of it was read."""
        return self.ended() and self._reset

    def _read_body(
        self,
        version: bytes,
        status: int,
        reason: bytes,
        headers: list[tuple[bytes, bytes]],
    ) -> Answer:
        codings = [value for name, value in headers if name == b"transfer-encoding"]
        lengths = [value for name, value in headers if name == b"content-length"]
        if codings:
            if lengths or codings != [b"chunked"] or version != b"1.1":
                raise BadAnswer(f"framing: {codings} {lengths} HTTP/{version!r}")
            return self._read_chunked(status, reason, headers)
        if not lengths:
            body = self.read_all()
            return Answer(status, reason, headers, body, version)
        if len(lengths) > 1 or not lengths[0].isdigit():
            raise BadAnswer(f"content-length: {lengths}")
        body = self._take(int(lengths[0]))
        complete = len(body) == int(lengths[0])
        return Answer(status, reason, headers, body, version, complete=complete)

    def _read_chunked(
        self, status: int, reason: bytes, headers: list[tuple[bytes, bytes]]
    ) -> Answer:
        body = b""
        sizes: list[int] = []
        answer = Answer(status, reason, headers, b"", chunks=sizes)
        while True:
            line = self._line()
            if line is None:
                return _with(answer, body, complete=False)
            match = _SIZE.fullmatch(line)
            if not match:
                raise BadAnswer(f"chunk size {line!r}")
            size = int(match[1], 16)
            if size == 0:
                break
            sizes.append(size)
            data = self._take(size)
            body += data
            end = self._take(2)
            if len(data) < size or len(end) < 2:
                return _with(answer, body, complete=False)
            if end != b"\r\n":
                raise BadAnswer(f"{end!r} after a chunk")
        try:
            answer.trailers.extend(self._read_fields())
        except Ended:
            return _with(answer, body, complete=False)
        return _with(answer, body, complete=True)

    def _read_head(self) -> tuple[bytes, int, bytes, list[tuple[bytes, bytes]]]:
        line = self._line()
        if line is None:
            raise BadAnswer("the connection ended without an answer")
        match = _STATUS.fullmatch(line)
        if not match:
            raise BadAnswer(f"status line {line!r}")
        return b"1." + match[1], int(match[2]), match[3], self._read_fields()

    def _read_fields(self) -> list[tuple[bytes, bytes]]:
        fields = []
        while line := self._line():
            match = _FIELD.fullmatch(line)
            if not match:
                raise BadAnswer(f"field {line!r}")
            fields.append((match[1].lower(), match[2].rstrip(b" \t")))
        if line is None:
            raise Ended("the connection ended within the fields")
        return fields

    def _line(self) -> bytes | None:
        """A line without its CRLF; None if the connection ends before it does."""
        while (at := self._buffer.find(b"\r\n")) < 0:
            if not self._more():
                return None
        line, self._buffer = self._buffer[:at], self._buffer[at + 2 :]
        return line

    def _take(self, count: int) -> bytes:
        """The next `count` bytes, fewer if the connection ends before."""
        parts = [self._buffer]
        have = len(self._buffer)
        self._buffer = b""
        while have < count and self._more():
            parts.append(self._buffer)
            have += len(self._buffer)
            self._buffer = b""
        data = b"".join(parts)
        self._buffer = data[count:]
        return data[:count]

    def _more(self) -> bool:
        if self._ended:
            return False
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionResetError:
            self._reset = True
            data = b""
        self._ended = not data
        self._buffer += data
        return bool(data)


def _with(answer: Answer, body: bytes, *, complete: bool) -> Answer:
    return Answer(
        answer.status,
        answer.reason,
        answer.headers,
        body,
        answer.version,
        answer.chunks,
        answer.trailers,
        complete,
    )


def ask(port: int, request: bytes, *pieces: bytes, timeout: float = 10.0) -> Answer:
    """One request on a connection of its own. pieces: the rest of it, sent apart."""
    with RawClient(port, timeout=timeout) as client:
        client.send(request, *pieces)
        return client.read_answer(request.split(b" ", 1)[0])


def post(path: str, body: bytes, *, host: str = "router", fields: str = "") -> bytes:
    """The bytes of a JSON POST. fields: more header lines, each with its CRLF."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{fields}\r\n"
    )
    return head.encode() + body
