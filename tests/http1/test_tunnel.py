"""A websocket: once the worker agrees, both connections are one."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.http1.messages import OK
from tests.http1.relay import Wire
from tests.http1.test_flow import HUGE, Sender, held, stuck
from tests.support.http import RawClient
from tests.support.raw_worker import RawConnection, answer

ASK = (
    b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: r\r\n"
    b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: k\r\n\r\n"
)
AGREED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\n"
)


def agreed(client: RawClient) -> None:
    """The client has asked; the answer to it is the 101."""
    found = client.read_answer()
    assert found.status == 101
    assert found.header(b"upgrade") == b"websocket"
    assert found.header(b"connection") == b"upgrade"
    assert found.header(b"sec-websocket-accept") == b"a"


def echo(connection: RawConnection) -> None:
    connection.read_request()
    connection.send(AGREED)
    while data := connection.read_some():
        connection.send(data)


def test_bytes_go_both_ways_as_they_are(wire: Wire) -> None:
    relay = wire(echo)
    client = relay.connect()
    client.send(ASK)
    agreed(client)
    for data in (b"\x81\x02hi", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 1000):
        client.send(data)
        got = b""
        while len(got) < len(data):
            got += client.read_some()
        assert got == data
    head = relay.worker.requests[0].lower()
    assert b"\r\nupgrade: websocket\r\n" in head
    assert b"\r\nconnection: upgrade\r\n" in head
    assert b"\r\nsec-websocket-key: k\r\n" in head


def test_what_comes_with_the_agreement_is_passed_on(wire: Wire) -> None:
    """Frames right behind the 101, and frames that the client sent too early."""

    def script(connection: RawConnection) -> None:
        connection.read_request()
        go.wait(20)
        connection.send(AGREED + b"late")
        connection.read_until(b"early")
        connection.send(b"seen")

    go = threading.Event()
    relay = wire(script)
    client = relay.connect()
    client.send(ASK + b"ea", b"rly", delay=0.02)
    go.set()
    agreed(client)
    assert client.read_all() == b"lateseen"


def test_a_worker_that_declines_has_answered(wire: Wire) -> None:
    relay = wire(answer(OK.replace(b"200", b"403")))
    client = relay.connect()
    for _ in range(2):
        client.send(ASK)
        found = client.read_answer()
        assert (found.status, found.body) == (403, b"ok")


@pytest.mark.parametrize(
    "request_",
    [
        ASK.replace(b"keep-alive, Upgrade", b"keep-alive"),
        ASK.replace(b"keep-alive, Upgrade", b"not-an-upgrade"),
        ASK.replace(b"websocket", b"h2c"),
        ASK.replace(b"HTTP/1.1", b"HTTP/1.0"),
        ASK.replace(b"GET", b"POST")[:-2] + b"Content-Length: 2\r\n\r\nhi",
    ],
)
def test_other_changes_of_protocol_are_not_asked_for(
    wire: Wire, request_: bytes
) -> None:
    """A worker that makes one all the same is not believed: past it, requests would
    come that nobody here has seen."""
    relay = wire(answer(AGREED))
    client = relay.connect()
    client.send(request_)
    assert client.read_answer().status == 400
    head = relay.worker.requests[0].lower()
    assert b"upgrade" not in head.replace(b"not-an-upgrade", b"")


@pytest.mark.parametrize("reset", [False, True])
def test_the_client_is_closed_when_the_worker_is_gone(wire: Wire, reset: bool) -> None:
    """What the worker said last arrives, however slowly it is read."""
    last = b"x" * 500_000

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(AGREED, last)
        if reset:
            connection.read_until(b"go")
            connection.reset()

    relay = wire(script)
    client = relay.connect(receive=1 << 12)
    client.send(ASK)
    agreed(client)
    got = 0
    while got < len(last) and (data := client.read_some()):
        got += len(data)
    assert got == len(last)
    if reset:
        client.send(b"go")
    assert client.ended()
    relay.wait(lambda: relay.log != [])
    assert relay.log[0].startswith("101")


@pytest.mark.parametrize(
    "how", [RawClient.close, RawClient.reset, RawClient.half_close]
)
def test_the_worker_is_closed_when_the_client_is_gone(
    wire: Wire, how: Callable[[RawClient], None]
) -> None:
    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(AGREED)
        connection.read_all()

    relay = wire(script)
    client = relay.connect()
    client.send(ASK)
    agreed(client)
    client.send(b"last words")
    (connection,) = relay.worker.connections
    relay.worker.wait_for(lambda: b"last words" in connection.received)
    how(client)
    relay.worker.wait_for(lambda: connection.ended != "")
    relay.wait(lambda: relay.log == ["gone"])


def test_a_worker_that_agrees_and_is_gone_ends_the_client(wire: Wire) -> None:
    """Its end may be known before the tunnel is there."""

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(AGREED + b"bye")

    relay = wire(script)
    client = relay.connect()
    client.send(ASK)
    agreed(client)
    assert client.read_all() == b"bye"


def test_whoever_reads_slowly_holds_the_other_back(wire: Wire) -> None:
    senders: list[Sender] = []
    read = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(AGREED)
        senders.append(Sender(connection.send))
        senders[0].start()
        read.wait(20)
        connection.drop(HUGE)
        senders[0].join(20)

    relay = wire(script)
    client = relay.connect()
    client.send(ASK)
    agreed(client)
    up = Sender(client.send)
    up.start()
    assert stuck(relay, lambda: up.sent) < HUGE
    assert stuck(relay, lambda: senders[0].sent) < HUGE
    read.set()
    got = 0
    while data := client.read_some():
        got += len(data)
    assert got == HUGE
    up.join(20)
    assert up.sent == HUGE


def test_early_frames_that_fill_a_worker_are_held_back(wire: Wire) -> None:
    """The client's socket is not read again just because the tunnel begins."""
    go, stop = threading.Event(), threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_request()
        go.wait(20)
        connection.send(AGREED)
        stop.wait(20)

    relay = wire(script)
    client = relay.connect(timeout=0.5)
    client.send(ASK)
    up = Sender(client.send)
    up.start()
    stuck(relay, lambda: up.sent)
    go.set()
    agreed(client)
    assert stuck(relay, lambda: up.sent) < HUGE
    assert held(relay) > 0
    up.join()
    client.reset()
    relay.wait(lambda: relay.workers() == 0)
    stop.set()


def test_a_tunnel_does_not_time_out(wire: Wire) -> None:
    relay = wire(echo, head=0.1, idle=0.1, gap=0.1, answer=0.5)
    client = relay.connect()
    client.send(ASK)
    agreed(client)
    threading.Event().wait(0.8)
    client.send(b"still here")
    assert client.read_some() == b"still here"
    client.close()
    relay.wait(lambda: relay.log == ["gone"])
