"""A request that one worker fails goes to another one, when that may help."""

from __future__ import annotations

import logging

import pytest

from tests.proxy.messages import PATH, answer_of, code_of, completion, ok
from tests.proxy.running import deaf, running
from tests.support.raw_worker import (
    Exchange,
    RawConnection,
    RawWorker,
    like_vllm,
    saying,
)

#: No waiting between attempts.
FAST = ("--retry-initial-backoff-ms", "0")


def lose(connection: RawConnection, request: bytes) -> None:
    """Takes the request and ends the connection without a byte."""
    connection.reset()


def worker(say: bytes | Exchange, *, model: str = "m") -> RawWorker:
    return RawWorker(like_vllm(model, saying(say) if isinstance(say, bytes) else say))


def test_a_worker_that_refuses_is_passed_over_at_once_and_is_out_at_once() -> None:
    with (
        worker(ok(b"1")) as first,
        worker(ok(b"2")) as second,
        running(first, second) as router,
    ):
        first.refuse()
        answers = [router.ask(completion()) for _ in range(8)]
        assert [answer.body for answer in answers] == [b"2"] * 8
        assert {w["base_url"]: w["status"] for w in router.workers()} == {
            first.url: "unhealthy",
            second.url: "ready",
        }
        router.at_rest()
        assert router.sample('retries_total{reason="connect"}') == 1
        assert router.sample('upstream_errors_total{kind="refused"}') == 1


def test_a_worker_that_refuses_is_out_though_there_is_no_other() -> None:
    with worker(ok()) as only, running(only) as router:
        only.refuse()
        answer = router.ask(completion())
        assert (answer.status, code_of(answer.body)) == (502, "worker_unreachable")
        answer = router.ask(completion())
        assert (answer.status, code_of(answer.body)) == (503, "no_available_workers")
        assert answer.header(b"retry-after") == b"1"
        assert router.sample('upstream_errors_total{kind="refused"}') == 1
        assert router.sample('retries_total{reason="connect"}') == 0


def test_a_request_that_was_sent_and_lost_goes_to_one_other_worker_only() -> None:
    with (
        worker(lose) as a,
        worker(lose) as b,
        worker(lose) as c,
        running(a, b, c, flags=FAST) as router,
    ):
        answer = router.ask(completion())
        assert (answer.status, code_of(answer.body)) == (502, "worker_unreachable")
        assert len(a.requests + b.requests + c.requests) == 2
        router.at_rest()
        assert router.sample('retries_total{reason="lost"}') == 1
        assert router.sample('upstream_errors_total{kind="lost"}') == 2


def test_the_access_log_tells_how_often_a_worker_was_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "router.access")
    flags = (*FAST, "--access-log")
    with (
        worker(lose) as a,
        worker(lose) as b,
        worker(lose) as c,
        running(a, b, c, flags=flags) as router,
    ):
        assert router.ask(completion("x")).status == 404
        assert router.ask(completion()).status == 502
        router.at_rest()
    lines = [vars(record) for record in caplog.records if record.msg == "request"]
    lines = [line for line in lines if line["path"] == PATH]
    assert [(line["status"], line["attempts"]) for line in lines] == [
        (404, 0),
        (502, 2),
    ]


def test_a_request_that_was_lost_is_answered_by_another_worker() -> None:
    with (
        worker(lose) as bad,
        worker(ok(b"well")) as good,
        running(bad, good) as router,
    ):
        assert {router.ask(completion()).body for _ in range(8)} == {b"well"}
        assert bad.requests
        assert {w["status"] for w in router.workers()} == {"ready"}


