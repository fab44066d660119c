"""The client's end of a connection: what it takes, in which order, and how it ends."""

from __future__ import annotations

import threading

import pytest

from tests.http1.messages import GET, OK, body_of, chunked, post, unchunked
from tests.http1.relay import Wire
from tests.support.raw_worker import RawConnection, answer, swallow


def echo(connection: RawConnection) -> None:
    """Answers each request with its own target."""
    while request := connection.read_request():
        target = request.split(b" ")[1]
        connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(target), target)
        )


# --- one connection, many requests --------------------------------------------------


def test_one_connection_serves_many_requests_over_one_to_the_worker(wire: Wire) -> None:
    relay = wire(answer(OK))
    client = relay.connect()
    for number in range(20):
        client.send(post(b"x" * number))
        assert client.read_answer().body == b"ok"
    assert [body_of(r) for r in relay.worker.requests] == [b"x" * n for n in range(20)]
    assert len(relay.worker.connections) == 1


@pytest.mark.parametrize("size", [1, 7, 64])
def test_requests_cut_anywhere_are_the_same_requests(wire: Wire, size: int) -> None:
    stream = (
        GET + post(b"{}" * 9) + chunked(b"ab", b"c" * 20) + post(b"", fields="A: b\r\n")
    )
    relay = wire(answer(OK))
    client = relay.connect()
    client.send(*(stream[at : at + size] for at in range(0, len(stream), size)))
    for _ in range(4):
        assert client.read_answer().body == b"ok"
    bodies = [body_of(request) for request in relay.worker.requests]
    assert bodies == [b"", b"{}" * 9, b"ab" + b"c" * 20, b""]


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    targets = [b"/hold/%d" % number for number in range(50)]
    relay = wire(echo)
    client = relay.connect()
    client.send(b"".join(GET.replace(b"/hold", target) for target in targets))
    assert [client.read_answer().body for _ in targets] == targets


def test_what_waits_behind_a_running_request_is_bounded(wire: Wire) -> None:
    """The socket is not read any more; nothing of what was sent is lost."""
    go = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_request()
        go.wait(10)
        connection.send(OK)
        answer(OK)(connection)

    bodies = [b"%d" % number * 10_000 for number in range(100)]
    relay = wire(script)
    client = relay.connect()
    sender = threading.Thread(
        target=client.send, args=[GET, *(post(body) for body in bodies)]
    )
    sender.start()
    relay.worker.wait_for(lambda: len(relay.worker.requests) == 1)
    (connected,) = relay.clients()
    relay.wait(lambda: not relay.ask(connected.transport.is_reading))
    go.set()
    for _ in range(101):
        assert client.read_answer().status == 200
    sender.join(10)
    assert [body_of(request) for request in relay.worker.requests[1:]] == bodies


def test_an_answer_before_the_body_ends_the_connection_after_it(wire: Wire) -> None:
    """Who sends on after that loses nothing of the answer."""
    relay = wire(swallow, body=9)
    client = relay.connect()
    client.send(post(b"x" * 100_000))
    refusal = client.read_answer()
    assert refusal.status == 413
    assert refusal.header(b"connection") == b"close"
    client.send(b"y" * 100_000)
    assert client.ended()


