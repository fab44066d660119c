"""What a client may not do, be it in size or in time, and what it is told."""

from __future__ import annotations

import threading

import pytest

from tests.http1.messages import GET, OK, post
from tests.http1.relay import Relay, Wire
from tests.support.http import Answer
from tests.support.raw_worker import answer, swallow

# --- refusals and limits ------------------------------------------------------------


def refused(relay: Relay, *pieces: bytes) -> Answer:
    """The answer to what is not a request; the connection ends behind it."""
    client = relay.connect()
    client.send(*pieces)
    refusal = client.read_answer()
    assert refusal.header(b"connection") == b"close"
    assert client.ended()
    return refusal


def test_a_large_head_is_refused_while_it_still_comes(wire: Wire) -> None:
    relay = wire(answer(OK))
    big = b"GET / HTTP/1.1\r\nHost: r\r\nA: " + b"x" * 65_536
    assert refused(relay, big).status == 431
    assert refused(relay, big + b"\r\n\r\n").status == 431
    many = b"GET / HTTP/1.1\r\nHost: r\r\n" + b"a: b\r\n" * 256 + b"\r\n"
    assert refused(relay, many).status == 431
    fits = GET[:-2] + b"A: " + b"x" * (65_536 - len(GET) - 5) + b"\r\n\r\n"
    assert len(fits) == 65_536
    client = relay.connect()
    client.send(fits)
    assert client.read_answer().status == 200
    assert len(relay.worker.requests) == 1


def test_a_bare_line_feed_is_refused_at_once(wire: Wire) -> None:
    """A client that ends its lines so would wait for an answer for ever."""
    relay = wire(swallow)
    assert refused(relay, b"GET / HTTP/1.1\nHost: r\n\n").status == 400
    assert refused(relay, b"GET / HTTP/1.1\r\nHost: r\n").status == 400


def test_an_empty_line_before_a_request_is_let_pass_once(wire: Wire) -> None:
    relay = wire(answer(OK))
    client = relay.connect()
    client.send(b"\r", b"\n" + GET)
    assert client.read_answer().status == 200
    client.send(b"\r\n" + GET)
    assert client.read_answer().status == 200
    assert refused(relay, b"\r\n\r\n" + GET).status == 400


# --- time ---------------------------------------------------------------------------


def test_a_head_that_does_not_come_in_time_is_answered_408(wire: Wire) -> None:
    relay = wire(swallow, head=0.1)
    assert refused(relay, GET[:-1]).status == 408


def test_a_head_that_drips_gets_no_more_time_for_it(wire: Wire) -> None:
    relay = wire(swallow, head=0.3)
    client = relay.connect()
    head = iter(GET[:-1] + b"A: b\r\n" * 1000)
    while relay.log == []:
        client.send(bytes([next(head)]))
        relay.wait(lambda: True)
        threading.Event().wait(0.01)
    assert client.read_answer().status == 408


def test_a_client_that_says_nothing_is_closed_without_an_answer(wire: Wire) -> None:
    relay = wire(answer(OK), head=0.1, idle=0.1)
    client = relay.connect()
    assert client.ended()
    client = relay.connect()
    client.send(GET)
    assert client.read_answer().status == 200
    assert client.ended()


@pytest.mark.parametrize("target", ["/hold", "/stream"])
def test_a_body_that_stops_coming_is_answered_408(wire: Wire, target: str) -> None:
    relay = wire(swallow, head=0.1)
    client = relay.connect()
    client.send(post(b"x" * 10, target)[:-1])
    refusal = client.read_answer()
    assert refusal.status == 408
    assert client.ended()
    relay.wait(lambda: relay.workers() == 0)


def test_a_client_that_was_refused_and_stays_is_closed_after_a_while(
    wire: Wire,
) -> None:
    """It had time to read the answer; that it never closes must not keep it."""
    relay = wire(swallow)
    client = relay.connect()
    client.send(b"no request\r\n\r\n")
    assert client.read_answer().status == 400
    assert client.ended()
    relay.wait(lambda: relay.clients() == [])