def test_half_an_answer_head_is_as_good_as_none_and_no_worker_dies_of_it() -> None:
    def half(connection: RawConnection, request: bytes) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Le")
        connection.close()

    with (
        worker(half) as a,
        worker(half) as b,
        worker(half) as c,
        running(a, b, c, flags=FAST) as router,
    ):
        answer = router.ask(completion())
        assert answer.status == 502
        assert len(a.requests + b.requests + c.requests) == 2
        router.at_rest()


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_answer_that_another_worker_may_do_better_is_retried(status: int) -> None:
    with (
        worker(answer_of(status)) as bad,
        worker(ok(b"well")) as good,
        running(bad, good, flags=FAST) as router,
    ):
        answers = [router.ask(completion()) for _ in range(12)]
        assert [answer.body for answer in answers] == [b"well"] * 12
        assert bad.requests
        router.at_rest()
        retried = router.sample('retries_total{reason="status"}')
        assert retried == len(bad.requests)


@pytest.mark.parametrize("status", [301, 307, 400, 404, 422, 429, 501])
def test_any_other_answer_passes_unchanged(status: int) -> None:
    said = answer_of(status, b"mine", b"Location: http://elsewhere/", b"Retry-After: 7")
    with worker(said) as a, worker(said) as b, running(a, b) as router:
        answer = router.ask(completion())
        assert (answer.status, answer.body) == (status, b"mine")
        assert answer.header(b"location") == b"http://elsewhere/"
        assert answer.header(b"retry-after") == b"7"
        assert len(a.requests + b.requests) == 1


def test_a_500_is_retried_once_since_the_request_may_be_its_cause() -> None:
    said = answer_of(500, b"mine")
    with (
        worker(said) as a,
        worker(said) as b,
        worker(said) as c,
        running(a, b, c, flags=FAST) as router,
    ):
        answer = router.ask(completion())
        assert (answer.status, answer.body) == (500, b"mine")
        assert len(a.requests + b.requests + c.requests) == 2


