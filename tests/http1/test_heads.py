"""Heads: what is read in them, and what is refused because two could read it apart."""

from __future__ import annotations

import pytest

from router.http1.errors import ProtocolError
from router.http1.fields import Kind
from router.http1.head import RequestHead, ResponseHead, parse_request, parse_response


def get(*lines: bytes, start: bytes = b"GET / HTTP/1.1", host: bytes = b"r") -> bytes:
    """The head of a request with these lines behind its Host."""
    return b"\r\n".join((start, b"Host: " + host, *lines, b"", b""))


def ok(*lines: bytes, start: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join((start, *lines, b"", b""))


# --- start lines --------------------------------------------------------------------

#: Start line, then method, target, minor version, host.
START_LINES = [
    (b"GET / HTTP/1.1", b"GET", b"/", 1, b"r"),
    (b"GET / HTTP/1.0", b"GET", b"/", 0, b"r"),
    (b"POST /v1/x?a=b&c HTTP/1.1", b"POST", b"/v1/x?a=b&c", 1, b"r"),
    (b"brew /pot HTTP/1.1", b"brew", b"/pot", 1, b"r"),
    (b"M-SEARCH!#$%&'*+.^_`|~ / HTTP/1.1", b"M-SEARCH!#$%&'*+.^_`|~", b"/", 1, b"r"),
    (b"OPTIONS * HTTP/1.1", b"OPTIONS", b"*", 1, b"r"),
    (b"GET //a//b/../c HTTP/1.1", b"GET", b"//a//b/../c", 1, b"r"),
    (b'GET /%00"<>[]{}|\\^`?? HTTP/1.1', b"GET", b'/%00"<>[]{}|\\^`??', 1, b"r"),
    (b"GET http://h/a?b HTTP/1.1", b"GET", b"/a?b", 1, b"h"),
    (b"GET HTTPS://H:8/ HTTP/1.1", b"GET", b"/", 1, b"H:8"),
    (b"GET http://[::1]:80/x HTTP/1.1", b"GET", b"/x", 1, b"[::1]:80"),
]


@pytest.mark.parametrize(("start", "method", "target", "minor", "host"), START_LINES)
def test_request_lines_are_read(
    start: bytes, method: bytes, target: bytes, minor: int, host: bytes
) -> None:
    head = parse_request(get(start=start))
    assert (head.method, head.target, head.minor) == (method, target, minor)
    assert head.host() == host
    path, mark, query = target.partition(b"?")
    assert (head.path, head.query) == (path, query if mark else None)


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET",
        b"GET /",
        b"GET /  HTTP/1.1",
        b"GET  / HTTP/1.1",
        b" GET / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET / http/1.1",
        b"GET / HTTP/1.2",
        b"GET / HTTP/2.0",
        b"GET / HTTP/11",
        b"GET / HTTP/1.1\x00",
        b"GET\t/ HTTP/1.1",
        b"GET /\tHTTP/1.1",
        b"G\x00T / HTTP/1.1",
        b"G(T / HTTP/1.1",
        b"G\xc3\x89T / HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET * HTTP/1.1",
        b"GET x HTTP/1.1",
        b"GET ?x HTTP/1.1",
        b"GET /\xc3\xa9 HTTP/1.1",
        b"GET /\x7f HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"GET /a#b HTTP/1.1",
        b"GET ftp://h/ HTTP/1.1",
        b"GET http:/h HTTP/1.1",
        b"GET http://h HTTP/1.1",
        b"GET http://h?x HTTP/1.1",
        b"GET http:///x HTTP/1.1",
        b"GET http://user@h/ HTTP/1.1",
        b"GET http://h\\/ HTTP/1.1",
        b"GET h:80 HTTP/1.1",
        b"CONNECT h:80 HTTP/1.1",
        b"CONNECT /x HTTP/1.1",
        b"GET /\rHost: x HTTP/1.1",
        b"GET / HTTP/1.1\nX: y",
    ],
)
def test_request_lines_that_could_be_read_apart_are_refused(start: bytes) -> None:
    with pytest.raises(ProtocolError) as refusal:
        parse_request(get(start=start))
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    ("start", "status", "reason", "minor"),
    [
        (b"HTTP/1.1 200 OK", 200, b"OK", 1),
        (b"HTTP/1.0 404 Not Found", 404, b"Not Found", 0),
        (b"HTTP/1.1 200 ", 200, b"", 1),
        (b"HTTP/1.1 200", 200, b"", 1),
        (b"HTTP/1.1 999 \t\x80\xff ", 999, b"\t\x80\xff ", 1),
        (b"HTTP/1.1 100 Continue", 100, b"Continue", 1),
    ],
)
def test_status_lines_are_read(
    start: bytes, status: int, reason: bytes, minor: int
) -> None:
    head = parse_response(ok(start=start))
    assert (head.status, head.reason, head.minor) == (status, reason, minor)


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1",
        b"HTTP/1.1 ",
        b"HTTP/1.1 20",
        b"HTTP/1.1 2000",
        b"HTTP/1.1 2x0 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 -20 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1\t200 OK",
        b"HTTP/1.2 200 OK",
        b"HTTP/2 200 OK",
        b"http/1.1 200 OK",
        b"HTTP/1.1 200 O\x00K",
        b"HTTP/1.1 200 O\x7fK",
        b"HTTP/1.1 200 OK\nA: b",
        b"HTTP/1.1 200 OK\rA: b",
        b"ICY 200 OK",
    ],
)
def test_status_lines_that_are_none_are_refused(start: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_response(ok(start=start))


# --- fields -------------------------------------------------------------------------


def test_fields_are_kept_as_they_came() -> None:
    lines = [b"A: b", b"a:c", b"X-Y:\t \td e \t", b"Empty:", b"O: \x80\xff\t~", b"A: b"]
    pairs = [
        (b"A", b"b"),
        (b"a", b"c"),
        (b"X-Y", b"d e"),
        (b"Empty", b""),
        (b"O", b"\x80\xff\t~"),
        (b"A", b"b"),
    ]
    assert parse_request(get(*lines)).pairs() == [(b"Host", b"r"), *pairs]
    assert parse_response(ok(*lines)).pairs() == pairs


def test_a_field_is_found_by_its_name_in_any_case() -> None:
    head = parse_request(get(b"x_Session-ID~^: 1", b"X_SESSION-id~^: 2", b"Empty:"))
    assert head.header(b"x_session-id~^") == b"1"
    assert head.header(b"empty") == b""
    assert head.header(b"x_session-id~") is None
    # Letters apart by the bit of the case, and nothing else, are the same.
    assert head.header(b"x\x7fsession-id~^") is None
    assert head.header(b"x_session-id~~") is None


def test_the_first_name_that_has_a_value_wins() -> None:
    head = parse_request(get(b"b: 2", b"a:", b"c: 3", b"b: 4"))
    assert head.first((b"a", b"b", b"c")) == b"2"
    assert head.first((b"c", b"b")) == b"3"
    assert head.first((b"a", b"x")) is None
    assert head.first(()) is None


def test_every_known_kind_is_known_in_any_case() -> None:
    for kind in Kind:
        name = kind.name.replace("_", "-").encode()
        if kind in (Kind.OTHER, Kind.HOST, Kind.CONTENT_LENGTH, Kind.TRANSFER_ENCODING):
            continue
        for written in (name, name.lower(), name.title()):
            head = parse_request(get(written + b": v"))
            assert head.value(kind) == b"v"
            # One letter more or another is another name.
            for other in (written + b"x", b"y" + written[1:]):
                assert parse_request(get(other + b": v")).value(kind) is None


@pytest.mark.parametrize(
    "line",
    [
        b"A",
        b": b",
        b"A : b",
        b"A\t: b",
        b" A: b",
        b"\tA: b",
        b"A b: c",
        b"A(: b",
        b"A\x80: b",
        b"A\x00: b",
        b"A: b\x00",
        b"A: b\x7fc",
        b"A: b\x0bc",
        b"A: b\rc",
        b"A: b\nc",
        b"A: b\nC: d",
        b"A: b\r\n c",
        b"A: b\r\n\tc",
        b"A:\r\n b",
    ],
)
def test_lines_that_are_no_fields_are_refused(line: bytes) -> None:
    for parse, raw in ((parse_request, get(line)), (parse_response, ok(line))):
        with pytest.raises(ProtocolError) as refusal:
            parse(raw)
        assert refusal.value.status == 400


def test_256_fields_are_taken_and_no_more() -> None:
    lines = [b"A: b"] * 255
    assert len(parse_request(get(*lines)).pairs()) == 256
    with pytest.raises(ProtocolError) as refusal:
        parse_request(get(*lines, b"A: b"))
    assert refusal.value.status == 431


@pytest.mark.parametrize(
    "raw", [b"", b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: r\r\n", get() + b"x"]
)
def test_what_does_not_end_with_the_blank_line_is_no_head(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_request(raw)
    with pytest.raises(ProtocolError):
        parse_response(raw)


def test_a_blank_line_ends_the_head() -> None:
    with pytest.raises(ProtocolError):
        parse_request(get(b"", b"A: b"))


# --- Host ---------------------------------------------------------------------------


@pytest.mark.parametrize("host", [b"r", b"a-b.c_d~:8000", b"[::1]:80", b"", b"%41!$"])
def test_a_host_is_a_name_and_a_port(host: bytes) -> None:
    assert parse_request(get(host=host)).host() == host


@pytest.mark.parametrize(
    "host", [b"a,b", b"a b", b"a\tb", b"a/b", b"u@h", b"a?b", b"a#b", b"a\\b", b"\xff"]
)
def test_a_host_that_is_something_else_is_refused(host: bytes) -> None:
    with pytest.raises(ProtocolError, match="host"):
        parse_request(get(host=host))


def test_a_request_has_one_host() -> None:
    with pytest.raises(ProtocolError, match="two Host"):
        parse_request(get(b"host: r"))
    with pytest.raises(ProtocolError, match="no Host"):
        parse_request(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(ProtocolError, match="no Host"):
        parse_request(b"GET http://h/ HTTP/1.1\r\n\r\n")
    old = parse_request(b"GET / HTTP/1.0\r\n\r\n")
    assert old.host() is None
    with pytest.raises(ProtocolError, match="two Host"):
        parse_request(get(b"Host: r", start=b"GET / HTTP/1.0"))


# --- framing and persistence --------------------------------------------------------

CHUNKED = b"Transfer-Encoding: chunked"


def framed(*lines: bytes, old: bool = False) -> tuple[RequestHead, ResponseHead]:
    version = b"HTTP/1.0" if old else b"HTTP/1.1"
    return (
        parse_request(get(*lines, start=b"POST / " + version)),
        parse_response(ok(*lines, start=version + b" 200 OK")),
    )


@pytest.mark.parametrize(
    ("lines", "length", "chunked"),
    [
        ([], -1, False),
        ([b"Content-Length: 0"], 0, False),
        ([b"content-length: \t 17"], 17, False),
        ([b"Content-Length: 0005"], 5, False),
        ([b"Content-Length: 999999999999999999"], 10**18 - 1, False),
        ([CHUNKED], -1, True),
        ([b"transfer-ENCODING:\tChUnKeD"], -1, True),
    ],
)
def test_framing_is_read(lines: list[bytes], length: int, chunked: bool) -> None:
    for head in framed(*lines):
        assert (head.content_length, head.chunked) == (length, chunked)


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length:"],
        [b"Content-Length: x"],
        [b"Content-Length: -1"],
        [b"Content-Length: +1"],
        [b"Content-Length: 1.0"],
        [b"Content-Length: 1 2"],
        [b"Content-Length: 0x1"],
        [b"Content-Length: 1, 1"],
        [b"Content-Length: 1,"],
        [b"Content-Length: 1000000000000000000"],
        [b"Content-Length: \xb2"],
        [b"Content-Length: 5 "],
        [b"Content-Length: 5", b"Content-Length: 5"],
        [b"Content-Length: 5", b"content-length: 6"],
        [b"Content-Length: 5", CHUNKED],
        [CHUNKED, b"Content-Length: 0"],
        [CHUNKED, CHUNKED],
        [b"Transfer-Encoding:"],
        [b"Transfer-Encoding: gzip"],
        [b"Transfer-Encoding: identity"],
        [b"Transfer-Encoding: gzip, chunked"],
        [b"Transfer-Encoding: chunked, chunked"],
        [b"Transfer-Encoding: chunked;a=b"],
        [b"Transfer-Encoding: xchunked"],
        [b"Transfer-Encoding: chunked\t"],
        [b"Transfer-Encoding: chunked\x00"],
        [b"Transfer-Encoding: \x63hunke\x44\xff"],
    ],
)
def test_framing_that_could_be_read_apart_is_refused(lines: list[bytes]) -> None:
    for parse, raw in ((parse_request, get(*lines)), (parse_response, ok(*lines))):
        with pytest.raises(ProtocolError) as refusal:
            parse(raw)
        assert refusal.value.status == 400


def test_chunks_are_not_for_http_1_0() -> None:
    with pytest.raises(ProtocolError, match=r"HTTP/1\.0"):
        framed(CHUNKED, old=True)


@pytest.mark.parametrize(
    ("lines", "new", "old"),
    [
        ([], True, False),
        ([b"Connection: close"], False, False),
        ([b"Connection: keep-alive"], True, True),
        ([b"Connection: Keep-Alive, x"], True, True),
        ([b"Connection: keep-alive, close"], False, False),
        ([b"Connection: x", b"connection: ,, CLOSE ,"], False, False),
        ([b"Connection: closed"], True, False),
        ([b"Connection:"], True, False),
        ([b"Keep-Alive: timeout=5", b"Proxy-Connection: close"], True, False),
    ],
)
def test_persistence_is_read(lines: list[bytes], new: bool, old: bool) -> None:
    assert [head.keep_alive for head in framed(*lines)] == [new, new]
    assert [head.keep_alive for head in framed(*lines, old=True)] == [old, old]


def test_too_many_connection_options_are_refused() -> None:
    """Each costs a look at every field."""
    options = [b"a"] * 64
    assert parse_request(get(b"Connection: " + b",".join(options))).keep_alive
    with pytest.raises(ProtocolError) as refusal:
        parse_request(get(b"Connection: " + b",".join((*options, b"a"))))
    assert refusal.value.status == 431


@pytest.mark.parametrize(
    ("lines", "expects"),
    [
        ([b"Expect: 100-continue"], True),
        ([b"Expect: 100-Continue"], True),
        ([b"Expect: 200-ok"], False),
        ([], False),
    ],
)
def test_expectations_are_read(lines: list[bytes], expects: bool) -> None:
    assert framed(*lines)[0].expects_continue is expects
    assert framed(*lines, old=True)[0].expects_continue is False


def test_heads_that_nobody_parsed_are_empty() -> None:
    head = RequestHead()
    assert (head.method, head.target, head.query, head.pairs()) == (b"", b"", None, [])
    answer = ResponseHead()
    assert (answer.status, answer.reason, answer.pairs()) == (0, b"", [])
