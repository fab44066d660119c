"""How a router ends: what it has begun it finishes, and it takes nothing new."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from time import monotonic, sleep

import pytest

from router.proxy import server
from tests.proxy.messages import LAST, STREAM, answer_of, completion, event, ok
from tests.proxy.running import PATIENCE, deaf, running
from tests.support.http import RawClient
from tests.support.ports import free_port
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm, saying
from tests.support.router_process import RouterProcess


class Slow:
    """Begins a stream, and ends it when it is told to."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def __call__(self, connection: RawConnection, request: bytes) -> None:
        connection.send(STREAM, event("token"))
        self.end.wait(PATIENCE)
        connection.send(event("the last one"), LAST)


def begin(port: int) -> RawClient:
    """A client whose stream has begun."""
    client = RawClient(port, timeout=PATIENCE)
    client.send(completion())
    assert b"200 OK" in client.read_some()
    return client


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionError:
        return True
    return False


def exit_code(router: RouterProcess) -> int:
    deadline = monotonic() + PATIENCE
    while (code := router.poll()) is None:
        assert monotonic() < deadline, "it did not end"
        sleep(0.01)
    return code


def test_a_draining_router_says_so_first_and_then_takes_no_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Balancers see /readiness at 503 while requests they send are still served."""
    monkeypatch.setattr(server, "DRAIN_GRACE_SECONDS", 1.5)
    slow = Slow()
    with (
        RawWorker(like_vllm("m", slow)) as worker,
        RawWorker(like_vllm("n", saying(ok()))) as other,
        running(worker, other) as router,
        begin(router.port) as client,
        router.client() as idle,
    ):
        assert router.call("GET", "/readiness")[0] == 200
        drained = router.drain()
        router.until(lambda: router.call("GET", "/readiness")[0] == 503, "it says so")
        assert router.call("GET", "/liveness")[0] == 200
        assert router.ask(completion("n")).status == 200
        router.until(lambda: refuses(router.port), "no new connections")
        assert idle.ended()
        assert not drained.done()
        slow.end.set()
        assert b"the last one" in client.read_all()
        drained.result(PATIENCE)


def test_a_request_that_waits_for_a_worker_is_finished_too() -> None:
    port = free_port()
    with (
        running(flags=("--hold-timeout-secs", "60")) as router,
        router.client() as client,
    ):
        router.call("POST", "/workers", {"url": f"http://127.0.0.1:{port}"})
        client.send(completion())
        router.until(lambda: router.sample("hold_waiting") == 1, "it waits")
        drained = router.drain()
        router.until(lambda: refuses(router.port), "no new connections")
        with RawWorker(like_vllm("m", saying(ok(b"late"))), port=port):
            answer = client.read_answer()
            assert answer.body == b"late"
            assert answer.header(b"connection") == b"close"
            drained.result(PATIENCE)


def test_a_signal_lets_streams_finish_and_the_exit_code_is_0() -> None:
    slow = Slow()
    with RawWorker(like_vllm("m", slow)) as worker:
        router = RouterProcess("--worker-urls", worker.url)
        router.start()
        try:
            router.wait_ready(1)
            with begin(router.port) as client:
                os.kill(router.pid, signal.SIGTERM)
                deadline = monotonic() + PATIENCE
                while not refuses(router.port):
                    assert monotonic() < deadline
                slow.end.set()
                got = client.read_all()
                assert b"the last one" in got
                assert got.endswith(LAST)
            assert exit_code(router) == 0
        finally:
            router.kill()


def test_a_second_signal_ends_it_at_once() -> None:
    """Even while an admin call waits for a worker that never comes."""
    slow = Slow()
    with RawWorker(like_vllm("m", slow)) as worker:
        router = RouterProcess("--worker-urls", worker.url)
        router.start()
        try:
            router.wait_ready(1)
            with begin(router.port) as client, RawClient(router.port) as admin:
                url = f"http://127.0.0.1:{free_port()}"
                admin.send(
                    f"POST /add_worker?url={url} HTTP/1.1\r\nHost: r\r\n\r\n".encode()
                )
                os.kill(router.pid, signal.SIGINT)
                deadline = monotonic() + PATIENCE
                while not refuses(router.port):
                    assert monotonic() < deadline
                os.kill(router.pid, signal.SIGTERM)
                assert exit_code(router) == 1
                assert not client.read_all().endswith(LAST)
        finally:
            router.kill()
            slow.end.set()


def test_what_does_not_finish_in_time_is_cut_and_the_exit_code_is_0() -> None:
    slow = Slow()
    with RawWorker(like_vllm("m", slow)) as worker:
        flags = ("--worker-urls", worker.url, "--drain-timeout-secs", "0.2")
        router = RouterProcess(*flags)
        router.start()
        try:
            router.wait_ready(1)
            with begin(router.port) as client:
                os.kill(router.pid, signal.SIGTERM)
                assert not client.read_all().endswith(LAST)
            assert exit_code(router) == 0
            assert "did not finish in time" in router.logs()
        finally:
            router.kill()
            slow.end.set()


@pytest.mark.parametrize("flag", ["--port", "--prometheus-port"])
def test_a_port_that_is_taken_is_said_and_the_exit_code_is_2(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "router", "serve", "--port", "0"]
        ended = subprocess.run(
            [*command, flag, number], capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 2
        assert "in use" in ended.stderr
        assert number in ended.stderr
        assert "Traceback" not in ended.stderr


def test_an_address_that_is_not_ours_is_said_and_the_exit_code_is_2() -> None:
    command = [sys.executable, "-m", "router", "serve", "--port", "0"]
    ended = subprocess.run(
        [*command, "--host", "192.0.2.1"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert "192.0.2.1" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_one_that_is_ended_amid_requests_of_all_kinds_fails_nowhere() -> None:
    """`running` sees to that: no error is logged, no exception goes unhandled."""

    def silent(connection: RawConnection, request: bytes) -> None:
        connection.read_all()

    flags = (
        *("--hold-timeout-secs", "60", "--retry-initial-backoff-ms", "600000"),
        *("--retry-max-backoff-ms", "600000", "--connect-timeout-secs", "60"),
    )
    with ExitStack() as stack:
        silents = stack.enter_context(RawWorker(like_vllm("silent", silent)))
        busy = [
            stack.enter_context(RawWorker(like_vllm("busy", saying(answer_of(503)))))
            for _ in range(2)
        ]
        router = stack.enter_context(running(silents, *busy, flags=flags))
        url = f"http://127.0.0.1:{free_port()}"
        router.call("POST", "/workers", {"url": url})
        stack.enter_context(deaf(router))
        for request in (
            completion("silent"),
            completion("busy"),
            completion("deaf"),
            completion("unknown"),
            completion()[:-1],
            b"GET /",
            f"POST /add_worker?url={url} HTTP/1.1\r\nHost: r\r\n\r\n".encode(),
        ):
            stack.enter_context(router.client()).send(request)
        router.until(lambda: router.sample("requests_in_flight") == 5, "all are there")
        # Before its clients close.
        router.stop()
