"""Whatever two parsers take, they must read alike: that is what smuggling lives of.

Heads are made of good and bad parts and then damaged. What ours and another parser
both take is framed alike, field for field. What ours takes and the other refuses falls
into a short list, each entry with its reason; what ours refuses needs none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.http1 import parsers
from tests.http1.parsers import Reading, Refused

# --- heads --------------------------------------------------------------------------

METHODS = [b"GET", b"POST", b"HEAD", b"OPTIONS", b"DELETE", b"brew", b"PURGE", b"G~T"]
TARGETS = [
    b"/",
    b"/a?b=c",
    b"*",
    b"http://h/x",
    b"http://h:80/x?y",
    b"//x",
    b'/"<>',
    b"/a#b",
]
VERSIONS = [
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/1.2",
    b"HTTP/2.0",
]
STATUSES = [
    b"200 OK",
    b"204 No",
    b"304 N",
    b"404 Not Found",
    b"200 ",
    b"200",
    b"100 C",
    b"99 X",
]
FIELDS = [
    b"Host: r",
    b"Host: h:80",
    b"Content-Length: 3",
    b"Content-Length: 0",
    b"content-length:\t10 ",
    b"Content-Length: 3, 3",
    b"Content-Length: +3",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"transfer-encoding: CHUNKED",
    b"Transfer-Encoding: chunked\t",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding : chunked",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Connection: keep-alive, close",
    b"Connection: close, x",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"Expect: 100-continue",
    b"X: y",
    b"X:",
    b"X: \x80\xff",
    b"X: a\tb ",
    b" folded",
    b"X-Y_z: ~",
    b"Proxy-Connection: close",
]
DAMAGE = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b",", b"\x00", b"\x0b", b"\x7f", b"\x80",
    b"chunked", b"Content-Length: 5\r\n", b"Host: r\r\n", b"0", b"#", b"\\", b"@", b"/",
]  # fmt: skip


def _head(
    start: bytes, fields: list[bytes], damage: list[tuple[int, int, bytes]]
) -> bytes:
    raw = b"\r\n".join((start, *fields, b"", b""))
    for at, length, new in damage:
        at %= len(raw)
        raw = raw[:at] + new + raw[at + length :]
    # Ours is given heads up to their blank line, and so are the others.
    return raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


damages = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.integers(0, 2),
        st.sampled_from(DAMAGE) | st.binary(max_size=1),
    ),
    max_size=2,
)
fields = st.lists(st.sampled_from(FIELDS), max_size=5).map(
    lambda some: [b"Host: r", *some]
)
requests = st.builds(
    _head,
    st.builds(
        lambda *parts: b" ".join(parts),
        st.sampled_from(METHODS),
        st.sampled_from(TARGETS),
        st.sampled_from(VERSIONS),
    ),
    fields,
    damages,
)
answers = st.builds(
    _head,
    st.builds(
        lambda *parts: b" ".join(parts),
        st.sampled_from(VERSIONS),
        st.sampled_from(STATUSES),
    ),
    fields,
    damages,
)


# --- what ours takes and another refuses --------------------------------------------


def unknown_method(raw: bytes) -> bool:
    """llhttp has a list of methods; any token is one (RFC 9110, 9.1), and a worker says
    better than we which it knows."""
    return raw.split(b" ")[0] not in METHODS[:5]


def odd_target(raw: bytes) -> bool:
    """llhttp parses the URL. Ours goes on as it came, or is refused where it could be
    taken for another: control characters, spaces, fragments, bytes past ASCII."""
    return re.fullmatch(rb"[A-Za-z0-9/?=&._~:-]*", raw.split(b" ")[1]) is None


def unasked_switch(raw: bytes) -> bool:
    """h11 knows that nobody asked for a 101. Ours sees that next, with the request."""
    return raw.split(b" ")[1].startswith(b"101")


#: Every way in which ours is less strict than another parser.
LLHTTP_REFUSES = [unknown_method, odd_target]
H11_REFUSES_ANSWERS = [unasked_switch]


# --- where two differ in when a connection ends -------------------------------------


def proxy_connection(raw: bytes, ours: Reading) -> bool:
    """llhttp takes Proxy-Connection for Connection; RFC 9112, C.2.2, says not to."""
    return b"proxy-connection" in raw.lower()


def both_options(raw: bytes, ours: Reading) -> bool:
    """An old peer that says keep-alive and close: close rules (RFC 9112, 9.3)."""
    return ours.minor == 0 and not ours.keep_alive and b"close" in raw.lower()


def old_peer(raw: bytes, ours: Reading) -> bool:
    """h11 never keeps a connection of HTTP/1.0."""
    return ours.minor == 0


def until_close(raw: bytes, ours: Reading) -> bool:
    """An answer without an end: what it says of the connection does not matter."""
    return not ours.ended


def interim(raw: bytes, ours: Reading) -> bool:
    """After an interim answer there is another."""
    return ours.start[0] in range(100, 200)


LLHTTP_CLOSES = [proxy_connection, both_options, until_close]
H11_CLOSES = [old_peer, until_close, interim]


# --- the comparison -----------------------------------------------------------------


def agree(
    raw: bytes,
    other: Callable[..., Reading],
    *,
    answer: bool = False,
    refuses: Sequence[Callable[[bytes], bool]] = (),
    closes: Sequence[Callable[[bytes, Reading], bool]] = (),
) -> None:
    """What ours takes, `other` reads alike or refuses for one of these reasons."""
    try:
        ours = parsers.ours(raw, answer=answer)
    except Refused:
        return
    theirs: Reading | None
    try:
        theirs = other(raw, answer=answer)
    except Refused as refusal:
        refused = str(refusal)
        theirs = None
    if theirs is None:
        assert any(reason(raw) for reason in refuses), (refused, ours)
        return
    assert (ours.start, ours.minor) == (theirs.start, theirs.minor)
    assert ours.pairs == theirs.pairs
    if theirs.upgrade:
        # Bodies before a change of protocol are no websocket's.
        return
    if interim(raw, ours):
        # It has no body (RFC 9112, 6.3). llhttp reads chunks of any but 100 and 101.
        return
    assert (ours.body, ours.ended) == (theirs.body, theirs.ended)
    if ours.keep_alive != theirs.keep_alive:
        assert any(reason(raw, ours) for reason in closes), (ours, theirs)


@given(requests)
@example(b"POST / HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\t\r\n\r\n")
@example(b"GET http://h/x HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n")
def test_requests_are_framed_as_llhttp_frames_them(raw: bytes) -> None:
    agree(raw, parsers.llhttp, refuses=LLHTTP_REFUSES, closes=LLHTTP_CLOSES)


@given(requests)
def test_requests_are_framed_as_h11_frames_them(raw: bytes) -> None:
    agree(raw, parsers.h11_, closes=H11_CLOSES)


@given(answers)
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t\r\n\r\n")
@example(b"HTTP/1.0 101 OK\r\n\r\n")
@example(b"HTTP/1.1 104 X\r\nTransfer-Encoding: chunked\r\n\r\n")
def test_answers_are_framed_as_llhttp_frames_them(raw: bytes) -> None:
    agree(raw, parsers.llhttp, answer=True, closes=LLHTTP_CLOSES)


@given(answers)
@example(b"HTTP/1.1 101 \r\n\r\n")
def test_answers_are_framed_as_h11_frames_them(raw: bytes) -> None:
    agree(
        raw,
        parsers.h11_,
        answer=True,
        refuses=H11_REFUSES_ANSWERS,
        closes=H11_CLOSES,
    )


@pytest.mark.parametrize(
    ("name", "other"), [("llhttp", parsers.llhttp), ("h11", parsers.h11_)]
)
def test_plain_heads_are_taken_by_all(name: str, other: Callable[..., Reading]) -> None:
    """Else the comparisons above would have nothing to compare."""
    for method in (b"GET", b"POST", b"OPTIONS"):
        for field in (b"A: b", b"Content-Length: 3", b"Transfer-Encoding: chunked"):
            raw = b"%b /a?b HTTP/1.1\r\nHost: r\r\n%b\r\n\r\n" % (method, field)
            assert parsers.ours(raw, answer=False) == other(raw, answer=False)
