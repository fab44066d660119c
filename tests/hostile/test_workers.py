"""Workers that answer what no server may: their clients get 502, or a clean cut.

Whatever it was, the connection is never used again, nothing of the answer reaches the
next client, and no load is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy.messages import LAST, STREAM, chunk, code_of, completion, event, ok
from tests.proxy.running import Running, running
from tests.support.http import Answer
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm, saying

HEAD = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 2\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
POISON = HEAD + b"Content-Length: 6\r\n\r\npoison"

NO_ANSWERS = {
    "no HTTP": b"hello\r\n\r\n",
    "HTTP/0.9": b"<html></html>\r\n\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "frames of HTTP/2": b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n",
    "ICY": b"ICY 200 OK\r\n\r\n",
    "an empty line before it": b"\r\n" + ok(),
    "two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a status of 0": b"HTTP/1.1 000 No\r\n\r\n",
    "a status with a sign": b"HTTP/1.1 +20 OK\r\n\r\n",
    "line feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a nul in the reason": b"HTTP/1.1 200 O\x00K\r\n\r\n",
    "a carriage return in the reason": b"HTTP/1.1 200 OK\rA: b\r\n\r\n",
    "a field without a colon": HEAD + b"Alpha\r\n\r\n",
    "space before a colon": HEAD + b"Content-Length : 2\r\n\r\nok",
    "a folded field": HEAD + LENGTH + b" 3\r\n\r\nok!",
    "a nul in a value": HEAD + b"A: b\x00c\r\n" + LENGTH + b"\r\nok",
    "a carriage return in a value": HEAD + b"A: b\rC: d\r\n" + LENGTH + b"\r\nok",
    "two lengths": HEAD + LENGTH + b"Content-Length: 6\r\n\r\npoison",
    "the same length twice": HEAD + LENGTH + LENGTH + b"\r\nok",
    "a list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\nok",
    "a length below 0": HEAD + b"Content-Length: -1\r\n\r\n",
    "a length past 64 bits": HEAD + b"Content-Length: %b\r\n\r\n" % (b"9" * 30),
    "a length and chunks": HEAD + LENGTH + CHUNKED + b"\r\n2\r\nok\r\n0\r\n\r\n",
    "two codings": HEAD + CHUNKED + CHUNKED + b"\r\n2\r\nok\r\n0\r\n\r\n",
    "another coding": HEAD + b"Transfer-Encoding: gzip\r\n\r\nok",
    "a list of codings": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks of HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "protocols changed unasked": b"HTTP/1.1 101 Go\r\nUpgrade: x\r\n\r\n\x00\x01",
    "garbage behind a 100": b"HTTP/1.1 100 Continue\r\n\r\nhello\r\n\r\n",
    "a hundred 100s, and garbage": b"HTTP/1.1 100 C\r\n\r\n" * 100 + b"\x00\r\n\r\n",
    "a head of 64 KiB": HEAD + b"A: " + b"x" * 70_000,
    "a head of 257 fields": HEAD + b"A: b\r\n" * 257 + b"\r\n",
    "a status line of 64 KiB": b"HTTP/1.1 200 " + b"x" * 70_000,
}

BROKEN_BODIES = {
    "a size that is no number": CHUNKED + b"\r\nX\r\n",
    "a size past 64 bits": CHUNKED + b"\r\nfffffffffffffffff\r\n",
    "a size below 0": CHUNKED + b"\r\n-1\r\n",
    "no line behind a size": CHUNKED + b"\r\n2\nok\n0\n\n",
    "a chunk that is longer": CHUNKED + b"\r\n2\r\nok!\r\n0\r\n\r\n",
    "a chunk that is shorter": CHUNKED + b"\r\n3\r\nok\r\n0\r\n\r\n",
    "a nul in an extension": CHUNKED + b"\r\n2;\x00\r\nok\r\n0\r\n\r\n",
    "an extension of 64 KiB": CHUNKED + b"\r\n2;" + b"x" * 65_536,
    "a trailer without a colon": CHUNKED + b"\r\n2\r\nok\r\n0\r\nAlpha\r\n\r\n",
    "trailers without end": CHUNKED + b"\r\n0\r\n" + b"A: b\r\n" * 12_000,
    "a good chunk, then none": CHUNKED + b"\r\n2\r\nok\r\n{}\r\n0\r\n\r\n",
}

#: Bytes that come, status and body of what the client gets: what stands behind is lost.
TOO_MUCH = {
    "a second answer": (ok(b"fine") + POISON, 200, b"fine"),
    "a body that is longer": (HEAD + LENGTH + b"\r\nok and more", 200, b"ok"),
    "bytes behind the last chunk": (STREAM + chunk(b"x") + LAST + b"y", 200, b"x"),
    "a body of 204": (b"HTTP/1.1 204 No\r\n\r\n" + POISON, 204, b""),
    "a body of 304": (b"HTTP/1.1 304 No\r\n" + LENGTH + b"\r\nok", 304, b""),
    "an interim answer behind it": (
        ok(b"fine") + b"HTTP/1.1 100 C\r\n\r\n",
        200,
        b"fine",
    ),
}


class Hostile:
    """A worker's exchange: `data` once to the next request, then it is good again."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.used: RawConnection | None = None
        self.ends = False

    def __call__(self, connection: RawConnection, request: bytes) -> None:
        assert connection is not self.used, "the connection was used again"
        if self.data is None:
            connection.send(ok(b"good"))
            return
        data, self.data, self.used = self.data, None, connection
        connection.send(data)
        if self.ends:
            connection.close()
        connection.read_all()


