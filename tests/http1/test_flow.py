"""Whoever is slow holds the other side back; nothing piles up in between."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from router.http1.connection import Connection
from tests.http1.messages import CHUNKS, GET, HEAD, OK, chunked, old, post
from tests.http1.relay import Relay, Wire
from tests.support.http import RawClient
from tests.support.raw_worker import RawConnection, answer, swallow

#: Far more than the sockets between two processes take.
HUGE = 24 << 20
#: What the relay may hold of it: a few reads of 256 KiB, and the write they fill.
BOUND = 4 << 20


def held(relay: Relay) -> int:
    """Bytes that wait to be written, over all connections."""

    def count() -> int:
        connections: set[Connection] = relay.connections()
        return sum(c.transport.get_write_buffer_size() for c in connections)

    return relay.ask(count)


def stuck(relay: Relay, progress: Callable[[], int]) -> int:
    """How far it came when it moves no more; what is held on the way is bounded."""
    before = -1
    while (now := progress()) != before:
        before = now
        threading.Event().wait(0.2)
        assert held(relay) < BOUND
    return now


class Sender(threading.Thread):
    """Sends a huge body in the background and counts what it got rid of."""

    def __init__(self, send: Callable[[bytes], None], size: int = HUGE) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._send = send
        self._size = size

    def run(self) -> None:
        piece = bytes(range(256)) * 256
        with contextlib.suppress(OSError):
            while self.sent < self._size:
                self._send(piece)
                self.sent += len(piece)


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_slow_client_holds_a_huge_answer_back(wire: Wire, framing: str) -> None:
    senders: list[Sender] = []

    def script(connection: RawConnection) -> None:
        connection.read_request()
        if framing == "length":
            connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % HUGE)
        elif framing == "chunked":
            connection.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            connection.send(b"%x\r\n" % HUGE)
        else:
            connection.send(HEAD + b"\r\n")
        senders.append(Sender(connection.send))
        senders[0].run()
        if framing == "chunked":
            connection.send(b"\r\n0\r\n\r\n")

    relay = wire(script)
    client = relay.connect()
    client.send(GET)
    relay.worker.wait_for(lambda: len(senders) == 1)
    assert stuck(relay, lambda: senders[0].sent) < HUGE
    found = client.read_answer()
    assert (len(found.body), found.complete) == (HUGE, True)
    assert found.body == bytes(range(256)) * (HUGE // 256)


def test_a_client_that_is_full_with_an_answers_first_bytes_holds_it_back(
    wire: Wire,
) -> None:
    """The very write of the head and what came behind it may be too much for it."""
    senders: list[Sender] = []

    def script(connection: RawConnection) -> None:
        connection.read_request()
        senders.append(Sender(connection.send))
        connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % HUGE + b"x" * 200_000)
        senders[0].run()

    relay = wire(script, send=1 << 12)
    client = relay.connect(receive=1 << 12)
    client.send(GET)
    relay.worker.wait_for(lambda: len(senders) == 1)
    assert stuck(relay, lambda: senders[0].sent) < HUGE
    client.close()


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_slow_worker_holds_a_huge_upload_back(wire: Wire, framing: str) -> None:
    go = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        go.wait(20)
        connection.drop(HUGE)
        if framing == "chunked":
            connection.read_until(b"\r\n0\r\n\r\n")
        connection.send(OK)
        connection.read_all()

    relay = wire(script)
    client = relay.connect()
    if framing == "length":
        client.send(post(b"", "/stream").replace(b": 0", b": %d" % HUGE))
        sender = Sender(client.send)
    else:
        client.send(chunked(target="/stream", end=b""))
        sender = Sender(lambda piece: client.send(b"10000\r\n" + piece + b"\r\n"))
    sender.start()
    assert stuck(relay, lambda: sender.sent) < HUGE
    go.set()
    sender.join(20)
    if framing == "chunked":
        client.send(b"0\r\n\r\n")
    assert client.read_answer().body == b"ok"


def test_a_slow_worker_is_not_the_clients_delay(wire: Wire) -> None:
    """The client's time for its body does not run while its socket is not read."""
    go = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        go.wait(20)
        connection.drop(HUGE)
        connection.send(OK)
        connection.read_all()

    relay = wire(script, head=0.3)
    client = relay.connect()
    client.send(post(b"", "/stream").replace(b": 0", b": %d" % HUGE))
    sender = Sender(client.send)
    sender.start()
    stuck(relay, lambda: sender.sent)
    threading.Event().wait(0.5)
    go.set()
    assert client.read_answer().status == 200