@pytest.mark.parametrize(
    ("request_", "persistent"),
    [
        (GET, True),
        (GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False),
        (GET.replace(b"\r\n\r\n", b"\r\nConnection: X, Close\r\n\r\n"), False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", False),
    ],
)
def test_the_connection_goes_on_as_the_client_wants(
    wire: Wire, request_: bytes, persistent: bool
) -> None:
    relay = wire(answer(OK))
    client = relay.connect()
    client.send(request_)
    found = client.read_answer()
    assert found.body == b"ok"
    if not persistent:
        assert found.header(b"connection") == b"close"
        assert client.ended()
    else:
        old = b"HTTP/1.0" in request_
        assert found.header(b"connection") == (b"keep-alive" if old else None)
        client.send(request_)
        assert client.read_answer().body == b"ok"


# --- Expect -------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/hold", "/stream"])
def test_a_client_that_expects_100_is_told_to_go_on(wire: Wire, target: str) -> None:
    relay = wire(answer(OK))
    client = relay.connect()
    whole = post(b"body", target, "Expect: 100-continue\r\n")
    client.send(whole[:-4])
    assert client.read_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(whole[-4:])
    assert client.read_answer().body == b"ok"
    (request,) = relay.worker.requests
    assert b"expect" not in request.lower()
    assert body_of(request) == b"body"


def test_no_100_for_a_body_that_came_already_nor_for_an_old_client(wire: Wire) -> None:
    expect = "Expect: 100-continue\r\n"
    relay = wire(answer(OK))
    for request in (post(b"x", fields=expect), post(b"x", "/hold", expect, 0)):
        client = relay.connect()
        client.send(request)
        assert client.read_some().startswith(b"HTTP/1.1 200 ")
    assert len(relay.worker.requests) == 2


# --- bodies -------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/hold", "/stream"])
@pytest.mark.parametrize("size", [0, 1, 15_000, 17_000, 70_000, 3_000_000])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_body_arrives_as_it_was_sent(
    wire: Wire, target: str, size: int, in_chunks: bool
) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    pieces = [body[at : at + 9_973] for at in range(0, size, 9_973)]
    request = chunked(*pieces, target=target) if in_chunks else post(body, target)
    relay = wire(answer(OK))
    client = relay.connect()
    client.send(request)
    assert client.read_answer().body == b"ok"
    # The connection is in step: another request goes over it.
    client.send(GET)
    assert client.read_answer().body == b"ok"
    arrived = relay.worker.requests[0]
    head = arrived.split(b"\r\n\r\n")[0].lower()
    if b"chunked" in head:
        assert (in_chunks, target) == (True, "/stream")
        assert unchunked(body_of(arrived)) == body
    else:
        assert b"content-length: %d" % size in head
        assert body_of(arrived) == body


@pytest.mark.parametrize("target", ["/hold", "/stream"])
@pytest.mark.parametrize("broken", [b"5\r\nhello0\r\n\r\n", b"-1\r\n", b"1\nx"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_body_in_broken_chunks_is_the_clients_fault(
    wire: Wire, target: str, broken: bytes, apart: bool
) -> None:
    """400, however far the request has come; the worker never sees a whole body."""
    relay = wire(swallow)
    client = relay.connect()
    begun = chunked(b"x" * 10, target=target, end=b"")
    if apart:
        client.send(begun)
        if target == "/stream":
            relay.worker.wait_for(lambda: bool(relay.worker.connections))
            connection = relay.worker.connections[0]
            relay.worker.wait_for(lambda: b"x" * 10 in connection.received)
        client.send(broken)
    else:
        client.send(begun + broken)
    refusal = client.read_answer()
    assert refusal.status == 400
    assert client.ended()
    assert all(b"0\r\n\r\n" not in c.received for c in relay.worker.connections)


def test_a_body_over_the_budget_of_all_bodies_is_refused(wire: Wire) -> None:
    relay = wire(answer(OK), budget=100_000)
    first = relay.connect()
    second = relay.connect()
    first.send(post(b"x" * 70_000)[:-1])
    relay.wait(lambda: relay.budget.held == 69_999)
    second.send(post(b"y" * 70_000))
    assert second.read_answer().status == 503
    relay.wait(lambda: relay.budget.held == 69_999)
    first.send(b"x")
    assert first.read_answer().status == 200
    relay.wait(lambda: relay.budget.held == 0)


def test_a_held_body_is_let_go_once_the_answer_began(wire: Wire) -> None:
    """A long answer must not keep its prompt in memory and in the budget."""
    go = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(OK[:-1])
        go.wait(10)
        connection.send(OK[-1:])

    relay = wire(script)
    client = relay.connect()
    client.send(post(b"x" * 70_000))
    client.read_some()
    assert relay.budget.held == 0
    go.set()


def test_tiny_chunks_cost_no_more_memory_than_they_carry(wire: Wire) -> None:
    """A budget of bytes is worth something only if a byte is held as a byte."""
    relay = wire(answer(OK))
    client = relay.connect()
    client.send(chunked(*[b"ab"] * 200_000))
    assert client.read_answer(b"POST").status == 200
    assert body_of(relay.worker.requests[0]) == b"ab" * 200_000


# --- the end ------------------------------------------------------------------------


def test_a_drained_connection_ends_after_its_request(wire: Wire) -> None:
    go = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_request()
        go.wait(10)
        connection.send(OK)

    relay = wire(script)
    idle = relay.connect()
    busy = relay.connect()
    busy.send(GET)
    relay.worker.wait_for(lambda: len(relay.worker.requests) == 1)
    relay.wait(lambda: len(relay.clients()) == 2)
    relay.drain()
    assert idle.ended()
    go.set()
    last = busy.read_answer()
    assert (last.body, last.header(b"connection")) == (b"ok", b"close")
    assert busy.ended()


def test_a_request_that_is_on_its_way_when_draining_begins_is_served(
    wire: Wire,
) -> None:
    relay = wire(answer(OK))
    client = relay.connect()
    client.send(GET[:5])
    relay.wait(lambda: relay.clients() != [])
    relay.ask(lambda: None)
    client.send(GET[5:9])
    threading.Event().wait(0.05)
    relay.drain()
    client.send(GET[9:])
    assert client.read_answer().body == b"ok"
    assert client.ended()


def test_a_client_that_sends_on_when_the_connection_ends_is_not_reset(
    wire: Wire,
) -> None:
    """It asked to go on, and could not know yet that this answer ends the connection:
    a reset might take from it what it has not read."""

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(b"HTTP/1.1 200 OK\r\n\r\nup to the end")

    relay = wire(script)
    client = relay.connect()
    client.send(GET)
    relay.wait(lambda: relay.log != [])
    client.send(GET[:5], GET[5:], delay=0.05)
    assert client.read_answer().body == b"up to the end"
    assert not client.was_reset()
