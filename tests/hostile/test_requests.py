"""A corpus of hostile requests before a router with a worker that writes down.

For each of them: the statuses that are expected and no others; the worker saw exactly
the requests that are expected, each well formed in the eyes of another parser; the
connection goes on or ends as expected; and another client, whose connection was there
all the time, is served as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.hostile.bodies import BODIES, WAITING
from tests.hostile.case import Case, Seen
from tests.hostile.heads import HEADS
from tests.hostile.recorder import Recorder
from tests.proxy.running import Running, running
from tests.support.http import RawClient
from tests.support.raw_worker import RawWorker

CORPUS = [
    pytest.param(case, id=f"{family}: {case.name}")
    for family, cases in (HEADS | BODIES).items()
    for case in cases
]
ALIVE = b"GET /alive HTTP/1.1\r\nHost: r\r\n\r\n"
NEIGHBOUR = b"GET /neighbour HTTP/1.1\r\nHost: r\r\n\r\n"
#: Longer ones are sent in one piece only.
MOST_IN_PIECES = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where the corpus is sent to."""

    router: Running
    recorder: Recorder
    neighbour: RawClient


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    recorder = Recorder()
    with (
        RawWorker(recorder) as worker,
        running(worker) as router,
        router.client() as neighbour,
    ):
        yield Place(router, recorder, neighbour)
        router.at_rest(neighbour)
        assert recorder.take() == []
    assert recorder.wrong == []


def test_the_corpus_is_large_and_no_case_stands_twice() -> None:
    requests = [case.data for cases in (HEADS | BODIES).values() for case in cases]
    assert len(requests) >= 120
    assert len(requests) == len(set(requests))


@pytest.mark.parametrize("case", CORPUS)
def test_a_hostile_request_is_answered_as_expected_and_harms_nobody(
    place: Place, case: Case
) -> None:
    check(place, case, case.data)
    # Who asked for the end of the connection and sends on may be reset meanwhile.
    asked_to_end = not case.lives and case.statuses[-1] == 200
    if len(case.data) <= MOST_IN_PIECES and not asked_to_end:
        pieces = [case.data[at : at + 7] for at in range(0, len(case.data), 7)]
        check(place, case, *pieces)
    assert place.recorder.wrong == []


def check(place: Place, case: Case, *pieces: bytes) -> None:
    place.recorder.take()
    with place.router.client() as client:
        client.send(*pieces)
        assert statuses(client, case) == list(case.statuses)
        expected = list(case.seen)
        if case.lives:
            client.send(ALIVE)
            assert client.read_answer().body == b"/alive"
            expected.append(Seen(b"/alive"))
        else:
            assert client.ended()
    place.neighbour.send(NEIGHBOUR)
    assert place.neighbour.read_answer().body == b"/neighbour"
    expected.append(Seen(b"/neighbour"))
    assert place.recorder.take() == expected


def statuses(client: RawClient, case: Case) -> list[int]:
    """The answers' statuses; an answer of the worker's is that of its request."""
    targets = [seen.target for seen in case.seen]
    found = []
    for number in range(len(case.statuses)):
        first = number == 0
        method = b"HEAD" if first and case.data.startswith(b"HEAD ") else b"GET"
        answer = client.read_answer(method)
        assert answer.complete
        if answer.header(b"x-router-worker"):
            assert answer.body == targets.pop(0)
        found.append(answer.status)
    assert targets == []
    return found


def test_a_request_that_never_becomes_whole_is_given_up_and_reaches_no_worker() -> None:
    recorder = Recorder()
    with (
        RawWorker(recorder) as worker,
        running(worker, flags=("--header-timeout-secs", "0.3")) as router,
    ):
        clients = [router.client() for _ in WAITING]
        for client, case in zip(clients, WAITING, strict=True):
            client.send(case.data)
        for client, case in zip(clients, WAITING, strict=True):
            with client:
                assert statuses(client, case) == list(case.statuses), case.name
                assert client.ended()
        router.at_rest()
        assert (recorder.seen, recorder.wrong) == ([], [])
