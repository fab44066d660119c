"""The raw worker and the raw client do to each other what they say they do."""

from __future__ import annotations

import pytest

from tests.support.http import BadAnswer, RawClient, ask, post
from tests.support.ports import free_port
from tests.support.raw_worker import (
    RawConnection,
    RawWorker,
    answer,
    answer_in_turn,
    body_of,
    by_path,
    cut_after,
    like_vllm,
    saying,
    swallow,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-End: yes\r\n\r\n"
)


def test_every_byte_of_a_request_is_kept_whatever_pieces_it_came_in() -> None:
    request = post("/v1/completions", b'{"model": "m"}')
    with RawWorker(answer(OK)) as worker, RawClient(worker.port) as client:
        client.send(*(request[i : i + 1] for i in range(len(request))))
        assert client.read_answer().body == b"ok"
        client.send(request)
        assert client.read_answer().body == b"ok"
        assert worker.connections[0].received == request * 2
        assert worker.requests == [request, request]


def test_a_chunked_request_is_read_with_its_trailers() -> None:
    request = (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;name=value\r\nabc\r\n0\r\nX-End: yes\r\n\r\n"
    )
    with RawWorker(answer(OK)) as worker:
        assert ask(worker.port, request).status == 200
        assert worker.requests == [request]


def test_answers_come_in_turn_and_then_the_connection_ends() -> None:
    other = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    with (
        RawWorker(answer_in_turn(OK, other)) as worker,
        RawClient(worker.port) as client,
    ):
        client.send(post("/a", b"1"))
        assert client.read_answer().status == 200
        client.send(post("/b", b"2"))
        assert client.read_answer().reason == b"Busy"
        assert client.ended()


@pytest.mark.parametrize("at", range(len(CHUNKED)))
def test_an_answer_is_the_same_wherever_it_is_cut_in_two(at: int) -> None:
    with RawWorker(answer(CHUNKED[:at], CHUNKED[at:], delay=0.001)) as worker:
        got = ask(worker.port, post("/", b""))
    assert (got.body, got.chunks) == (b"abc0123456789", [3, 10])
    assert got.trailers == [(b"x-end", b"yes")]
    assert got.complete


@pytest.mark.parametrize("reset", [False, True])
def test_an_answer_that_is_cut_short_is_not_complete(reset: bool) -> None:
    with RawWorker(cut_after(CHUNKED, 60, reset=reset)) as worker:
        got = ask(worker.port, post("/", b""))
    assert not got.complete
    assert b"abc0123456789".startswith(got.body)


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"",
    ],
)
def test_the_client_takes_no_sloppy_answer(bad: bytes) -> None:
    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(bad)

    with RawWorker(script) as worker, pytest.raises(BadAnswer):
        ask(worker.port, post("/", b""))


def test_an_answer_without_a_length_lasts_until_the_end() -> None:
    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(b"HTTP/1.1 200 OK\r\n\r\nall", b" of it")
        connection.half_close()
        connection.read_all()

    with RawWorker(script) as worker:
        assert ask(worker.port, post("/", b"")).body == b"all of it"


def test_interim_answers_and_bodies_that_may_not_be_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    with (
        RawWorker(answer(interim + OK.removesuffix(b"ok"))) as worker,
        RawClient(worker.port) as client,
    ):
        client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.read_answer(b"HEAD").status == 200


def test_the_worker_sees_how_its_peer_ended() -> None:
    with RawWorker(swallow) as worker:
        with RawClient(worker.port) as client:
            client.send(b"partial")
        worker.wait_for(lambda: [each.ended for each in worker.connections] == ["eof"])
        with RawClient(worker.port) as client:
            client.send(b"more")
            worker.wait_for(lambda: worker.connections[-1].received == b"more")
            client.reset()
        worker.wait_for(lambda: worker.connections[-1].ended != "")
        ends = [(each.received, each.ended) for each in worker.connections]
    assert ends == [(b"partial", "eof"), (b"more", "reset")]


def test_a_script_can_be_chosen_by_path() -> None:
    no = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
    with RawWorker(by_path({b"/health": answer(OK)}, answer(no))) as worker:
        assert ask(worker.port, b"GET /health?x=1 HTTP/1.1\r\n\r\n").status == 200
        assert ask(worker.port, b"GET /other HTTP/1.1\r\n\r\n").status == 404


def test_a_worker_that_refuses_keeps_the_connections_it_has() -> None:
    with RawWorker(answer(OK)) as worker, RawClient(worker.port) as client:
        worker.wait_for(lambda: len(worker.connections) == 1)
        worker.refuse()
        with pytest.raises(ConnectionRefusedError):
            RawClient(worker.port)
        client.send(post("/", b""))
        assert client.read_answer().status == 200


def test_a_free_port_has_nobody_listening() -> None:
    with pytest.raises(ConnectionRefusedError):
        RawClient(free_port())


def test_a_worker_like_vllm_answers_probes_and_keeps_only_the_rest() -> None:
    with RawWorker(like_vllm("m", saying(OK))) as worker:
        with RawClient(worker.port) as client:
            client.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.read_answer().body == b""
            client.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b'"id":"m"' in client.read_answer().body
            client.send(post("/v1/completions", b"{}"))
            assert client.read_answer().body == b"ok"
        assert worker.requests == [post("/v1/completions", b"{}")]


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (post("/", b"abc"), b"abc"),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;a=b\r\nabc\r\n2\r\n\r\n\r\n0\r\nX: y\r\n\r\n",
            b"abc\r\n",
        ),
    ],
)
def test_the_body_of_a_request_is_what_was_meant(request_: bytes, body: bytes) -> None:
    assert body_of(request_) == body