Place = tuple[Running, Hostile]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    hostile = Hostile()
    with RawWorker(like_vllm("m", hostile)) as worker, running(worker) as router:
        yield router, hostile


def asked(place: Place, data: bytes, *, ends: bool = False) -> Answer:
    """The client's answer to what the worker says; then all must be well."""
    router, hostile = place
    hostile.data, hostile.ends = data, ends
    with router.client() as client:
        client.send(completion())
        answer = client.read_answer()
    hostile.ends = False
    assert router.ask(completion()).body == b"good"
    used = hostile.used
    assert used is not None
    router.until(lambda: used.ended != "", "its connection is given up")
    router.at_rest()
    return answer


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_502(place: Place, name: str) -> None:
    answer = asked(place, NO_ANSWERS[name])
    assert (answer.status, code_of(answer.body)) == (502, "bad_worker_response")


@pytest.mark.parametrize("name", BROKEN_BODIES)
def test_a_body_in_wrong_chunks_never_comes_to_its_end(place: Place, name: str) -> None:
    """Whether they come with the head or not: the client can tell that it was cut."""
    answer = asked(place, HEAD + BROKEN_BODIES[name])
    assert (answer.status, answer.complete) == (200, False)
    assert b"poison" not in answer.body


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 100\r\n\r\nhalf",
        HEAD + CHUNKED + b"\r\n4\r\nhalf\r\n",
        HEAD + CHUNKED + b"\r\n8\r\nhalf",
        STREAM + event("half"),
        HEAD + CHUNKED + b"\r\n4\r\nhalf\r\n0\r\n",
    ],
)
def test_an_answer_that_ends_too_early_is_no_whole_one(
    place: Place, data: bytes
) -> None:
    answer = asked(place, data, ends=True)
    assert (answer.status, answer.complete) == (200, False)
    assert b"half" in answer.body


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_stands_behind_an_answer_is_nobody_s(place: Place, name: str) -> None:
    data, status, body = TOO_MUCH[name]
    answer = asked(place, data)
    assert (answer.status, answer.body, answer.complete) == (status, body, True)


