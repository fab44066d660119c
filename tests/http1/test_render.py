"""Heads as they go on: what is copied, what is dropped, what is added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.http1.head import (
    AUTHORIZATION_FIELD,
    CREDENTIAL_FIELDS,
    parse_request,
    parse_response,
)
from tests.http1.test_heads import CHUNKED, get, ok

LINES = b"Host: worker\r\n"
FORWARDED = b"X-Forwarded-For: 10.0.0.1\r\n"
ADDED = [b"Host: worker", b"X-Forwarded-Proto: http", b"X-Forwarded-Host: r"]


def forwarded(raw: bytes, **how: object) -> tuple[bytes, list[bytes]]:
    """Start line and other lines of the head as it goes to a worker."""
    head = parse_request(raw).render(LINES, **how)  # type: ignore[arg-type]
    # Whatever it is made of, it is a head that we would take.
    parse_request(head)
    assert head.endswith(b"\r\n\r\n")
    start, *lines = head[:-4].split(b"\r\n")
    return start, lines


def answered(raw: bytes, **how: object) -> tuple[bytes, list[bytes]]:
    head = parse_response(raw).render(b"X-Worker: w\r\n", **how)  # type: ignore[arg-type]
    parse_response(head)
    start, *lines = head[:-4].split(b"\r\n")
    return start, [line for line in lines if line != b"X-Worker: w"]


# --- to a worker --------------------------------------------------------------------


def test_what_is_not_ours_goes_on_as_it_came() -> None:
    """Order, duplicates, spelling, spaces and any bytes."""
    lines = [b"A: b", b"a:c", b"X-Y:\t \td e \t", b"Empty:", b"O: \x80\xff", b"A: b"]
    start, found = forwarded(get(*lines, start=b"brew /x?%20 HTTP/1.0"))
    assert start == b"brew /x?%20 HTTP/1.1"
    assert found == [*ADDED, *lines]


@pytest.mark.parametrize(
    "line",
    [
        b"Connection: x",
        b"Keep-Alive: timeout=5",
        b"Proxy-Connection: close",
        b"Proxy-Authorization: Basic x",
        b"TE: trailers",
        b"Trailer: A",
        b"Upgrade: websocket",
        b"Expect: 100-continue",
        b"X-Request-Id: 1",
        b"X-Router-Peer: 127.0.0.1",
        b"X-Router-Provider: p",
        b"X-data-parallel-rank: 1",
    ],
)
def test_what_is_meant_for_this_hop_is_dropped(line: bytes) -> None:
    assert forwarded(get(b"A: b", line, b"C: d", line.upper())) == (
        b"GET / HTTP/1.1",
        [*ADDED, b"A: b", b"C: d"],
    )


def test_fields_that_connection_names_are_dropped() -> None:
    lines = [
        b"X-a: 1",
        b"Connection: x-A, close",
        b"x-A: 2",
        b"B: 3",
        b"connection: c~",
        b"C^: 4",
        b"C~: 5",
        b"X-ab: 6",
    ]
    _, found = forwarded(get(*lines))
    assert found == [*ADDED, b"B: 3", b"C^: 4", b"X-ab: 6"]


def test_what_the_router_itself_writes_cannot_be_named_away() -> None:
    lines = [
        b"Connection: host, content-length, x-forwarded-for, x-forwarded-proto",
        b"Content-Length: 5",
        b"X-Forwarded-For: 6.6.6.6",
        b"X-Forwarded-Proto: https",
    ]
    _, found = forwarded(get(*lines), length=5, forwarded_for=FORWARDED)
    assert sorted(found) == sorted([*ADDED, FORWARDED[:-2], b"Content-Length: 5"])


def test_framing_is_written_anew() -> None:
    raw = get(b"content-length: 0005", b"A: b")
    assert forwarded(raw, length=5)[1] == [*ADDED, b"A: b", b"Content-Length: 5"]
    assert forwarded(raw)[1] == [*ADDED, b"A: b"]
    raw = get(b"TRANSFER-encoding: CHUNKED", b"A: b")
    assert forwarded(raw, chunked=True)[1] == [*ADDED, b"A: b", CHUNKED]
    most = b"Content-Length: " + b"9" * 18
    assert forwarded(raw, length=10**18 - 1)[1][-1] == most
    assert forwarded(raw, length=0)[1][-1] == b"Content-Length: 0"


def test_credentials_are_dropped_where_they_must_not_go() -> None:
    secrets = [b"Authorization: a", b"X-API-Key: b", b"Cookie: c", b"COOKIE: d"]
    raw = get(secrets[0], b"A: b", *secrets[1:])
    assert forwarded(raw)[1] == [*ADDED, secrets[0], b"A: b", *secrets[1:]]
    dropped = forwarded(raw, drop=AUTHORIZATION_FIELD)[1]
    assert dropped == [*ADDED, b"A: b", *secrets[1:]]
    assert forwarded(raw, drop=CREDENTIAL_FIELDS)[1] == [*ADDED, b"A: b"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], b"10.0.0.1"),
        ([b"1.1.1.1"], b"1.1.1.1, 10.0.0.1"),
        (
            [b"1.1.1.1, 2.2.2.2", b"", b"3.3.3.3"],
            b"1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.1",
        ),
        ([b""], b"10.0.0.1"),
    ],
)
def test_our_peer_is_named_behind_those_that_came(
    before: list[bytes], after: bytes
) -> None:
    """One field: many servers look at one only, and the last address is the one that
    was seen and not told."""
    lines = [b"x-forwarded-FOR: " + value for value in before]
    _, found = forwarded(get(b"A: b", *lines), forwarded_for=FORWARDED)
    named = [line for line in found if line.lower().startswith(b"x-forwarded-for")]
    assert named == [b"X-Forwarded-For: " + after]


def test_proto_and_host_are_added_where_no_proxy_did() -> None:
    lines = [b"X-Forwarded-Proto: https", b"X-Forwarded-Host: public"]
    assert forwarded(get(*lines))[1] == [b"Host: worker", *lines]
    _, found = forwarded(get(host=b"a:1"), proto=b"https")
    assert found[1:] == [b"X-Forwarded-Proto: https", b"X-Forwarded-Host: a:1"]
    assert forwarded(b"GET / HTTP/1.0\r\n\r\n")[1] == ADDED[:2]
    assert forwarded(get(host=b""))[1] == ADDED[:2]


def test_an_absolute_target_becomes_a_path() -> None:
    start, found = forwarded(get(start=b"GET http://public:1/a?b HTTP/1.1"))
    assert start == b"GET /a?b HTTP/1.1"
    assert found[2] == b"X-Forwarded-Host: public:1"


def test_a_target_may_be_replaced() -> None:
    assert forwarded(get(), target=b"/x" * 500)[0] == b"GET %b HTTP/1.1" % (b"/x" * 500)


def test_a_websocket_is_asked_for_anew() -> None:
    raw = get(b"Connection: x, upgrade", b"Upgrade: WebSocket", b"X: y", b"A: b")
    head = parse_request(raw)
    assert head.upgrade == b"WebSocket"
    _, found = forwarded(raw, upgrade=head.upgrade)
    assert found == [*ADDED, b"Connection: upgrade", b"Upgrade: WebSocket", b"A: b"]


@pytest.mark.parametrize(
    "raw",
    [
        get(b"Upgrade: websocket"),
        get(b"Connection: upgrades", b"Upgrade: websocket"),
        get(b"Connection: upgrade"),
        get(b"Connection: upgrade", b"Upgrade: h2c"),
        get(b"Connection: upgrade", b"Upgrade: websocket, h2c"),
        get(b"Connection: upgrade", b"Upgrade: websocket", b"Content-Length: 1"),
        get(b"Connection: upgrade", b"Upgrade: websocket", CHUNKED),
        get(b"Connection: upgrade", b"Upgrade: websocket", start=b"GET / HTTP/1.0"),
    ],
)
def test_no_other_change_of_protocol_is_taken_part_in(raw: bytes) -> None:
    assert parse_request(raw).upgrade is None


# --- to a client --------------------------------------------------------------------


def test_an_answer_goes_on_as_it_came() -> None:
    lines = [
        b"Server: x",
        b"set-cookie: a",
        b"Set-Cookie: b",
        b"O:\t\x80 ",
        b"Trailer: A",
    ]
    start, found = answered(ok(*lines, start=b"HTTP/1.0 404 Not \xff Found"))
    assert start == b"HTTP/1.1 404 Not \xff Found"
    assert found == lines


def test_what_is_meant_for_this_hop_does_not_reach_the_client() -> None:
    lines = [
        b"A: b",
        b"Connection: keep-alive, X-Hop",
        b"Keep-Alive: timeout=5",
        b"Proxy-Connection: close",
        b"Upgrade: h2c",
        b"X-Hop: 1",
        b"X-Request-ID: theirs",
        b"X-Router-Worker: theirs",
        b"C: d",
    ]
    assert answered(ok(*lines))[1] == [b"A: b", b"C: d"]


def test_what_becomes_of_the_connection_is_said() -> None:
    assert answered(ok(), keep_alive=False)[1] == [b"Connection: close"]
    assert answered(ok(), say_keep_alive=True)[1] == [b"Connection: keep-alive"]
    closing = answered(ok(), keep_alive=False, say_keep_alive=True)[1]
    assert closing == [b"Connection: close"]
    upgrade = ok(start=b"HTTP/1.1 101 S")
    assert answered(upgrade, upgrade=b"websocket")[1] == [
        b"Connection: upgrade",
        b"Upgrade: websocket",
    ]


def test_an_answers_framing_is_written_anew() -> None:
    assert answered(ok(b"CONTENT-length: 007"))[1] == [b"Content-Length: 7"]
    assert answered(ok(b"transfer-encoding: CHUNKED"), chunked=True)[1] == [CHUNKED]
    assert answered(ok(b"transfer-encoding: CHUNKED"))[1] == []
    assert answered(ok())[1] == []


@pytest.mark.parametrize("start", [b"HTTP/1.1 204 No", b"HTTP/1.1 101 Switching"])
def test_no_framing_is_written_where_none_may_stand(start: bytes) -> None:
    assert answered(ok(b"Content-Length: 5", start=start))[1] == []
    assert answered(ok(CHUNKED, start=start), chunked=True)[1] == []


def test_304_keeps_the_length_of_what_was_not_sent() -> None:
    kept = answered(ok(b"Content-Length: 5", start=b"HTTP/1.1 304 N"))[1]
    assert kept == [b"Content-Length: 5"]


# --- any fields -----------------------------------------------------------------------

NAMES = [
    b"A",
    b"a-b",
    b"Connection",
    b"Cookie",
    b"Host2",
    b"TE",
    b"Keep-Alive",
    b"X_^~",
]
field = st.tuples(
    st.sampled_from(NAMES), st.sampled_from([b"", b"x", b"a-b", b"\xff z"])
)


@given(st.lists(field, max_size=12))
def test_runs_of_fields_are_copied_whole(fields: list[tuple[bytes, bytes]]) -> None:
    """Whatever is dropped between them, the others keep their bytes and order."""
    lines = [b"%b:  %b " % pair for pair in fields]
    named = {
        option.lower()
        for name, value in fields
        if name == b"Connection"
        for option in value.split()
    }
    hop = {b"connection", b"te", b"keep-alive", *named}
    kept = [
        line
        for line, (name, _) in zip(lines, fields, strict=True)
        if name.lower() not in hop
    ]
    assert forwarded(get(*lines))[1] == [*ADDED, *kept]
