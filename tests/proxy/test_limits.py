"""What a client may not do: too large, too slow, not HTTP; and what it is told."""

from __future__ import annotations

import threading

import pytest

from tests.proxy.messages import code_of, completion, ok
from tests.proxy.running import PATIENCE, Running, running
from tests.support.http import Answer
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm, saying

JSON = b"Content-Type: application/json\r\n"
AUDIO = b"Content-Type: audio/wav\r\n"


def head(kind: bytes, length: int | None) -> bytes:
    framing = (
        b"Transfer-Encoding: chunked"
        if length is None
        else b"Content-Length: %d" % length
    )
    return b"POST /x HTTP/1.1\r\nHost: r\r\n" + kind + framing + b"\r\n\r\n"


def refused(router: Running, *data: bytes) -> Answer:
    """The answer to what is refused; the connection ends with it."""
    with router.client() as client:
        client.send(*data, delay=0.01)
        answer = client.read_answer()
        assert answer.header(b"connection") == b"close"
        assert answer.header(b"x-request-id")
        assert client.ended()
    router.at_rest()
    return answer


@pytest.mark.parametrize(
    ("kind", "length", "body"),
    [
        (JSON, 2000, b""),
        (AUDIO, 2000, b""),
        (JSON, None, [b"%x\r\n%b\r\n" % (500, bytes(500))] * 3),
        (b"", None, [b"%x\r\n%b\r\n" % (500, bytes(500))] * 3),
    ],
)
def test_a_body_that_is_too_large_is_refused(
    kind: bytes, length: int | None, body: list[bytes]
) -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=("--max-payload-size", "1000")) as router,
    ):
        answer = refused(router, head(kind, length), *body)
        assert (answer.status, code_of(answer.body)) == (413, "payload_too_large")


def test_a_body_as_large_as_allowed_passes() -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=("--max-payload-size", "1000")) as router,
    ):
        assert router.ask(head(AUDIO, 1000), bytes(1000)).status == 200
        chunk = b"3E8\r\n%b\r\n0\r\n\r\n" % bytes(1000)
        assert router.ask(head(AUDIO, None), chunk).status == 200


def test_bodies_held_at_once_are_bounded_all_together() -> None:
    """What streams is not held; what is held is let go of with its request."""
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=("--max-buffered-bytes", "2000000")) as router,
        router.client() as holding,
    ):
        holding.send(head(JSON, 2_000_000), bytes(1_500_000))
        router.until(
            lambda: router.sample("buffered_bytes") == 1_500_000, "it is being held"
        )
        answer = refused_beside(router, head(JSON, 600_000), bytes(600_000))
        assert (answer.status, code_of(answer.body)) == (503, "overloaded")
        assert answer.header(b"retry-after") == b"1"
        assert router.ask(head(AUDIO, 5_000_000), bytes(5_000_000)).status == 200
        holding.close()
        router.at_rest()
        body = completion(text="x" * 1_500_000)
        assert router.ask(body).status == 200


def refused_beside(router: Running, *data: bytes) -> Answer:
    """The answer to what is refused while another client is there."""
    with router.client() as client:
        client.send(*data)
        answer = client.read_answer()
        assert answer.header(b"connection") == b"close"
        assert client.ended()
        return answer


