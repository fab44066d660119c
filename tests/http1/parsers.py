"""The same head read by three parsers: ours, llhttp (httptools) and h11.

Owns what "framed alike" means. How a body ends is not taken from a parser's fields but
seen: bytes are put behind the head, and it tells which of them are body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import h11
import httptools

from router.http1.buffer import Buffer
from router.http1.errors import ProtocolError
from router.http1.framing import Framing
from router.http1.head import RequestHead, ResponseHead, parse_request, parse_response

#: Put behind a head: what is body of it tells a length, chunks or neither.
PROBE = b"3\r\nabc\r\n0\r\n\r\n" + b"x" * 100

Pairs = tuple[tuple[bytes, bytes], ...]

#: What an absolute target has before its path.
_AUTHORITY = re.compile(rb"https?://[^/?]+", re.IGNORECASE)


class Refused(Exception):
    """The parser does not take this head."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a parser makes of a head and of PROBE behind it."""

    #: Method and target, or status.
    start: tuple[object, ...]
    minor: int
    #: Names in lower case.
    pairs: Pairs
    #: What of the probe is body, and whether it has ended with that. An answer that
    #: ends with its connection has not.
    body: bytes
    ended: bool
    keep_alive: bool
    #: The message changes the protocol: its parser has stopped there.
    upgrade: bool = False


def _plain(pairs: list[tuple[bytes, bytes]]) -> Pairs:
    """Fields without what parsers may spell as they like: h11 lowers the coding, llhttp
    keeps spaces behind a value."""
    plain = []
    for name, value in pairs:
        name, value = bytes(name).lower(), bytes(value).rstrip(b" \t")
        coding = name == b"transfer-encoding"
        plain.append((name, value.lower() if coding else value))
    return tuple(plain)


def path_of(target: bytes) -> bytes:
    """A target in the form that ours gives it: a path."""
    match = _AUTHORITY.match(target)
    return target[match.end() :] if match else target


# --- ours ---------------------------------------------------------------------------


def ours(raw: bytes, *, answer: bool) -> Reading:
    """Raises Refused."""
    try:
        head: RequestHead | ResponseHead
        head = parse_response(raw) if answer else parse_request(raw)
    except ProtocolError as error:
        raise Refused(error.message) from None
    until_close = answer
    if isinstance(head, ResponseHead):
        start: tuple[object, ...] = (head.status,)
        until_close = not (head.status < 200 or head.status in (204, 304))
        empty = not until_close
    else:
        start = (head.method, head.target)
        empty = head.content_length < 0 and not head.chunked
    if empty:
        framing = Framing(0)
    elif head.chunked:
        framing = Framing(chunked=True)
    else:
        framing = Framing(head.content_length)
    body, ended = _probed(framing)
    return Reading(
        start, head.minor, _plain(head.pairs()), body, ended, head.keep_alive
    )


def _probed(framing: Framing) -> tuple[bytes, bool]:
    if framing.done:
        return b"", True
    payload = Buffer()
    framing.consume(PROBE, payload)
    return payload.pop(), framing.done


# --- llhttp -------------------------------------------------------------------------


_Parser = httptools.HttpRequestParser | httptools.HttpResponseParser


class _Heard:
    """The callbacks of httptools."""

    def __init__(self) -> None:
        self.url = b""
        self.pairs: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.whole = False
        self.complete = False
        self.messages = 0
        self.keep_alive = False
        self.parser: _Parser | None = None

    def on_message_begin(self) -> None:
        self.messages += 1

    def on_url(self, data: bytes) -> None:
        if self.messages == 1:
            self.url += data

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.whole:
            self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        assert self.parser is not None
        if not self.whole:
            self.keep_alive = self.parser.should_keep_alive()
        self.whole = True

    def on_body(self, data: bytes) -> None:
        if self.messages == 1:
            self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


def llhttp(raw: bytes, *, answer: bool) -> Reading:
    """Raises Refused."""
    heard = _Heard()
    parser: _Parser
    if answer:
        parser = httptools.HttpResponseParser(heard)
    else:
        parser = httptools.HttpRequestParser(heard)
    heard.parser = parser
    upgrade = False
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        upgrade = True
    except httptools.HttpParserError as error:
        # So it says, too, that it stops at a 101.
        upgrade = str(error) == "Pause on CONNECT/Upgrade"
        if not upgrade:
            raise Refused(str(error)) from None
    if not heard.whole:
        raise Refused("it wants more of the head")
    minor = int(parser.get_http_version().rpartition(".")[2] or 0)
    if isinstance(parser, httptools.HttpResponseParser):
        start: tuple[object, ...] = (parser.get_status_code(),)
    else:
        start = (parser.get_method(), path_of(heard.url))
    if not heard.complete and not upgrade:
        try:
            parser.feed_data(PROBE)
        except httptools.HttpParserError:
            # What lies behind the body is no message: it has ended.
            assert heard.complete
    return Reading(
        start,
        minor,
        _plain(heard.pairs),
        heard.body,
        heard.complete,
        heard.keep_alive,
        upgrade,
    )


# --- h11 ------------------------------------------------------------------------------


def h11_(raw: bytes, *, answer: bool) -> Reading:
    """Raises Refused."""
    connection = h11.Connection(h11.CLIENT if answer else h11.SERVER)
    if answer:
        asked = h11.Request(method="GET", target="/", headers=[("Host", "r")])
        connection.send(asked)
        connection.send(h11.EndOfMessage())
    connection.receive_data(raw)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise Refused(str(error)) from None
    if event is h11.NEED_DATA:
        raise Refused("it wants more of the head")
    assert isinstance(event, h11.Request | h11.Response | h11.InformationalResponse)
    if isinstance(event, h11.Request):
        start: tuple[object, ...] = (event.method, path_of(event.target))
    else:
        start = (event.status_code,)
    minor = int(event.http_version[-1:])
    body, ended = b"", isinstance(event, h11.InformationalResponse)
    try:
        if not ended:
            body, ended = _h11_probed(connection)
    except h11.RemoteProtocolError:
        pass
    state = str(connection.their_state)
    return Reading(
        start,
        minor,
        _plain(list(event.headers)),
        body,
        ended,
        state == "DONE",
        state == "MIGHT_SWITCH_PROTOCOL",
    )


def _h11_probed(connection: h11.Connection) -> tuple[bytes, bool]:
    body = b""
    event = connection.next_event()
    if event is h11.NEED_DATA:
        connection.receive_data(PROBE)
        event = connection.next_event()
    while isinstance(event, h11.Data):
        body += bytes(event.data)
        event = connection.next_event()
    return body, isinstance(event, h11.EndOfMessage)