def test_a_client_is_heard_again_once_a_slow_upload_is_done(wire: Wire) -> None:
    """It was paused for a worker that took its time: that it leaves must be seen."""
    go, done = threading.Event(), threading.Event()
    size = 8 << 20

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        go.wait(20)
        connection.drop(size)
        done.set()
        connection.read_all()

    relay = wire(script)
    client = relay.connect()
    client.send(post(b"", "/stream").replace(b": 0", b": %d" % size))
    sender = Sender(client.send, size)
    sender.start()
    stuck(relay, lambda: sender.sent)
    go.set()
    sender.join(20)
    (connection,) = relay.worker.connections
    assert done.wait(20)
    client.close()
    relay.worker.wait_for(lambda: connection.ended != "")
    relay.wait(lambda: relay.log == ["gone"])


def test_a_client_is_heard_again_when_the_worker_it_was_paused_for_dies(
    wire: Wire,
) -> None:
    die = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        die.wait(20)
        connection.reset()

    relay = wire(script)
    client = relay.connect()
    client.send(post(b"", "/stream").replace(b": 0", b": %d" % HUGE))
    sender = Sender(client.send)
    sender.start()
    stuck(relay, lambda: sender.sent)
    die.set()
    assert client.read_answer().status == 502


def test_a_client_that_takes_nothing_of_its_answer_is_given_up(wire: Wire) -> None:
    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % HUGE)
        Sender(connection.send).run()

    relay = wire(script, write=0.2)
    client = relay.connect()
    client.send(GET)
    (connection,) = waited(relay)
    relay.worker.wait_for(lambda: connection.ended != "" or relay.log != [])
    relay.wait(lambda: relay.clients() == [])
    relay.wait(lambda: relay.log == ["gone"])


def test_a_client_that_takes_little_at_a_time_is_not_given_up(wire: Wire) -> None:
    size = 4 << 20

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % size)
        Sender(connection.send, size).run()

    relay = wire(script, write=0.5)
    client = relay.connect(receive=1 << 16)
    client.send(GET)
    taken = 0
    while data := client.read_some():
        taken += len(data)
        threading.Event().wait(0.02)
        if taken > size:
            break
    assert taken > size


def test_an_answer_that_nobody_takes_does_not_keep_a_closing_connection(
    wire: Wire,
) -> None:
    """Whole from the worker, more than the socket takes, and the client asked to close:
    what is left is the wait for a client that never reads."""
    size = 1 << 20

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)

    relay = wire(script, write=0.3, send=1 << 14)
    client = relay.connect(receive=1 << 12)
    client.send(old(GET))
    relay.worker.wait_for(lambda: len(relay.worker.requests) == 1)
    relay.wait(lambda: relay.clients() == [])