def test_no_worker_is_tried_twice_and_the_last_answer_passes() -> None:
    said = answer_of(503, b"busy")
    with (
        worker(said) as a,
        worker(said) as b,
        running(a, b, flags=(*FAST, "--retry-max-retries", "9")) as router,
    ):
        answer = router.ask(completion())
        assert (answer.status, answer.body) == (503, b"busy")
        assert (len(a.requests), len(b.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("flags", "attempts"),
    [
        (("--retry-max-retries", "0"), 1),
        ((*FAST, "--retry-max-retries", "2"), 3),
        (("--disable-retries",), 1),
    ],
)
def test_there_are_no_more_attempts_than_allowed(
    flags: tuple[str, ...], attempts: int
) -> None:
    said = answer_of(503, b"busy")
    with (
        worker(said) as a,
        worker(said) as b,
        worker(said) as c,
        worker(said) as d,
        running(a, b, c, d, flags=flags) as router,
    ):
        assert router.ask(completion()).body == b"busy"
        tried = [w for w in (a, b, c, d) if w.requests]
        assert len(tried) == attempts


def test_statuses_that_are_not_named_are_not_retried() -> None:
    with (
        worker(answer_of(503, b"busy")) as a,
        worker(answer_of(503, b"busy")) as b,
        running(a, b, flags=("--retry-statuses", "500")) as router,
    ):
        assert router.ask(completion()).body == b"busy"
        assert len(a.requests + b.requests) == 1


def test_the_only_worker_s_own_answer_passes_unchanged() -> None:
    said = answer_of(503, b'{"error": "engine busy"}', b"X-Mine: 1")
    with worker(said) as only, running(only) as router:
        answer = router.ask(completion())
        assert (answer.status, answer.body) == (503, b'{"error": "engine busy"}')
        assert answer.header(b"x-mine") == b"1"
        assert len(only.requests) == 1


def test_a_request_that_took_too_long_is_not_tried_elsewhere() -> None:
    def silent(connection: RawConnection, request: bytes) -> None:
        connection.read_all()

    with (
        worker(silent) as a,
        worker(silent) as b,
        running(a, b, flags=("--request-timeout-secs", "0.3")) as router,
    ):
        answer = router.ask(completion())
        assert (answer.status, code_of(answer.body)) == (504, "worker_timeout")
        assert len(a.requests + b.requests) == 1
        router.at_rest()
        assert router.sample('upstream_errors_total{kind="timeout"}') == 1


def test_all_attempts_share_one_deadline() -> None:
    """Each of the two attempts would be in time if it had a deadline of its own."""
    said = answer_of(503, b"busy")
    with (
        worker(saying(said[:9], said[9:], delay=1.2)) as a,
        worker(saying(said[:9], said[9:], delay=1.2)) as b,
        running(a, b, flags=(*FAST, "--request-timeout-secs", "2")) as router,
    ):
        answer = router.ask(completion())
        assert (answer.status, code_of(answer.body)) == (504, "worker_timeout")


def test_a_deadline_that_passes_while_connecting_is_one_all_the_same() -> None:
    with running(flags=("--request-timeout-secs", "0.3")) as router, deaf(router):
        answer = router.ask(completion("deaf"))
        assert (answer.status, code_of(answer.body)) == (504, "worker_timeout")
        router.at_rest()


def test_a_worker_that_cannot_be_reached_in_time_is_passed_over() -> None:
    with (
        worker(ok(b"well")) as good,
        running(good, flags=("--connect-timeout-secs", "0.2")) as router,
        deaf(router, "m"),
    ):
        router.until(
            lambda: (
                router.ask(completion()).body == b"well"
                and router.sample('retries_total{reason="connect"}') > 0
            ),
            "it was tried and passed over",
        )
        assert router.sample('upstream_errors_total{kind="connect_timeout"}') > 0
        router.at_rest()


def test_a_worker_may_be_removed_while_a_request_waits_for_its_connection() -> None:
    with (
        worker(ok(b"well")) as good,
        running(flags=("--connect-timeout-secs", "2")) as router,
        deaf(router, "m"),
        router.client() as client,
    ):
        client.send(completion())
        router.serving(1)
        router.call("DELETE", f"/workers/{router.workers()[0]['id']}")
        router.call("POST", "/workers", {"url": good.url})
        router.ready(1)
        assert client.read_answer().body == b"well"
        router.at_rest(client)


def test_there_is_no_backoff_that_ends_past_the_deadline() -> None:
    said = answer_of(503, b"busy")
    flags = (
        *("--request-timeout-secs", "20"),
        *("--retry-initial-backoff-ms", "3600000"),
        *("--retry-max-backoff-ms", "3600000"),
    )
    with worker(said) as a, worker(said) as b, running(a, b, flags=flags) as router:
        assert router.ask(completion()).body == b"busy"
        assert len(a.requests + b.requests) == 1


def test_a_large_stream_goes_to_another_worker_while_none_of_it_was_sent() -> None:
    body = bytes(range(256)) * 1024
    head = (
        b"POST /upload HTTP/1.1\r\nHost: r\r\nContent-Type: audio/wav\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    with worker(ok()) as a, worker(ok(b"well")) as b, running(a, b) as router:
        a.refuse()
        answers = {router.ask(head, body).body for _ in range(6)}
        assert answers == {b"well"}
        assert all(request.endswith(body) for request in b.requests)
        router.at_rest()


def test_garbage_instead_of_an_answer_goes_to_one_other_worker() -> None:
    with (
        worker(b"SSH-2.0-OpenSSH_9.2\r\n\r\n") as bad,
        worker(ok(b"well")) as good,
        running(bad, good) as router,
    ):
        assert {router.ask(completion()).body for _ in range(40)} == {b"well"}
        assert bad.requests
        assert router.sample('upstream_errors_total{kind="bad_response"}')


def test_a_model_that_vanishes_meanwhile_leaves_the_answer_that_is_there() -> None:
    """The other worker is asked for while the fleet changes under the request."""
    with worker(lambda c, r: None) as only, running(only) as router:

        def leave(connection: RawConnection, request: bytes) -> None:
            router.call("DELETE", f"/workers/{router.id_of(only)}")
            connection.send(answer_of(503, b"mine"))

        only.script = like_vllm("m", leave)
        answer = router.ask(completion())
        assert (answer.status, answer.body) == (503, b"mine")
        router.at_rest()
