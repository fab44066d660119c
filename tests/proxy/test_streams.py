"""Answers that come in pieces: passed on as they come, and never whole if cut short."""

from __future__ import annotations

import json
import threading
from time import sleep

import pytest

from tests.proxy.messages import LAST, STREAM, chunk, completion, event, ok
from tests.proxy.running import PATIENCE, Running, running
from tests.support.http import Answer
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm

EVENTS = [event(f"token {number}") for number in range(5)]


def cut_off(*pieces: bytes, reset: bool = False) -> RawWorker:
    """A worker that sends these pieces of an answer and dies."""

    def script(connection: RawConnection, request: bytes) -> None:
        connection.send(*pieces, delay=0.01)
        if reset:
            # It must not overtake what was sent.
            sleep(0.05)
            connection.reset()
        else:
            connection.close()

    return RawWorker(like_vllm("m", script))


def read(router: Running, request: bytes) -> Answer:
    with router.client() as client:
        client.send(request)
        answer = client.read_answer()
        assert client.ended()
        return answer


def error_at_the_end(body: bytes) -> str:
    """The code of the error that is the last event of a body."""
    last = body.removesuffix(b"\n\n").rpartition(b"\n\n")[2]
    assert last.startswith(b"data: ")
    return str(json.loads(last.removeprefix(b"data: "))["error"]["code"])


def test_each_piece_goes_out_as_it_came_in() -> None:
    """The worker waits for the client to have one before it sends the next."""
    turn = threading.Semaphore(0)

    def stepwise(connection: RawConnection, request: bytes) -> None:
        connection.send(STREAM)
        for piece in (*EVENTS, LAST):
            assert turn.acquire(timeout=PATIENCE)
            connection.send(piece)

    with (
        RawWorker(like_vllm("m", stepwise)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(completion(stream=True))
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.read_some()
        for piece in (*EVENTS, LAST):
            turn.release()
            got = b""
            while len(got) < len(piece):
                got += client.read_some()
            assert got == piece


def test_a_stream_that_ends_as_it_should_is_whole_and_no_failure() -> None:
    with cut_off(STREAM, *EVENTS, LAST) as worker, running(worker) as router:
        answer = router.ask(completion())
        assert answer.complete
        assert answer.body.count(b"data: ") == 5
        assert b"error" not in answer.body
        router.at_rest()
        assert router.sample('upstream_errors_total{kind="cut"}') == 0


@pytest.mark.parametrize("reset", [False, True])
def test_a_stream_cut_short_ends_with_an_error_and_without_its_last_chunk(
    reset: bool,
) -> None:
    with cut_off(STREAM, *EVENTS, reset=reset) as worker, running(worker) as router:
        answer = read(router, completion())
        assert not answer.complete
        assert answer.body.count(b"data: ") == 6
        assert error_at_the_end(answer.body) == "bad_worker_response"
        assert str(worker.port).encode() not in answer.body
        router.at_rest()
        assert router.sample('upstream_errors_total{kind="cut"}') == 1
        assert router.sample("client_aborts_total") == 0


def test_a_stream_cut_in_a_chunk_ends_there() -> None:
    """Nothing can stand within a chunk that would be read as an event of its own."""
    with (
        cut_off(STREAM, EVENTS[0], EVENTS[1][:-9]) as worker,
        running(worker) as router,
    ):
        answer = read(router, completion())
        assert not answer.complete
        assert b"error" not in answer.body
        router.at_rest()
        assert router.sample('upstream_errors_total{kind="cut"}') == 1


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"part"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Content-Length: 60\r\n\r\ndata: {}\n\n",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"part")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            chunk(b'{"id": '),
        ),
    ],
)
def test_no_answer_cut_short_is_taken_for_a_whole_one(pieces: tuple[bytes]) -> None:
    with cut_off(*pieces) as worker, running(worker) as router:
        answer = read(router, completion())
        assert not answer.complete
        router.at_rest()
        assert router.sample('upstream_errors_total{kind="cut"}') == 1


def test_a_stream_of_wrong_chunks_ends_with_an_error() -> None:
    def wrong(connection: RawConnection, request: bytes) -> None:
        connection.send(STREAM, EVENTS[0], b"zz\r\nx\r\n")
        connection.read_all()

    with RawWorker(like_vllm("m", wrong)) as worker, running(worker) as router:
        answer = read(router, completion())
        assert not answer.complete
        worker.wait_for(lambda: worker.connections[-1].ended != "")
        router.at_rest()