def test_a_body_of_an_answer_to_head_is_nobody_s(place: Place) -> None:
    router, hostile = place
    hostile.data = ok(b"poison")
    with router.client() as client:
        client.send(b"HEAD /x HTTP/1.1\r\nHost: r\r\n\r\n")
        assert client.read_answer(b"HEAD").status == 200
        client.send(completion())
        assert client.read_answer().body == b"good"


@pytest.mark.parametrize("status", [200, 299, 418, 599, 600, 999])
def test_any_status_of_three_digits_passes(place: Place, status: int) -> None:
    data = b"HTTP/1.1 %d Odd\r\n%b\r\nok" % (status, LENGTH)
    # Bytes behind it, so that the connection is not used again as with all the others.
    answer = asked(place, data + b"x")
    assert (answer.status, answer.body, answer.reason) == (status, b"ok", b"Odd")


def test_early_answers_of_kind_1xx_are_no_answer(place: Place) -> None:
    early = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + b"HTTP/1.1 199 Odd\r\n\r\n" * 9
    answer = asked(place, early + ok(b"late") + b"x")
    assert (answer.status, answer.body) == (200, b"late")
    assert answer.header(b"link") is None


# --- without end --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"", b""),
        (HEAD, b""),
        (HEAD, b"A: b\r\n"),
        (b"HTTP/1.1 200 ", b"O"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"H"),
    ],
    ids=["silence", "half a head", "fields", "a reason", "100s", "letters"],
)
def test_a_head_that_never_ends_is_504_when_its_time_is_over(
    first: bytes, more: bytes
) -> None:
    """Drop by drop it gets no more time."""

    def never(connection: RawConnection, request: bytes) -> None:
        connection.send(first)
        while more and not over:
            connection.send(more, b"", delay=0.01)
        connection.read_all()

    over: list[bool] = []
    flags = ("--request-timeout-secs", "0.4", "--retry-max-retries", "3")
    with (
        RawWorker(like_vllm("m", never)) as worker,
        RawWorker(like_vllm("m", saying(ok()))) as other,
        running(worker, other, flags=(*flags, "--policy", "round_robin")) as router,
    ):
        statuses = {router.ask(completion()).status for _ in range(2)}
        over.append(True)
        assert statuses == {200, 504}
        assert router.sample('upstream_errors_total{kind="timeout"}') == 1
        router.at_rest()


def test_an_answer_before_the_request_ended_passes_and_ends_both_connections() -> None:
    """What the client goes on to send is no request of anybody's."""

    def early(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        connection.send(ok(b"early"))
        connection.read_all()

    upload = (
        b"POST /upload HTTP/1.1\r\nHost: r\r\nContent-Length: 200000\r\n\r\n"
        + POISON.replace(b"HTTP/1.1 200 OK", b"GET /poison HTTP/1.1") * 1000
    )
    with (
        RawWorker(like_vllm("m", saying(ok(b"good")))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        good, worker.script = worker.script, early
        client.send(upload[:500])
        answer = client.read_answer()
        assert (answer.body, answer.header(b"connection")) == (b"early", b"close")
        worker.script = good
        client.send(upload[500:])
        assert client.ended()
        used = worker.connections[-1]
        router.until(lambda: used.ended != "", "its connection is given up")
        assert router.ask(completion()).body == b"good"
        assert worker.connections[-1] is not used
        router.at_rest(client)


def test_a_worker_that_speaks_before_it_is_asked_harms_itself_only() -> None:
    """What it says may look like an answer, one too early: nobody can tell. What came
    before there was a request is none."""

    def eager(connection: RawConnection) -> None:
        connection.send(ok(b"unasked"))
        while connection.read_request():
            connection.send(ok(b"asked"))

    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker) as router,
    ):
        good, worker.script = worker.script, eager
        for _ in range(20):
            answer = router.ask(completion())
            assert answer.body in (b"unasked", b"asked") or answer.status == 502
        worker.script = good
        router.at_rest()
        for connection in worker.connections:
            connection.end()
        router.until(lambda: router.sample("upstream_connections") == 0, "all ended")
        assert router.ask(completion()).body == b"{}"