def test_an_old_client_that_is_slow_is_not_sent_more_than_it_takes(wire: Wire) -> None:
    """Taken out of its chunks, an answer still waits."""
    senders: list[Sender] = []

    def script(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(HEAD + CHUNKS.split(b"5\r\n")[0])
        senders.append(Sender(lambda p: connection.send(b"10000\r\n" + p + b"\r\n")))
        senders[0].run()
        connection.send(b"0\r\n\r\n")

    relay = wire(script)
    client = relay.connect()
    client.send(old(GET))
    relay.worker.wait_for(lambda: len(senders) == 1)
    assert stuck(relay, lambda: senders[0].sent) < HUGE
    assert client.read_answer().body == bytes(range(256)) * (HUGE // 256)


def test_pipelined_answers_wait_for_a_client_that_does_not_read(wire: Wire) -> None:
    """The next request is not asked of the worker before there is room."""
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + b"x" * 4_000_000
    relay = wire(answer(big))
    client = relay.connect()
    client.send(GET * 50)
    assert stuck(relay, lambda: len(relay.worker.requests)) < 5
    for _ in range(50):
        assert len(client.read_answer().body) == 4_000_000


# --- who leaves ---------------------------------------------------------------------


def waited(relay: Relay, count: int = 1) -> list[RawConnection]:
    """The worker's connections, once there are so many."""
    relay.worker.wait_for(lambda: len(relay.worker.connections) == count)
    return relay.worker.connections


def leave(client: RawClient, how: str) -> None:
    if how == "reset":
        client.reset()
    elif how == "half":
        client.half_close()
    else:
        client.close()


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("phase", ["upload", "waiting", "streaming", "stalled"])
def test_a_client_that_leaves_ends_the_workers_connection_at_once(
    wire: Wire, phase: str, how: str
) -> None:
    """That is how the worker learns to stop generating."""

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        if phase == "streaming":
            connection.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        elif phase == "stalled":
            connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % HUGE)
            Sender(connection.send).run()
        connection.read_all()

    relay = wire(script)
    client = relay.connect()
    if phase == "upload":
        client.send(post(b"x" * 1000, "/stream")[:-500])
    else:
        client.send(GET)
    (connection,) = waited(relay)
    if phase == "streaming":
        client.read_some()
    elif phase == "stalled":
        relay.wait(lambda: held(relay) > 0)
    else:
        relay.worker.wait_for(lambda: b"\r\n\r\n" in connection.received)
    leave(client, how)
    relay.wait(lambda: relay.workers() == 0)
    relay.wait(lambda: relay.log == ["gone"])
    if phase != "stalled":
        relay.worker.wait_for(lambda: connection.ended != "")


def test_a_client_that_leaves_before_its_request_is_whole_bothers_nobody(
    wire: Wire,
) -> None:
    relay = wire(swallow)
    for request in (b"", GET[:-1], post(b"x" * 10)[:-1]):
        with RawClient(relay.port) as client:
            client.send(request)
            relay.wait(lambda: len(relay.clients()) == 1)
        relay.wait(lambda: relay.clients() == [])
    assert relay.worker.connections == []


def test_what_comes_with_the_clients_end_is_still_served(wire: Wire) -> None:
    """An answer that was complete goes out whole, however slowly it is read."""
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000
    relay = wire(answer(big))
    client = relay.connect(receive=1 << 12)
    client.send(GET)
    relay.wait(lambda: len(relay.log) == 1)
    client.half_close()
    assert len(client.read_answer().body) == 300_000


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_client_that_leaves_is_missed_though_its_socket_is_not_read(
    wire: Wire, how: str
) -> None:
    """It was paused, for it sent more than may wait behind a running request."""
    relay = wire(swallow)
    client = relay.connect()
    client.send(GET + post(b"x" * 100_000))
    relay.wait(lambda: relay.clients() != [])
    (connected,) = relay.clients()
    relay.wait(lambda: not relay.ask(connected.transport.is_reading))
    leave(client, how)
    relay.wait(lambda: relay.workers() == 0)
    relay.wait(lambda: relay.log == ["gone"])


def test_a_worker_that_is_full_does_not_keep_the_connection_of_a_client_that_left(
    wire: Wire,
) -> None:
    """Bytes for the worker that nobody takes must not outlive their request."""
    stop = threading.Event()

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        stop.wait(20)

    relay = wire(script)
    client = relay.connect()
    client.send(post(b"x" * (32 << 20)))
    relay.wait(lambda: held(relay) > 0)
    client.close()
    relay.wait(lambda: relay.workers() == 0)
    stop.set()
