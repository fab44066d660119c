"""WebSockets: after the change of protocols, bytes go both ways as they are."""

from __future__ import annotations

import pytest

from tests.proxy.messages import code_of, ok
from tests.proxy.running import running
from tests.support.http import RawClient
from tests.support.raw_worker import (
    RawConnection,
    RawWorker,
    Script,
    by_path,
    like_vllm,
    saying,
)

ASK = (
    b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: r\r\n"
    b"Connection: keep-alive, Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: abc\r\n\r\n"
)
ACCEPT = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: xyz\r\n\r\n"
)


def echo(connection: RawConnection) -> None:
    """Says hello and then what it hears, until the peer ends."""
    connection.read_request()
    connection.send(ACCEPT + b"hello")
    while data := connection.read_exactly(1):
        connection.send(data)


def worker_of(tunnel: Script) -> RawWorker:
    """A worker that does this on a connection that begins with a tunnel."""
    return RawWorker(by_path({b"/v1/realtime": tunnel}, like_vllm("m", saying(ok()))))


def read(client: RawClient, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.read_some()):
        data += more
    return data


def test_a_websocket_is_a_tunnel_both_ways() -> None:
    with (
        worker_of(echo) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(ASK)
        answer = client.read_answer()
        assert answer.status == 101
        assert answer.header(b"upgrade") == b"websocket"
        assert answer.header(b"sec-websocket-accept") == b"xyz"
        assert answer.header(b"x-router-worker") == router.id_of(worker).encode()
        assert read(client, 5) == b"hello"
        for data in (b"\x81\x05hello", bytes(range(256)), b"GET / HTTP/1.1\r\n\r\n"):
            client.send(data)
            assert read(client, len(data)) == data
        asked = worker.requests[0].lower()
        assert b"\r\nconnection: upgrade\r\n" in asked
        assert b"\r\nupgrade: websocket\r\n" in asked
        assert b"\r\nsec-websocket-key: abc\r\n" in asked
        assert sum(w["load"] for w in router.workers()) == 1


def test_what_a_client_sends_before_it_is_answered_goes_through() -> None:
    with (
        worker_of(echo) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(ASK + b"early")
        assert client.read_answer().status == 101
        assert read(client, 10) == b"helloearly"


def test_a_client_that_ends_a_tunnel_is_no_abort() -> None:
    with worker_of(echo) as worker, running(worker) as router:
        with router.client() as client:
            client.send(ASK)
            assert client.read_answer().status == 101
        worker.wait_for(lambda: worker.connections[-1].ended != "")
        router.at_rest()
        assert router.sample("client_aborts_total") == 0


def test_a_worker_that_ends_a_tunnel_ends_the_client_s_connection() -> None:
    def bye(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(ACCEPT + b"bye")
        connection.close()

    with (
        worker_of(bye) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(ASK)
        assert client.read_answer().status == 101
        assert read(client, 3) == b"bye"
        assert client.ended()
        router.at_rest(client)


def test_a_worker_that_does_not_want_to_answers_as_ever() -> None:
    with (
        RawWorker(like_vllm("m", saying(ok(b"no")))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(ASK)
        assert client.read_answer().body == b"no"
        client.send(ASK)
        assert client.read_answer().body == b"no"


def test_a_tunnel_s_connection_is_never_used_again() -> None:
    with worker_of(echo) as worker, running(worker) as router:
        for _ in range(3):
            with router.client() as client:
                client.send(ASK)
                assert client.read_answer().status == 101
        router.at_rest()
        assert sum(bool(each.requests) for each in worker.connections) == 3


@pytest.mark.parametrize(
    "lines",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n",
        b"Connection: Upgrade\r\nUpgrade: something\r\n",
        b"Upgrade: websocket\r\n",
    ],
)
def test_no_other_protocol_is_changed_to(lines: bytes) -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(b"GET /x HTTP/1.1\r\nHost: r\r\n" + lines + b"\r\n")
        assert client.read_answer().status == 200
        assert b"upgrade" not in worker.requests[0].lower()


def test_both_ends_of_a_tunnel_are_held_back_by_the_slower_one() -> None:
    size = 20_000_000

    def pour(connection: RawConnection) -> None:
        connection.read_request()
        connection.send(ACCEPT)
        connection.send(bytes(size))
        assert connection.read_exactly(size) == bytes(size)
        connection.send(b"!")
        connection.read_all()

    with (
        worker_of(pour) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(ASK)
        assert client.read_answer().status == 101
        assert read(client, size) == bytes(size)
        client.send(bytes(size))
        assert read(client, 1) == b"!"


def test_an_unknown_model_has_no_tunnel() -> None:
    with (
        worker_of(echo) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(ASK.replace(b"model=m", b"model=other"))
        answer = client.read_answer()
        assert (answer.status, code_of(answer.body)) == (404, "model_not_found")
