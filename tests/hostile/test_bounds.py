"""Whatever clients do, the router's process holds a bounded amount for them.

A real process, so that its memory can be seen. Meanwhile others are served, and in the
end nothing is left.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

import pytest

from tests.hostile.crowd import MANY, Crowd, descriptors, rss
from tests.proxy.messages import completion, ok
from tests.support.http import RawClient, ask
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm
from tests.support.router_process import RouterProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MB = 1_000_000
HELLO = b"GET /hello HTTP/1.1\r\nHost: r\r\n\r\n"
LARGE = bytes(20 * MB)
CHUNK = b"10000\r\n%b\r\n" % bytes(65_536)
KINDS = {"held": b"application/json", "streamed": b"application/octet-stream"}


def behave(connection: RawConnection, request: bytes) -> None:
    """Answers; /large with more than any buffer takes."""
    body = LARGE if request.startswith(b"GET /large ") else b"{}"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.send(head, body)


@contextmanager
def router(*flags: str) -> Iterator[RouterProcess]:
    """A router that has served, before a worker that takes little into its buffers."""
    with (
        RawWorker(like_vllm("m", behave), receive=1 << 16) as worker,
        RouterProcess("--worker-urls", worker.url, *flags) as router,
    ):
        router.wait_ready(1)
        for _ in range(50):
            assert ask(router.port, completion()).status == 200
        yield router
        rest(router)


def sample(router: RouterProcess, name: str) -> float:
    """One metric; the connection that asks is one of the clients'."""
    text = str(router.get("/metrics")[1])
    match = re.search(rf"^fleetrouter_{name} (\S+)$", text, re.M)
    assert match is not None
    return float(match[1])


def until(router: RouterProcess, name: str, most: float) -> None:
    """Returns once a metric is so small."""
    deadline = monotonic() + 30
    while (found := sample(router, name)) > most:
        assert monotonic() < deadline, f"{name} stays {found}"
        sleep(0.02)


def rest(router: RouterProcess) -> None:
    """Nothing is left of anything."""
    until(router, "client_connections", 1)
    until(router, "requests_in_flight", 0)
    until(router, "buffered_bytes", 0)
    assert [worker["load"] for worker in router.workers()] == [0]
    assert ask(router.port, completion()).status == 200


def lines(router: RouterProcess) -> int:
    return len(str(router.get("/metrics")[1]).splitlines())


# --- connections --------------------------------------------------------------------


