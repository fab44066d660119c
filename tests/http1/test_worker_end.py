"""The worker's end of a connection: answers of every framing, and its use again."""

from __future__ import annotations

import threading

import pytest

from tests.http1.messages import (
    CHUNKS,
    GET,
    HEAD,
    OK,
    body_of,
    chunked,
    old,
    post,
    unchunked,
)
from tests.http1.relay import Wire, relayed
from tests.support.http import ask
from tests.support.raw_worker import (
    RawConnection,
    answer,
    answer_in_turn,
    cut_after,
)

# --- framing ------------------------------------------------------------------------

#: What a worker sends, what a client of 1.1 gets of it: body, and whether the client's
#: connection and the worker's can be used again.
ANSWERS = {
    "length": (OK, b"ok", True, True),
    "nothing": (HEAD + b"Content-Length: 0\r\n\r\n", b"", True, True),
    "chunks": (HEAD + CHUNKS + b"\r\n", b"hello world", True, True),
    "trailers": (HEAD + CHUNKS + b"A: b\r\nC: d\r\n\r\n", b"hello world", True, True),
    "interim": (b"HTTP/1.1 103 E\r\nLink: x\r\n\r\n" * 3 + OK, b"ok", True, True),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok", True, True),
    "204": (b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", b"", True, True),
    "304": (b"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", b"", True, True),
    "no reason": (OK.replace(b" OK", b" "), b"ok", True, True),
    "no reason, no space": (OK.replace(b" OK", b""), b"ok", True, True),
    "closing": (
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        b"ok",
        True,
        False,
    ),
    "old": (OK.replace(b"1.1", b"1.0"), b"ok", True, False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_passed_on_cut_anywhere(wire: Wire, name: str) -> None:
    data, body, persistent, reusable = ANSWERS[name]

    def script(connection: RawConnection) -> None:
        while connection.read_request():
            size = sizes.pop()
            connection.send(*(data[at : at + size] for at in range(0, len(data), size)))

    sizes = [1, 2, 3, 5, 8, 13, 34, len(data)]
    rounds = len(sizes)
    relay = wire(script)
    client = relay.connect()
    for _ in range(rounds):
        client.send(GET)
        found = client.read_answer()
        assert (found.body, found.complete) == (body, True)
        if name == "trailers":
            assert found.trailers == [(b"a", b"b"), (b"c", b"d")]
    assert persistent
    if reusable:
        assert len(relay.worker.connections) == 1
    else:
        assert len(relay.worker.connections) == rounds


def test_bytes_beyond_an_answer_are_not_the_next_answer(wire: Wire) -> None:
    """They came with it, or later on the idle connection: it is used no more."""
    poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    later = threading.Event()

    def script(connection: RawConnection) -> None:
        while connection.read_request():
            connection.send(OK + poison if connection.number == 0 else OK)
            if connection.number == 1:
                later.wait(10)
                connection.send(poison)

    relay = wire(script)
    client = relay.connect()
    for number, kept in ((1, 0), (2, 1)):
        client.send(GET)
        assert client.read_answer().body == b"ok"
        assert (len(relay.worker.connections), relay.idle()) == (number, kept)
    later.set()
    relay.wait(lambda: relay.idle() == 0)
    client.send(GET)
    assert client.read_answer().body == b"ok"
    assert len(relay.worker.connections) == 3


@pytest.mark.parametrize("name", ANSWERS)
def test_a_client_of_http_1_0_gets_the_body_without_chunks(
    wire: Wire, name: str
) -> None:
    data, body, _, _ = ANSWERS[name]
    found = relayed(wire, data, old(GET))
    assert (found.body, found.complete) == (body, True)
    assert found.header(b"transfer-encoding") is None
    assert found.header(b"connection") == b"close"


def test_an_old_client_that_keeps_alive_is_closed_where_only_that_ends_a_body(
    wire: Wire,
) -> None:
    keep = old(GET).replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n")
    found = relayed(wire, HEAD + CHUNKS + b"\r\n", keep)
    assert (found.body, found.header(b"connection")) == (b"hello world", b"close")


@pytest.mark.parametrize("data", [OK, HEAD + CHUNKS + b"\r\n"])
def test_an_answer_to_head_has_the_fields_and_no_body(wire: Wire, data: bytes) -> None:
    only_head = data.split(b"\r\n\r\n")[0] + b"\r\n\r\n"
    relay = wire(answer(only_head))
    client = relay.connect()
    for _ in range(2):
        client.send(GET.replace(b"GET", b"HEAD"))
        found = client.read_answer(b"HEAD")
        framing = [n for n, _ in found.headers if n != b"x-worker"]
        assert framing in ([b"content-length"], [b"transfer-encoding"])
    assert len(relay.worker.connections) == 1


def test_no_framing_is_sent_with_204(wire: Wire) -> None:
    """RFC 9112, 6.1 and 6.2: neither field may stand there, whatever a worker does."""
    for field in (b"Content-Length: 5", b"Transfer-Encoding: chunked"):
        found = relayed(wire, b"HTTP/1.1 204 No\r\n%b\r\n\r\n" % field)
        assert found.headers == [(b"x-worker", b"w")]


def test_an_answer_up_to_the_close_ends_with_the_clients_connection(wire: Wire) -> None:
    body = b"x" * 300_000

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(HEAD + b"A: b\r\n\r\n", body)
        connection.close()

    relay = wire(script)
    for request in (GET, old(GET)):
        client = relay.connect()
        client.send(request)
        found = client.read_answer()
        assert (found.body, found.header(b"connection")) == (body, b"close")


# --- what is not an answer ------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n" + OK,
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\x00c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + CHUNKS,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n" + CHUNKS,
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        HEAD + b"A: " + b"x" * 70_000,
        HEAD + b"A: b\r\n" * 257 + b"\r\n",
    ],
)
def test_what_is_not_http_is_not_passed_on(wire: Wire, data: bytes) -> None:
    found = relayed(wire, data)
    assert (found.status, found.header(b"x-worker")) == (400, None)


def test_interim_answers_without_end_are_kept_within_bounds(wire: Wire) -> None:
    """They are thrown away as they come, and the deadline for the answer holds."""
    stop = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_request()
        while not stop.is_set():
            connection.send(b"HTTP/1.1 102 P\r\nA: b\r\n\r\n" * 1000)

    relay = wire(script, answer=0.2)
    assert ask(relay.port, GET).status == 504
    stop.set()


# --- reuse --------------------------------------------------------------------------


def test_a_reused_connection_that_died_is_replaced_once(wire: Wire) -> None:
    """It is closed the moment the second request arrives: nobody's failure."""

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(OK)
        connection.read_until(b"\r\n")

    relay = wire(script)
    client = relay.connect()
    for number in range(4):
        client.send(post(b"%d" % number))
        assert client.read_answer().body == b"ok"
    assert [body_of(r) for r in relay.worker.requests] == [b"0", b"1", b"2", b"3"]
    assert relay.log.count("resent") == 3


def test_a_fresh_connection_that_dies_is_a_failure(wire: Wire) -> None:
    found = relayed(wire, cut_after(b"", 0))
    assert (found.status, found.body) == (502, b"lost silently")
    assert relayed(wire, cut_after(b"HTTP", 4)).body == b"lost"


def test_a_worker_that_closes_as_it_accepts_is_a_failure_and_nothing_worse(
    wire: Wire,
) -> None:
    """The connection may be gone between its being made and its being used."""
    relay = wire(lambda connection: None)
    client = relay.connect()
    for target in (b"/hold", b"/stream") * 20:
        client.send(post(b"x" * 9, target.decode()))
        found = client.read_answer()
        assert (found.status, found.body) == (502, b"lost silently")


def test_an_idle_connection_that_the_worker_closes_is_not_used(wire: Wire) -> None:
    relay = wire(answer_in_turn(OK))
    client = relay.connect()
    for _ in range(3):
        client.send(GET)
        assert client.read_answer().body == b"ok"
        relay.wait(lambda: relay.workers() == 0)
    assert relay.log.count("resent") == 0
    assert len(relay.worker.connections) == 3


# --- answers that come early ---------------------------------------------------------


def test_an_answer_may_end_before_the_upload_does(wire: Wire) -> None:
    """The client gets it whole, is told that the connection ends, and may send on."""

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        connection.send(OK)
        connection.read_all()

    relay = wire(script)
    client = relay.connect()
    whole = post(b"x" * 500_000, "/stream")
    client.send(whole[:1000])
    found = client.read_answer()
    assert (found.body, found.header(b"connection")) == (b"ok", b"close")
    client.send(whole[1000:])
    assert client.ended()
    relay.worker.wait_for(lambda: relay.worker.connections[0].ended != "")


def test_upload_and_answer_stream_at_the_same_time(wire: Wire) -> None:
    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        connection.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(5):
            connection.read_until(b"ping")
            connection.send(b"4\r\npong\r\n")
        connection.read_until(b"0\r\n\r\n")
        connection.send(b"0\r\n\r\n")

    relay = wire(script)
    client = relay.connect()
    client.send(chunked(target="/stream", end=b""))
    data = b""
    for number in range(5):
        client.send(b"4\r\nping\r\n")
        while data.count(b"pong") <= number:
            data += client.read_some()
    client.send(b"0\r\n\r\n")
    while not data.endswith(b"0\r\n\r\n"):
        data += client.read_some()
    assert client.ended()
    head, _, body = data.partition(b"\r\n\r\n")
    assert unchunked(body) == b"pong" * 5
    assert b"Connection: close" in head
