"""Requests that no worker can take now wait for one, where waiting is on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.proxy.messages import answer_of, code_of, completion, ok
from tests.proxy.running import PATIENCE, Running, running
from tests.support.http import RawClient
from tests.support.ports import free_port
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm, saying

HOLD = ("--hold-timeout-secs", "60")


def held(router: Running, count: int) -> None:
    router.until(lambda: router.sample("hold_waiting") == count, f"{count} are held")


def begun(router: Running, count: int) -> None:
    router.until(
        lambda: router.sample("requests_in_flight") == count, f"{count} have begun"
    )


@contextmanager
def clients(router: Running, count: int) -> Iterator[list[RawClient]]:
    opened = [router.client() for _ in range(count)]
    try:
        yield opened
    finally:
        for client in opened:
            client.close()


def test_a_request_waits_for_the_worker_that_is_coming() -> None:
    port = free_port()
    with running(flags=HOLD) as router, clients(router, 3) as waiting:
        router.call("POST", "/workers", {"url": f"http://127.0.0.1:{port}"})
        for client in waiting:
            client.send(completion())
        held(router, 3)
        with RawWorker(like_vllm("m", saying(ok(b"here"))), port=port):
            assert [client.read_answer().body for client in waiting] == [b"here"] * 3
            router.at_rest(*waiting)
            assert router.sample("held_total") == 3


def test_a_request_waits_for_a_worker_that_is_away() -> None:
    """The one that found it away waits, too: no worker has seen it."""
    with RawWorker(like_vllm("m", saying(ok()))) as worker:
        port = worker.port
        with running(worker, flags=HOLD) as router, clients(router, 2) as waiting:
            worker.refuse()
            for client in waiting:
                client.send(completion())
            held(router, 2)
            with RawWorker(like_vllm("m", saying(ok(b"back"))), port=port):
                answers = [client.read_answer() for client in waiting]
                assert [answer.body for answer in answers] == [b"back"] * 2
                router.at_rest(*waiting)


def test_waiting_has_an_end() -> None:
    with running(flags=("--hold-timeout-secs", "0.2")) as router:
        router.call("POST", "/workers", {"url": f"http://127.0.0.1:{free_port()}"})
        answer = router.ask(completion())
        assert (answer.status, code_of(answer.body)) == (503, "no_available_workers")
        assert answer.header(b"retry-after") == b"1"
        router.at_rest()
        assert router.sample("hold_timeouts_total") == 1


def test_no_more_wait_than_may() -> None:
    flags = (*HOLD, "--hold-queue-size", "2")
    with running(flags=flags) as router, clients(router, 2) as waiting:
        router.call("POST", "/workers", {"url": f"http://127.0.0.1:{free_port()}"})
        for client in waiting:
            client.send(completion())
        held(router, 2)
        answer = router.ask(completion())
        assert (answer.status, code_of(answer.body)) == (503, "no_available_workers")
        assert router.sample("hold_rejections_total") == 1
        waiting[0].close()
        held(router, 1)


def test_a_request_whose_model_turns_out_not_to_be_there_is_told_so() -> None:
    port = free_port()
    with running(flags=HOLD) as router, clients(router, 1) as (client,):
        router.call("POST", "/workers", {"url": f"http://127.0.0.1:{port}"})
        client.send(completion())
        held(router, 1)
        with RawWorker(like_vllm("other", saying(ok())), port=port):
            answer = client.read_answer()
            assert (answer.status, code_of(answer.body)) == (404, "model_not_found")
            router.at_rest(client)


class Gate:
    """A worker that answers one request for each time it is let."""

    def __init__(self) -> None:
        self._turn = threading.Semaphore(0)
        #: Requests that it has at once, at most.
        self.most = self._now = 0
        self.order: list[bytes] = []
        self._lock = threading.Lock()

    def let(self, count: int = 1) -> None:
        self._turn.release(count)

    def __call__(self, connection: RawConnection, request: bytes) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.order.append(request.rpartition(b'"n": "')[2][:1])
        assert self._turn.acquire(timeout=PATIENCE)
        with self._lock:
            self._now -= 1
        connection.send(ok())


@contextmanager
def limited(gate: Gate, limit: int) -> Iterator[Running]:
    """A worker of `m` that takes so many requests at once."""
    with RawWorker(like_vllm("m", gate)) as worker, running(flags=HOLD) as router:
        body = {"url": worker.url, "max_concurrency": limit}
        router.call("POST", "/workers", body)
        router.ready(1)
        yield router


def test_a_worker_that_is_full_is_waited_for_in_order() -> None:
    gate = Gate()
    with limited(gate, 1) as router, clients(router, 5) as waiting:
        for number, client in enumerate(waiting):
            client.send(completion(n=str(number)))
            begun(router, number + 1)
        held(router, 4)
        gate.let(5)
        assert [client.read_answer().status for client in waiting] == [200] * 5
        assert gate.order == [b"0", b"1", b"2", b"3", b"4"]
        assert gate.most == 1
        router.at_rest(*waiting)


def test_one_who_comes_later_does_not_get_in_before_those_who_wait() -> None:
    gate = Gate()
    with limited(gate, 1) as router, clients(router, 3) as (first, second, third):
        first.send(completion(n="1"))
        router.serving(1)
        second.send(completion(n="2"))
        held(router, 1)
        gate.let()
        # In the same turn as the slot becomes free there is one more who wants it.
        third.send(completion(n="3"))
        gate.let(2)
        for client in (first, second, third):
            assert client.read_answer().status == 200
        assert gate.order == [b"1", b"2", b"3"]


def test_one_who_leaves_the_queue_takes_no_turn_with_it() -> None:
    gate = Gate()
    with limited(gate, 1) as router, clients(router, 4) as waiting:
        waiting[0].send(completion(n="0"))
        router.serving(1)
        for client in waiting[1:]:
            client.send(completion(n="x"))
        held(router, 3)
        waiting[1].close()
        held(router, 2)
        waiting[2].reset()
        gate.let(2)
        assert waiting[3].read_answer().status == 200
        router.at_rest(waiting[0], waiting[3])


def test_those_of_another_model_do_not_stand_in_the_way() -> None:
    gate = Gate()
    with limited(gate, 1) as router, clients(router, 3) as (other, first, second):
        router.call("POST", "/workers", {"url": f"http://127.0.0.1:{free_port()}"})
        first.send(completion(n="1"))
        router.serving(1)
        other.send(completion("some other"))
        held(router, 1)
        second.send(completion(n="2"))
        held(router, 2)
        gate.let(2)
        assert first.read_answer().status == 200
        assert second.read_answer().status == 200
        held(router, 1)


def test_a_body_that_streams_waits_without_being_read() -> None:
    size = 30_000_000
    port = free_port()
    with running(flags=HOLD) as router, clients(router, 1) as (client,):
        router.call("POST", "/workers", {"url": f"http://127.0.0.1:{port}"})
        client.send(
            b"POST /x HTTP/1.1\r\nHost: r\r\nContent-Type: audio/wav\r\n"
            b"Content-Length: %d\r\n\r\n" % size
        )
        held(router, 1)
        sent = client.fill()
        assert sent < size // 2
        assert router.sample("buffered_bytes") < 1_000_000
        with RawWorker(like_vllm("m", saying(ok(b"here"))), port=port) as worker:
            client.send(bytes(size - sent))
            assert client.read_answer().body == b"here"
            assert len(worker.requests[0]) > size


def test_a_backoff_counts_on_no_worker() -> None:
    """The one to be asked next is free for others meanwhile."""
    flags = ("--retry-initial-backoff-ms", "600000", "--retry-max-backoff-ms", "600000")
    with (
        RawWorker(like_vllm("m", saying(answer_of(503)))) as a,
        RawWorker(like_vllm("m", saying(answer_of(503)))) as b,
        running(a, b, flags=flags) as router,
        clients(router, 1) as (client,),
    ):
        client.send(completion())
        router.until(lambda: len(a.requests + b.requests) == 1, "one has refused it")
        router.until(
            lambda: sorted(w["load"] for w in router.workers()) == [0, 1],
            "only the one that refused is counted",
        )