def test_5000_idle_connections_are_held_and_others_are_served() -> None:
    """Some before their first request, some after one."""
    with router() as running, descriptors(MANY):
        before = rss(running)
        with (
            Crowd(running.port, MANY // 2),
            Crowd(running.port, MANY // 2) as served,
            RawClient(running.port) as client,
        ):
            served.send(HELLO)
            assert {answer[:12] for answer in served.answers()} == {b"HTTP/1.1 200"}
            for _ in range(20):
                client.send(completion())
                assert client.read_answer().status == 200
            assert sample(running, "client_connections") >= MANY
            assert rss(running) - before < MANY * 10_000


def test_5000_dripping_heads_are_given_up_and_others_are_served() -> None:
    """They get no more time by dripping, and none of them reaches a worker."""
    with router("--header-timeout-secs", "3") as running, descriptors(MANY):
        before = rss(running)
        with (
            Crowd(running.port, MANY) as dripping,
            RawClient(running.port) as client,
        ):
            dripping.send(b"GET /hello HTTP/1.1\r\nHost: r\r\nX: ")
            for _ in range(5):
                dripping.send(b"x")
                client.send(completion())
                assert client.read_answer().status == 200
            assert rss(running) - before < MANY * 5_000
            assert {answer[:12] for answer in dripping.answers()} == {b"HTTP/1.1 408"}


# --- what clients send ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "more", "status"),
    [
        (b"GET /", b"x", 414),
        (b"GET / HTTP/1.1\r\nHost: r\r\nA: ", b"x", 431),
        (b"GET / HTTP/1.1\r\nHost: r\r\n", b"A: b\r\n", 431),
    ],
    ids=["a target", "a value", "fields"],
)
def test_a_head_without_end_is_held_no_further_than_64_kib(
    first: bytes, more: bytes, status: int
) -> None:
    with router() as running:
        before = rss(running)
        with RawClient(running.port) as client:
            client.send(first)
            for _ in range(200):
                client.send(more * (100_000 // len(more)))
            assert client.read_answer().status == status
            assert client.ended()
            assert rss(running) - before < 5 * MB


def test_200_heads_of_almost_64_kib_are_held_and_no_more() -> None:
    with router() as running:
        before = rss(running)
        with Crowd(running.port, 200) as crowd:
            crowd.send(b"GET / HTTP/1.1\r\nHost: r\r\nA: " + b"x" * 60_000)
            assert ask(running.port, completion()).status == 200
            assert rss(running) - before < 200 * 65_536 * 2


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_without_end_end_at_the_largest_body(kind: str) -> None:
    head = (
        b"POST /x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: %b\r\n\r\n" % KINDS[kind]
    )
    with router("--max-payload-size", str(4 * MB)) as running:
        before = rss(running)
        with RawClient(running.port) as client:
            client.send(head)
            for _ in range(300):
                client.send(CHUNK)
            assert client.read_answer(b"POST").status == 413
            assert client.ended()
            assert rss(running) - before < 4 * 4 * MB


def test_uploads_that_trickle_are_held_within_the_budget_of_all_bodies() -> None:
    """Past it they are refused; others are served, since their bodies fit."""
    head = (
        b"POST /x HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000000\r\n\r\n"
    )
    budget = ("--max-buffered-bytes", str(5 * MB))
    with router(*budget, "--header-timeout-secs", "2") as running:
        before = rss(running)
        with Crowd(running.port, 100) as crowd:
            crowd.send(head)
            for _ in range(10):
                crowd.send(b" " * 15_000)
                assert sample(running, "buffered_bytes") <= 5 * MB
            assert rss(running) - before < 3 * 5 * MB
            answers = [answer[:12] for answer in crowd.answers()]
            assert set(answers) == {b"HTTP/1.1 408", b"HTTP/1.1 503"}
            assert ask(running.port, completion()).status == 200


def test_an_upload_that_the_worker_does_not_read_is_held_back() -> None:
    hold = threading.Event()

    def deaf(connection: RawConnection, request: bytes) -> None:
        connection.send(ok())

    def script(connection: RawConnection) -> None:
        connection.read_until(b"\r\n\r\n")
        hold.wait(20)

    with (
        RawWorker(like_vllm("m", deaf), receive=1 << 16) as worker,
        RouterProcess("--worker-urls", worker.url) as running,
    ):
        running.wait_ready(1)
        worker.script = script
        before = rss(running)
        clients = [RawClient(running.port, receive=1 << 16) for _ in range(10)]
        for client in clients:
            client.send(
                b"POST /x HTTP/1.1\r\nHost: r\r\nContent-Length: 100000000\r\n\r\n"
            )
            assert client.fill() < 30 * MB
        assert rss(running) - before < 10 * 2 * MB
        for client in clients:
            client.close()
        hold.set()


# --- what clients do not read -------------------------------------------------------


def test_answers_that_nobody_reads_are_held_back_at_their_workers() -> None:
    with router() as running:
        before = rss(running)
        with Crowd(running.port, 30, receive=1 << 16) as crowd:
            crowd.send(b"GET /large HTTP/1.1\r\nHost: r\r\n\r\n")
            assert {answer[:12] for answer in crowd.answers()} == {b"HTTP/1.1 200"}
            for _ in range(20):
                assert ask(running.port, completion()).status == 200
            assert [worker["load"] for worker in running.workers()] == [30]
            assert rss(running) - before < 30 * MB


# --- names that clients make up -----------------------------------------------------


def test_1000_models_paths_and_methods_make_no_series_and_no_memory() -> None:
    with router() as running, RawClient(running.port) as client:
        client.send(completion("x"))
        client.read_answer()
        shown, before = lines(running), rss(running)
        for number in range(1000):
            client.send(completion(f"model-{number}"))
            assert client.read_answer().status == 404
            client.send(
                b"M%d /path/%d?q=%d HTTP/1.1\r\nHost: r\r\n\r\n"
                % (number, number, number)
            )
            assert client.read_answer().status == 200
        # The class of the answers to requests without a model is new.
        assert lines(running) <= shown + 1
        assert rss(running) - before < 3 * MB


def test_100_000_sessions_make_no_memory() -> None:
    """consistent_hash keeps no table of them."""

    def ask_all(crowd: Crowd, keys: range) -> None:
        for start in keys[::800]:
            asked = [
                b"GET /x HTTP/1.1\r\nHost: r\r\nX-Session-ID: s%d\r\n\r\n" % key
                for key in range(start, start + 800)
            ]
            crowd.send_each([b"".join(asked[n::8]) for n in range(8)])
            assert crowd.count(b"HTTP/1.1 200 ", 800) == 800

    with (
        RawWorker(like_vllm("m", behave)) as worker,
        RouterProcess(
            *("--worker-urls", worker.url, "--policy", "consistent_hash")
        ) as running,
        Crowd(running.port, 8) as crowd,
    ):
        running.wait_ready(1)
        worker.script = count_only
        ask_all(crowd, range(8_000))
        before = rss(running)
        ask_all(crowd, range(8_000, 108_000))
        assert rss(running) - before < 3 * MB


def count_only(connection: RawConnection) -> None:
    """Answers so many requests as heads end, and keeps nothing of them."""
    rest = b""
    while data := connection.read_some():
        connection.drop(len(data))
        rest += data
        connection.send(ok() * rest.count(b"\r\n\r\n"))
        rest = rest[-3:]
