"""When a request goes to another worker."""

from __future__ import annotations

import pytest

from router.errors import BadWorkerResponse, RouterError, WorkerTimeout
from router.errors import WorkerUnreachable as Lost
from router.proxy.retry import Retries, RetryRules
from router.proxy.upstream import ConnectFailed


def rules(limit: int = 3, jitter: float = 0.0) -> RetryRules:
    return RetryRules(
        limit=limit,
        statuses=frozenset({500, 502, 503, 504}),
        initial_backoff=0.05,
        max_backoff=0.1,
        multiplier=1.5,
        jitter=jitter,
    )


REFUSED = ConnectFailed("refused", "connection refused")
LOST = Lost("lost")


def test_statuses_are_retried_up_to_the_limit_and_later_each_time() -> None:
    retries = Retries(rules(), ())
    delays = []
    while retries.after_status(503):
        delays.append(retries.delay)
    assert delays == pytest.approx([0.05, 0.075, 0.1])


def test_the_backoff_varies_by_its_jitter_and_no_more() -> None:
    for _ in range(100):
        retries = Retries(rules(jitter=0.2), ())
        retries.after_status(503)
        assert 0.04 <= retries.delay <= 0.06


def test_a_500_is_retried_once_since_the_request_may_be_its_cause() -> None:
    retries = Retries(rules(), ())
    assert retries.after_status(500)
    assert not retries.after_status(500)


@pytest.mark.parametrize("status", [200, 400, 404, 429, 501])
def test_other_answers_are_the_clients(status: int) -> None:
    assert not Retries(rules(), ()).after_status(status)


def test_failed_connects_go_on_at_once() -> None:
    retries = Retries(rules(), ())
    assert [retries.after_failure(REFUSED) for _ in range(4)] == [True] * 3 + [False]
    assert retries.delay == 0


def test_what_was_sent_and_lost_goes_to_one_other_worker_only() -> None:
    retries = Retries(rules(), ())
    assert retries.after_failure(LOST)
    assert not retries.after_failure(LOST)


def test_failed_connects_do_not_count_as_lost() -> None:
    retries = Retries(rules(), ())
    assert retries.after_failure(REFUSED)
    assert retries.after_failure(LOST)


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (WorkerTimeout("late"), False),
        (BadWorkerResponse("odd"), True),
        (RouterError("ours"), False),
    ],
)
def test_only_what_another_worker_may_do_better_is_retried(
    error: RouterError, retried: bool
) -> None:
    assert Retries(rules(), ()).after_failure(error) is retried


def test_a_limit_of_none_retries_nothing() -> None:
    retries = Retries(rules(limit=0), ())
    assert not retries.after_status(503)
    assert not retries.after_failure(REFUSED)
