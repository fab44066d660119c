"""The compiled ends and their twin in Python have the same conversations.

What a worker sees of a client's requests, and a client of a worker's answers, is the
same through both, but for the fields that a relay adds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.http1.relay import Relay
from tests.http1.twin import Twin
from tests.support.http import Answer, RawClient
from tests.support.raw_worker import RawConnection, RawWorker

# --- conversations --------------------------------------------------------------------

#: Fields that pass, and some that must not.
FIELDS = [
    b"A: b",
    b"a: c",
    b"X-Long: " + b"x" * 300,
    b"X-Bytes: \x80\xff",
    b"Empty:",
    b"Cookie: c",
    b"TE: trailers",
    b"Keep-Alive: timeout=1",
    b"Connection: X-Hop",
    b"X-Hop: 1",
    b"Date: now",
]
bodies = st.one_of(
    st.sampled_from([b"", b"\r\n0\r\n\r\n"]),
    st.binary(max_size=50),
    st.integers(60_000, 70_000).map(lambda size: b"x" * size),
)
fields = st.lists(st.sampled_from(FIELDS), max_size=4)


def _chunks(body: bytes, size: int, extension: bytes, trailers: bytes) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    lines = [b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces]
    return b"".join((*lines, b"0\r\n", trailers, b"\r\n"))


chunks = st.builds(
    _chunks,
    bodies,
    st.integers(1, 5000),
    st.sampled_from([b"", b";a=b"]),
    st.sampled_from([b"", b"T: u\r\n", b"T: u\r\nV:\r\n"]),
)
framings = st.one_of(
    st.just((b"", b"")),
    bodies.map(lambda body: (b"Content-Length: %d" % len(body), body)),
    chunks.map(lambda body: (b"Transfer-Encoding: chunked", body)),
)


@dataclass(frozen=True, repr=False)
class Exchange:
    """What a client sends, and what the worker answers to it."""

    request: bytes
    method: bytes
    answer: bytes
    #: The worker closes behind its answer, which may be cut short.
    closes: bool

    def __repr__(self) -> str:
        sent, got = self.request, self.answer
        return f"<{sent[:300]!r} {len(sent)}, {got[:300]!r} {len(got)}, {self.closes}>"


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    method = draw(st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS"]))
    minor = draw(st.sampled_from([1, 1, 1, 0]))
    target = draw(st.sampled_from([b"/hold", b"/stream", b"/hold/a?b=%20c"]))
    framing, body = draw(framings)
    if minor == 0 and b"chunked" in framing:
        framing, body = b"", b""
    options = draw(
        st.sampled_from([b"", b"Connection: close", b"Connection: keep-alive"])
    )
    lines = [b"%b %b HTTP/1.%d" % (method, target, minor), b"Host: r", *draw(fields)]
    lines += [line for line in (framing, options) if line]
    request = b"\r\n".join((*lines, b"", body))
    return Exchange(request, method, *draw(answers(method)))


@st.composite
def answers(draw: st.DrawFn, method: bytes) -> tuple[bytes, bool]:
    status = draw(
        st.sampled_from([b"200 OK", b"404 Not Found", b"500 ", b"204 N", b"304 N"])
    )
    framing, body = draw(framings)
    bodiless = method == b"HEAD" or status[:3] in (b"204", b"304")
    if status.startswith(b"204"):
        framing = b""
    lines = [b"HTTP/1.1 " + status, *draw(fields)]
    lines += [framing] if framing else []
    closes = not framing and not bodiless
    if closes:
        body = draw(bodies)
    elif draw(st.booleans()):
        lines.append(b"Connection: close")
        closes = True
    if bodiless:
        body = b""
    interim = draw(
        st.sampled_from(
            [b"", b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.1 103 E\r\nL: x\r\n\r\n"]
        )
    )
    whole = interim + b"\r\n".join((*lines, b"", body))
    if framing and not bodiless and draw(st.integers(0, 4)) == 0:
        # Not before its first byte: a connection that died silent is another matter.
        return whole[: draw(st.integers(1, len(whole) - 1))], True
    return whole, closes


def _sent(conversation: list[Exchange]) -> list[Exchange]:
    """No client sends more after it said that it will not."""
    for number, exchange in enumerate(conversation):
        head = exchange.request.split(b"\r\n\r\n")[0]
        old = b" HTTP/1.0\r\n" in head and b"keep-alive" not in head
        if old or b"Connection: close" in head:
            return conversation[: number + 1]
    return conversation


conversations = st.lists(exchanges(), min_size=1, max_size=4).map(_sent)


# --- what is seen ---------------------------------------------------------------------


class Talk:
    """One conversation through a relay, and what was seen of it on both sides."""

    def __init__(self, pieces: int, conversation: list[Exchange]) -> None:
        self.todo = list(conversation)
        self.requests: list[object] = []
        self.answers: list[object] = []
        self._pieces = pieces

    def worker(self, connection: RawConnection) -> None:
        while request := connection.read_request():
            self.requests.append(seen_by_worker(request))
            exchange = self.todo.pop(0)
            connection.send(*self._cut(exchange.answer))
            if exchange.closes:
                return

    def client(
        self, port: int, conversation: list[Exchange], *, pipelined: bool
    ) -> None:
        with RawClient(port) as client:
            if pipelined:
                # An answer may end the connection while its client still sends.
                with contextlib.suppress(ConnectionError):
                    client.send(*self._cut(b"".join(e.request for e in conversation)))
            for exchange in conversation:
                if not pipelined:
                    client.send(*self._cut(exchange.request))
                if client.ended():
                    self.answers.append("closed")
                    return
                answer = client.read_answer(exchange.method)
                self.answers.append(seen_by_client(answer))
                if (b"connection", b"close") in answer.headers or not answer.complete:
                    # It ends there, be it in the middle of a chunk's line.
                    client.read_all()
                    return

    def _cut(self, data: bytes) -> list[bytes]:
        size = max(self._pieces, len(data) // 20 + 1) if self._pieces else len(data)
        return [data[at : at + size] for at in range(0, len(data), size)]


def seen_by_worker(request: bytes) -> object:
    head, _, body = request.partition(b"\r\n\r\n")
    start, *lines = head.split(b"\r\n")
    fields = [
        (name.lower(), value.strip(b" \t"))
        for name, _, value in (line.partition(b":") for line in lines)
    ]
    if (b"transfer-encoding", b"chunked") in fields:
        fields.remove((b"transfer-encoding", b"chunked"))
        fields.append((b"content-length", b"%d" % len(body := unchunked(body))))
    return start, [pair for pair in fields if b"forwarded" not in pair[0]], body


def unchunked(data: bytes) -> bytes:
    body = b""
    while size := int(data[: (line := data.index(b"\r\n"))], 16):
        body += data[line + 2 : line + 2 + size]
        data = data[line + 2 + size + 2 :]
    return body


def seen_by_client(answer: Answer) -> object:
    if answer.header(b"x-worker") is None:
        return answer.status
    fields = sorted(answer.headers, key=lambda pair: pair[0])
    said = (answer.status, answer.reason, fields, answer.trailers)
    return said, answer.body, answer.complete


@dataclass(frozen=True)
class Both:
    """Our relay and its twin, each before a worker that has the talk at hand."""

    ours: Relay
    twin: Twin
    talks: dict[str, Talk]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    talks: dict[str, Talk] = {}
    with (
        RawWorker(lambda c: talks["ours"].worker(c)) as one,
        RawWorker(lambda c: talks["twin"].worker(c)) as two,
        Relay(one) as ours,
        Twin(two) as twin,
    ):
        yield Both(ours, twin, talks)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    conversation=conversations,
    pieces=st.sampled_from([0, 0, 1, 7, 1000]),
    pipelined=st.booleans(),
)
def test_both_have_the_same_conversation(
    both: Both, conversation: list[Exchange], pieces: int, pipelined: bool
) -> None:
    for name, port in (("ours", both.ours.port), ("twin", both.twin.port)):
        both.talks[name] = Talk(pieces, conversation)
        # No connection is left from another conversation's worker.
        both.ours.ask(both.ours.forget)
        both.talks[name].client(port, conversation, pipelined=pipelined)
    ours, twin = both.talks["ours"], both.talks["twin"]
    assert ours.answers == twin.answers
    assert ours.requests[: len(ours.answers)] == twin.requests[: len(twin.answers)]
