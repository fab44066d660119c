"""Where bodies end: every framing, cut everywhere, and what is refused."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.http1.buffer import Buffer
from router.http1.errors import ProtocolError
from router.http1.framing import Framing


def read(framing: Framing, *pieces: bytes) -> tuple[bytes, bytes]:
    """The body's payload, and what lies behind its end, of bytes in these pieces."""
    payload = Buffer()
    beyond = b""
    for piece in pieces:
        taken = framing.consume(piece, payload)
        assert taken == len(piece) or framing.done
        beyond += piece[taken:]
    return payload.pop(), beyond


def cuts(data: bytes) -> list[list[bytes]]:
    """The data whole, byte by byte, and cut in two at every position."""
    single = [data[at : at + 1] for at in range(len(data))]
    return [[data], single] + [[data[:at], data[at:]] for at in range(len(data) + 1)]


#: What comes, what is inside, what lies behind.
CHUNKED = {
    "empty": (b"0\r\n\r\n", b"", b""),
    "one": (b"5\r\nhello\r\n0\r\n\r\n", b"hello", b""),
    "two": (b"1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", b"a0123456789", b""),
    "hexadecimal": (b"1a\r\n%b\r\n0\r\n\r\n" % (b"x" * 26), b"x" * 26, b""),
    "leading zeros": (b"0005\r\nhello\r\n0000\r\n\r\n", b"hello", b""),
    "extension": (b'5;a;b=c;d="e f"\r\nhello\r\n0;z\r\n\r\n', b"hello", b""),
    "extension of bytes": (b"1;\t\x80\xff\r\nx\r\n0\r\n\r\n", b"x", b""),
    "payload like chunks": (b"7\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n", b"0\r\n\r\n\r\n", b""),
    "trailers": (b"1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n", b"x", b""),
    "trailers of bytes": (b"0\r\n!#$: \t\x80\xff\r\n\r\n", b"", b""),
    "the next message": (b"1\r\nx\r\n0\r\n\r\nGET /", b"x", b"GET /"),
}


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_are_read_wherever_they_are_cut(name: str) -> None:
    data, payload, beyond = CHUNKED[name]
    for pieces in cuts(data):
        framing = Framing(chunked=True)
        assert read(framing, *pieces) == (payload, beyond)
        assert framing.done
    whole = len(data) - len(beyond)
    for size in range(whole):
        framing = Framing(chunked=True)
        read(framing, data[:size])
        assert not framing.done


BROKEN = {
    "no size": b"\r\n",
    "a size that is no number": b"G\r\n",
    "a sign": b"-1\r\n",
    "a plus": b"+1\r\n",
    "0x": b"0x5\r\nhello\r\n",
    "space before the size": b" 5\r\nhello",
    "space behind the size": b"5 \r\nhello",
    "space before the extension": b"5 ;a\r\nhello",
    "a size of 16 digits": b"0000000000000001\r\n",
    "an overflowing size": b"FFFFFFFFFFFFFFFF\r\n",
    "a bare line feed behind the size": b"5\nhello",
    "a bare carriage return behind the size": b"5\rh",
    "a line feed in an extension": b"5;a\nhello",
    "a carriage return in an extension": b"5;a\rb\r\nhello",
    "a null in an extension": b"5;a\x00\r\nhello",
    "a delete in an extension": b"5;a\x7f\r\nhello",
    "an extension of 4 KiB": b"5;" + b"a" * 4096,
    "more data than the size": b"5\r\nhello!\r\n0\r\n\r\n",
    "less data than the size": b"5\r\nhell\r\n0\r\n\r\n",
    "a bare line feed behind the data": b"5\r\nhello\n0\r\n\r\n",
    "a bare carriage return behind the data": b"5\r\nhello\r0\r\n\r\n",
    "a bare line feed at the end": b"0\r\n\n",
    "a carriage return without its line feed": b"0\r\n\rX",
    "a trailer without a name": b"0\r\n: x\r\n\r\n",
    "a trailer without a colon": b"0\r\nabc\r\n\r\n",
    "a trailer with a space in its name": b"0\r\na b: c\r\n\r\n",
    "a trailer whose name is no token": b"0\r\nA(: b\r\n\r\n",
    "a folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
    "a control character in a trailer": b"0\r\nA: b\x01\r\n\r\n",
    "a bare line feed in a trailer": b"0\r\nA: b\nC: d\r\n\r\n",
    "trailers of 64 KiB": b"0\r\n" + b"A: b\r\n" * 11_000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_chunks_are_refused_wherever_they_are_cut(name: str) -> None:
    data = BROKEN[name]
    for pieces in cuts(data) if len(data) < 1000 else [[data]]:
        with pytest.raises(ProtocolError) as refusal:
            read(Framing(chunked=True), *pieces)
        assert refusal.value.status == 400


def test_a_length_ends_where_it_says() -> None:
    for pieces in cuts(b"hello!!"):
        framing = Framing(5)
        assert read(framing, *pieces) == (b"hello", b"!!")
        assert framing.done
    assert Framing(0).done
    assert read(Framing(0), b"x") == (b"", b"x")


def test_without_a_framing_a_body_has_no_end() -> None:
    for pieces in cuts(b"hello"):
        framing = Framing()
        assert read(framing, *pieces) == (b"hello", b"")
        assert not framing.done


def test_a_body_has_one_framing() -> None:
    with pytest.raises(ValueError, match="not both"):
        Framing(5, chunked=True)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.lists(st.integers(0, 400), max_size=6),
    st.lists(st.text('abc;="\t ', max_size=5), min_size=1, max_size=3),
    st.binary(max_size=5),
)
def test_any_chunks_in_any_pieces_give_what_is_inside(
    chunks: list[bytes], places: list[int], extensions: list[str], beyond: bytes
) -> None:
    data = b""
    for number, chunk in enumerate((*chunks, b"")):
        extension = extensions[number % len(extensions)].encode()
        data += b"%x%b\r\n" % (len(chunk), extension and b";" + extension)
        data += chunk + (b"\r\n" if chunk else b"")
    data += b"\r\n" + beyond
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    framing = Framing(chunked=True)
    assert read(framing, *pieces) == (b"".join(chunks), beyond)
    assert framing.done


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_mean_the_same_in_one_piece_and_in_two(data: bytes, at: int) -> None:
    def outcome(*pieces: bytes) -> tuple[object, ...]:
        framing = Framing(chunked=True)
        try:
            return (*read(framing, *pieces), framing.done)
        except ProtocolError as error:
            return (error.message,)

    assert outcome(data) == outcome(data[:at], data[at:])


# --- buffers ------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_a_buffer_gives_what_was_put_in(pieces: list[bytes]) -> None:
    buffer = Buffer()
    for _ in range(2):
        for piece in pieces:
            buffer.append(piece)
        assert buffer.size == sum(map(len, pieces))
        assert buffer.pop() == b"".join(pieces)
        assert buffer.size == 0


def test_bytes_that_came_one_by_one_cost_no_more_than_they_are() -> None:
    """A budget of bytes is worth something only if a byte is held as a byte."""
    chunks = b"2\r\nab\r\n" * 100_000
    payload = Buffer()
    framing = Framing(chunked=True)
    tracemalloc.start()
    try:
        framing.consume(chunks, payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert payload.size == 200_000
    assert peak < 2 * 200_000 + 10_000


def test_a_whole_body_in_one_piece_is_held_once() -> None:
    body = bytes(1_000_000)
    payload = Buffer()
    tracemalloc.start()
    try:
        Framing(len(body)).consume(body, payload)
        whole = payload.pop()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert whole == body
    assert peak < len(body) + 10_000