def test_a_stream_that_falls_silent_ends_with_an_error_and_closes_the_worker_s() -> (
    None
):
    def silent(connection: RawConnection, request: bytes) -> None:
        connection.send(STREAM, EVENTS[0])
        connection.read_all()

    with (
        RawWorker(like_vllm("m", silent)) as worker,
        running(worker, flags=("--stream-idle-timeout-secs", "0.3")) as router,
    ):
        answer = read(router, completion())
        assert not answer.complete
        assert error_at_the_end(answer.body) == "bad_worker_response"
        worker.wait_for(lambda: worker.connections[-1].ended != "")
        router.at_rest()
        assert router.sample('upstream_errors_total{kind="idle_timeout"}') == 1


def test_a_stream_longer_than_the_idle_limit_is_not_cut_while_it_speaks() -> None:
    def slowly(connection: RawConnection, request: bytes) -> None:
        connection.send(STREAM, *EVENTS * 3, LAST, delay=0.2)

    flags = ("--stream-idle-timeout-secs", "1.5", "--request-timeout-secs", "1.5")
    with (
        RawWorker(like_vllm("m", slowly)) as worker,
        running(worker, flags=flags) as router,
    ):
        answer = router.ask(completion())
        assert answer.complete
        assert answer.body.count(b"data: ") == 15


def test_a_slow_client_holds_the_worker_back_and_gets_everything() -> None:
    """What neither side's socket takes is not held in the router's memory."""
    size = 64 << 20
    sent = []

    def pour(connection: RawConnection, request: bytes) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        block = bytes(1 << 16)
        for number in range(size >> 16):
            connection.send(block)
            sent.append(number)

    with (
        RawWorker(like_vllm("m", pour)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(completion())
        router.until(lambda: _still(sent), "the worker is held back")
        assert len(sent) << 16 < size // 2
        answer = client.read_answer()
        assert (len(answer.body), answer.complete) == (size, True)


def _still(counts: list[int]) -> bool:
    """Whether nothing was added for a moment, after something was."""
    before = len(counts)
    threading.Event().wait(0.3)
    return 0 < before == len(counts)


def test_an_old_client_gets_a_stream_up_to_the_end_of_the_connection() -> None:
    with cut_off(STREAM, *EVENTS, LAST) as worker, running(worker) as router:
        request = b"GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        answer = read(router, request)
        assert answer.header(b"transfer-encoding") is None
        assert answer.header(b"connection") == b"close"
        assert answer.body == b"".join(
            piece.split(b"\r\n", 1)[1].removesuffix(b"\r\n") for piece in EVENTS
        )


def test_an_answer_with_trailers_keeps_them() -> None:
    def trailing(connection: RawConnection, request: bytes) -> None:
        connection.send(STREAM, EVENTS[0], b"0\r\nX-Usage: 7\r\n\r\n")

    with RawWorker(like_vllm("m", trailing)) as worker, running(worker) as router:
        answer = router.ask(completion())
        assert answer.trailers == [(b"x-usage", b"7")]


def test_an_answer_that_comes_before_the_request_was_sent_whole_passes() -> None:
    """The upload goes on meanwhile; the connection ends with the answer."""
    started, go_on = threading.Event(), threading.Event()

    def early(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        connection.read_exactly(1000)
        connection.send(STREAM, EVENTS[0])
        started.set()
        connection.read_exactly(200_000 - 1000)
        go_on.set()
        connection.send(EVENTS[1], LAST)
        connection.read_all()

    with (
        RawWorker(like_vllm("m", lambda c, r: None)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        worker.script = early
        client.send(
            b"POST /upload HTTP/1.1\r\nHost: r\r\nContent-Type: audio/wav\r\n"
            b"Content-Length: 200000\r\n\r\n",
            bytes(100_000),
        )
        assert started.wait(PATIENCE)
        client.send(bytes(100_000))
        assert go_on.wait(PATIENCE)
        answer = client.read_answer()
        assert answer.complete
        assert answer.body.count(b"data: ") == 2
        assert answer.header(b"connection") == b"close"
        assert client.ended()
        router.at_rest(client)


def test_a_refusal_that_comes_early_reaches_a_client_that_goes_on_sending() -> None:
    def refuse(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        connection.send(ok(b"too much", b"Connection: close"))
        connection.read_all()

    with (
        RawWorker(like_vllm("m", lambda c, r: None)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        worker.script = refuse
        client.send(
            b"POST /upload HTTP/1.1\r\nHost: r\r\nContent-Type: audio/wav\r\n"
            b"Content-Length: 20000000\r\n\r\n",
            *[bytes(100_000)] * 20,
            delay=0.001,
        )
        assert client.read_answer().body == b"too much"
        worker.wait_for(lambda: worker.connections[-1].ended != "")
        router.at_rest(client)
