"""Connections to workers are used again, and one that died meanwhile is no failure."""

from __future__ import annotations

import json

from tests.proxy.messages import completion, ok
from tests.proxy.running import running
from tests.support.http import post
from tests.support.raw_worker import (
    RawConnection,
    RawWorker,
    body_of,
    like_vllm,
    saying,
)


def test_requests_one_after_the_other_go_over_one_connection() -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        for _ in range(20):
            client.send(completion())
            assert client.read_answer().status == 200
        used = [each for each in worker.connections if each.requests]
        assert [len(each.requests) for each in used] == [20]


def test_pipelined_requests_are_answered_in_order() -> None:
    def echo(connection: RawConnection, request: bytes) -> None:
        connection.send(ok(body_of(request)))

    bodies = [json.dumps({"model": "m", "n": n}).encode() for n in range(50)]
    with (
        RawWorker(like_vllm("m", echo)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(b"".join(post("/v1/completions", body) for body in bodies))
        assert [client.read_answer().body for _ in bodies] == bodies


def test_a_pooled_connection_that_died_is_no_failure_and_no_retry() -> None:
    """The worker closes each connection after its answer without saying so before."""

    def once(connection: RawConnection, request: bytes) -> None:
        if len(connection.requests) > 1:
            connection.close()
        else:
            connection.send(ok(b"well"))

    with (
        RawWorker(like_vllm("m", once)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        for _ in range(6):
            client.send(completion())
            assert client.read_answer().body == b"well"
        router.at_rest(client)
        samples = router.samples()
        assert samples["resends_total"] == 5
        assert not [
            name
            for name, value in samples.items()
            if name.startswith(("upstream_errors_total", "retries_total")) and value
        ]


def test_a_fresh_connection_that_dies_is_not_tried_again_on_the_same_worker() -> None:
    def never(connection: RawConnection, request: bytes) -> None:
        connection.close()

    with RawWorker(like_vllm("m", never)) as worker, running(worker) as router:
        assert router.ask(completion()).status == 502
        assert len(worker.requests) == 1


def test_a_request_that_kills_workers_takes_down_two_at_most() -> None:
    """Over reused connections, too: death looks like an idle connection closed."""

    def deadly(worker: list[RawWorker]) -> RawWorker:
        def die(connection: RawConnection, request: bytes) -> None:
            if b"poison" in request:
                worker[0].refuse()
                connection.reset()
            else:
                connection.send(ok())

        made = RawWorker(like_vllm("m", die))
        worker.append(made)
        return made

    boxes: list[list[RawWorker]] = [[] for _ in range(5)]
    with (
        deadly(boxes[0]) as a,
        deadly(boxes[1]) as b,
        deadly(boxes[2]) as c,
        deadly(boxes[3]) as d,
        deadly(boxes[4]) as e,
    ):
        workers = (a, b, c, d, e)
        with running(*workers, flags=("--policy", "round_robin")) as router:
            for _ in range(10):
                assert router.ask(completion()).status == 200
            assert router.ask(completion(text="poison")).status == 502
            killed = [w for w in workers if any(b"poison" in r for r in w.requests)]
            assert len(killed) == 2
