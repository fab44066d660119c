"""Answers that break off or fall silent: no client takes one for whole."""

from __future__ import annotations

import threading

import pytest

from tests.http1.messages import CHUNKS, EVENTS, GET, HEAD, OK, old
from tests.http1.relay import EVENT, Wire, relayed
from tests.support.http import ask
from tests.support.raw_worker import RawConnection, answer, cut_after, swallow

CHUNKED = HEAD + CHUNKS + b"\r\n"


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("request_", [GET, old(GET)], ids=["1.1", "1.0"])
@pytest.mark.parametrize("data", [OK, CHUNKED], ids=["length", "chunked"])
def test_an_answer_that_breaks_off_anywhere_is_never_taken_for_whole(
    wire: Wire, data: bytes, request_: bytes, reset: bool
) -> None:
    """Before its head is whole it is no answer at all: 502. After it the client's
    connection ends without what would have ended the body."""
    head = data.index(b"\r\n\r\n") + 4
    cuts = iter(range(1, len(data)))

    def script(connection: RawConnection) -> None:
        cut_after(data, next(cuts), reset=reset)(connection)

    relay = wire(script)
    for cut in range(1, len(data)):
        client = relay.connect()
        client.send(request_)
        if cut < head or (reset and cut == head):
            assert client.read_answer().status in (502, 200)
            continue
        found = client.read_some() + client.read_all()
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")
        assert_cut_short(found)
    relay.wait(lambda: relay.workers() == 0)


def assert_cut_short(data: bytes) -> None:
    head, _, body = data.partition(b"\r\n\r\n")
    if b"Content-Length: 2" in head:
        assert len(body) < 2
    elif b"chunked" in head:
        assert not body.endswith(b"0\r\n\r\n")


def test_an_answer_to_the_close_that_is_reset_resets_the_client(wire: Wire) -> None:
    """Nothing else could tell the client that it is not whole."""

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(HEAD + b"\r\nhalf")
        seen.wait(10)
        connection.reset()

    seen = threading.Event()
    relay = wire(script)
    client = relay.connect()
    client.send(GET)
    data = b""
    while not data.endswith(b"half"):
        data += client.read_some()
    seen.set()
    assert client.was_reset()


@pytest.mark.parametrize("request_", [GET, old(GET)], ids=["1.1", "1.0"])
@pytest.mark.parametrize("gap", [False, True], ids=["dies", "falls silent"])
def test_an_event_stream_that_breaks_off_ends_with_an_error_event(
    wire: Wire, request_: bytes, gap: bool
) -> None:
    first = b'data: {"n": 1}\n\n'

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(EVENTS + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.send(b"%x\r\n%b\r\n" % (len(first), first))
        if gap:
            connection.read_all()
        connection.close()

    found = relayed(wire, script, request_, gap=0.1 if gap else 20)
    assert found.body == first + b"\n\n" + EVENT
    assert found.complete == (request_ != GET)


@pytest.mark.parametrize(
    "data",
    [
        EVENTS + b"Transfer-Encoding: chunked\r\n\r\n50\r\ndata: ",
        EVENTS + b"Transfer-Encoding: chunked\r\n\r\n5",
        EVENTS + b"Content-Length: 100\r\n\r\ndata: ",
        EVENTS + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_no_event_is_put_where_none_can_stand(wire: Wire, data: bytes) -> None:
    found = relayed(wire, cut_after(data, len(data)))
    assert found.status == 200
    assert b"error" not in found.body
    assert not found.complete


def test_broken_chunks_of_a_worker_are_not_made_whole(wire: Wire) -> None:
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nX\r\n0\r\n\r\n"
    together = relayed(wire, data)
    apart = relayed(wire, answer(data[:60], data[60:], delay=0.05))
    for found in (together, apart):
        assert (found.status, found.complete) == (200, False)


# --- time ---------------------------------------------------------------------------


def test_a_worker_that_does_not_answer_in_time_is_given_up(wire: Wire) -> None:
    relay = wire(swallow, answer=0.1)
    client = relay.connect()
    client.send(GET)
    assert client.read_answer().status == 504
    (connection,) = relay.worker.connections
    relay.worker.wait_for(lambda: connection.ended != "")
    # The client's connection has nothing to do with it.
    client.send(GET)
    assert client.read_answer().status == 504


def test_a_worker_that_falls_silent_in_mid_answer_is_given_up(wire: Wire) -> None:
    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(OK[:-1])
        connection.read_all()

    relay = wire(script, gap=0.1)
    found = ask(relay.port, GET)
    assert (found.status, found.complete) == (200, False)
    relay.worker.wait_for(lambda: relay.worker.connections[0].ended != "")
    relay.wait(lambda: relay.log == ["the worker fell silent"])
