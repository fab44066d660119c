"""Clients that leave, in every phase of a request: nothing of them stays.

A worker whose client has left is told by the end of its connection: that is how vLLM
stops generating.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.proxy.messages import STREAM, answer_of, completion, event, ok
from tests.proxy.running import Running, deaf, running
from tests.support.http import RawClient, post
from tests.support.raw_worker import RawConnection, RawWorker, by_path, like_vllm

#: The client's whole request is longer than all buffers on the way.
LARGE = 64 << 20


def behave(connection: RawConnection, request: bytes) -> None:
    """Does what the path says, then nothing until the peer ends the connection."""
    path = request.split(b" ", 2)[1]
    if path.startswith(b"/quick"):
        connection.send(ok())
        return
    if path.startswith(b"/busy"):
        connection.send(answer_of(503))
        return
    if path.startswith(b"/stream"):
        connection.send(STREAM, event("token"))
    elif path.startswith(b"/pour"):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE)
        connection.send(bytes(LARGE))
    elif path.startswith(b"/realtime"):
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
            b"Upgrade: websocket\r\n\r\nhello"
        )
    connection.read_all()


@dataclass
class Setting:
    """A router with something for every phase."""

    router: Running
    #: Two of them, both of model `m`.
    workers: list[RawWorker]

    def open(self, count: int, *data: bytes) -> list[RawClient]:
        """Clients that have sent this, each piece by itself."""
        clients = [self.router.client() for _ in range(count)]
        for client in clients:
            client.send(*data)
        return clients

    def served(self, count: int) -> None:
        """Returns once so many requests have begun."""
        self.router.until(
            lambda: self.router.sample("requests_in_flight") == count,
            f"{count} requests have begun",
        )


@contextmanager
def unreading(router: Running) -> Iterator[None]:
    """A worker for model `unread` that reads nothing of an upload but its head."""
    over = threading.Event()

    def upload(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        over.wait(60)

    script = by_path({b"/upload": upload}, like_vllm("unread", behave))
    with RawWorker(script) as worker:
        router.call("POST", "/workers", {"url": worker.url})
        router.until(lambda: router.workers()[-1]["status"] == "ready", "it is ready")
        try:
            yield
        finally:
            over.set()


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    flags = (
        *("--hold-timeout-secs", "300", "--hold-queue-size", "500"),
        *("--connect-timeout-secs", "300", "--retry-initial-backoff-ms", "600000"),
        *("--retry-max-backoff-ms", "600000"),
    )
    never = socket.create_server(("127.0.0.1", 0))
    with (
        never,
        RawWorker(like_vllm("m", behave)) as a,
        RawWorker(like_vllm("m", behave)) as b,
        running(a, b, flags=flags) as router,
    ):
        # Its models are never known, so that any may be among them.
        url = f"http://127.0.0.1:{never.getsockname()[1]}"
        router.call("POST", "/workers", {"url": url})
        with deaf(router), unreading(router):
            yield Setting(router, [a, b])


# --- the phases: so many clients, each of them there ----------------------------------

Phase = Callable[[Setting, int], list[RawClient]]


def before_anything(setting: Setting, count: int) -> list[RawClient]:
    return setting.open(count)


def within_the_head(setting: Setting, count: int) -> list[RawClient]:
    return setting.open(count, completion()[:50])


def within_the_body(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, completion()[:-3])
    setting.served(count)
    return clients


def held_for_a_worker(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, completion("whoever has it"))
    setting.router.until(
        lambda: setting.router.sample("hold_waiting") == count, "all are held"
    )
    return clients


def while_connecting(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, completion("deaf"))
    setting.router.serving(count)
    return clients


def before_the_answer(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, completion())
    setting.router.serving(count)
    return clients


def between_two_attempts(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, post("/busy", b'{"model":"m"}'))
    setting.served(count)
    setting.router.until(lambda: _busy(setting) == count, "a worker has refused each")
    return clients


def within_the_answer(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, post("/stream", b'{"model":"m"}'))
    for client in clients:
        assert client.read_some()
    return clients


def without_reading(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, post("/pour", b'{"model":"m"}'))
    setting.router.serving(count)
    return clients


def with_the_next_request_sent(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, completion() + post("/quick", b'{"model":"m"}'))
    setting.router.serving(count)
    return clients


def after_the_answer(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, post("/quick", b'{"model":"m"}'))
    for client in clients:
        assert client.read_answer().status == 200
    return clients


def within_an_upload_nobody_reads(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(
        count,
        b"POST /upload?model=unread HTTP/1.1\r\nHost: r\r\nContent-Type: audio/wav\r\n"
        b"Content-Length: %d\r\n\r\n" % LARGE,
    )
    setting.router.serving(count)
    for client in clients:
        client.fill()
    return clients


def with_many_requests_sent(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(count, completion(), completion(text="x" * 1000) * 90)
    setting.router.serving(count)
    return clients


def within_a_tunnel(setting: Setting, count: int) -> list[RawClient]:
    clients = setting.open(
        count,
        b"GET /realtime?model=m HTTP/1.1\r\nHost: r\r\nConnection: upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
    )
    for client in clients:
        assert client.read_answer().status == 101
    return clients


PHASES: list[Phase] = [
    before_anything,
    within_the_head,
    within_the_body,
    held_for_a_worker,
    while_connecting,
    before_the_answer,
    between_two_attempts,
    within_the_answer,
    without_reading,
    with_the_next_request_sent,
    after_the_answer,
    within_an_upload_nobody_reads,
    with_many_requests_sent,
    within_a_tunnel,
]


def _busy(setting: Setting) -> int:
    """How many requests were refused by a worker."""
    return sum(b" /busy" in request for w in setting.workers for request in w.requests)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_clients_that_leave_leave_nothing_behind(
    setting: Setting, phase: Phase
) -> None:
    """A thousand of them in all, by ending or by resetting their connections."""
    clients = phase(setting, -(-1000 // len(PHASES)))
    for number, client in enumerate(clients):
        # Behind bytes that nobody takes, an end in order cannot be seen by anybody.
        if number % 2 or phase is within_an_upload_nobody_reads:
            client.reset()
        else:
            client.close()
    setting.router.at_rest()
    setting.router.until(lambda: all(map(_told, setting.workers)), "each worker knows")


def _told(worker: RawWorker) -> bool:
    """Whether the worker knows of each request that is over before its time."""
    return all(
        each.ended
        or not each.requests
        or b" /quick" in each.requests[-1]
        or b" /busy" in each.requests[-1]
        for each in worker.connections
    )