def test_the_answer_of_a_stream_does_not_hold_the_body_it_answers() -> None:
    """Long answers to large prompts would fill the budget and nobody could ask."""
    over = threading.Event()

    def slowly(connection: RawConnection, request: bytes) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")
        over.wait(PATIENCE)
        connection.send(b"}")

    with (
        RawWorker(like_vllm("m", slowly)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(completion(text="x" * 500_000))
        assert b"200 OK" in client.read_some()
        router.until(lambda: router.sample("buffered_bytes") == 0, "it was let go of")
        over.set()
        router.at_rest(client)


@pytest.mark.parametrize(
    "chunks",
    [b"zz\r\n", b"5\r\nhello!!", b"-1\r\n", b"5;a\x00=b\r\nhello\r\n"],
)
@pytest.mark.parametrize("kind", [JSON, AUDIO])
def test_wrong_chunks_are_refused_and_the_worker_sees_no_whole_body(
    kind: bytes, chunks: bytes
) -> None:
    """A body that streams is at the worker by then, whose connection is cut."""
    whole = []

    def count(connection: RawConnection, request: bytes) -> None:
        if not connection.ended:
            whole.append(request)
            connection.send(ok())

    with (
        RawWorker(like_vllm("m", count)) as worker,
        running(worker) as router,
    ):
        answer = refused(router, head(kind, None), b"2\r\n{}\r\n", chunks)
        assert (answer.status, code_of(answer.body)) == (400, "invalid_request")
        assert not whole
        assert router.sample("client_aborts_total") == 0


def test_a_stream_that_breaks_off_within_an_answer_ends_the_answer() -> None:
    def early(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        connection.read_all()

    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        worker.script = early
        client.send(head(AUDIO, None), b"2\r\nxx\r\n")
        assert b"half" in client.read_some()
        client.send(b"nonsense\r\n")
        assert client.ended()
        worker.wait_for(lambda: worker.connections[-1].ended != "")
        router.at_rest(client)


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"GET /x HTTP/1.1\r\nX: ", 408, "request_timeout"),
        (head(JSON, 10) + b"{", 408, "request_timeout"),
        (head(AUDIO, 100_000) + bytes(70_000), 408, "request_timeout"),
    ],
)
def test_a_request_that_is_not_whole_in_time_is_refused(
    data: bytes, status: int, code: str
) -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=("--header-timeout-secs", "0.3")) as router,
    ):
        answer = refused(router, data)
        assert (answer.status, code_of(answer.body)) == (status, code)


def test_an_upload_is_not_cut_while_it_is_the_worker_that_is_slow() -> None:
    """Its client is not read, and so cannot be told from one that does not send."""
    size = 30_000_000
    go_on = threading.Event()

    def slow(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        go_on.wait(1.5)
        connection.read_exactly(size)
        connection.send(ok(b"all of it"))

    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=("--header-timeout-secs", "0.3")) as router,
    ):
        worker.script = slow
        assert router.ask(head(AUDIO, size), bytes(size)).body == b"all of it"
        router.at_rest()


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"GET /x HTTP/1.1\r\n\r\n", 400, "invalid_request"),
        (b"GET /x HTTP/2.0\r\nHost: r\r\n\r\n", 400, "invalid_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "invalid_request"),
        (
            b"GET /x HTTP/1.1\r\nHost: r\r\nX: %b\r\n\r\n" % (b"x" * 70_000),
            431,
            "headers_too_large",
        ),
        (
            b"GET /x HTTP/1.1\r\nHost: r\r\n%b\r\n" % (b"X: y\r\n" * 300),
            431,
            "headers_too_large",
        ),
        (
            b"POST /x HTTP/1.1\r\nHost: r\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "invalid_request",
        ),
    ],
)
def test_what_is_not_a_request_is_refused_in_the_same_shape(
    data: bytes, status: int, code: str
) -> None:
    with running() as router:
        answer = refused(router, data)
        assert (answer.status, code_of(answer.body)) == (status, code)
        assert answer.header(b"content-type") == b"application/json"


def test_a_client_that_asks_first_is_told_to_send_its_body() -> None:
    """Once there is somebody to send it to, or the router wants to see it."""
    for kind in (JSON, AUDIO):
        with (
            RawWorker(like_vllm("m", saying(ok()))) as worker,
            running(worker) as router,
            router.client() as client,
        ):
            length = 100_000 if kind is AUDIO else 2
            asked = head(kind, length).replace(
                b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"
            )
            client.send(asked)
            assert client.read_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(b"{}" if kind is JSON else bytes(length))
            assert client.read_answer().status == 200
            assert b"expect" not in worker.requests[0].lower()


def test_a_client_that_asks_first_can_be_refused_before_it_sends() -> None:
    with running(flags=("--max-payload-size", "1000")) as router:
        asked = head(JSON, 2000).replace(
            b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"
        )
        assert refused(router, asked).status == 413
