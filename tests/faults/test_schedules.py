"""Whatever the network does between router and workers, and whenever.

After each schedule: every client got an answer or was told that it broke off, no byte
of it was another's, nothing is counted or held any more, and each connection that the
router has open is one that it keeps for the next request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.faults.proxy import Act, Fault, FaultProxy, Schedule
from tests.faults.worker import FRAMINGS, UPLOADS, WRONG, Ask, serve
from tests.proxy.running import PATIENCE, Running, running
from tests.support.http import Answer, RawClient
from tests.support.raw_worker import RawWorker

FLAGS = ("--retry-initial-backoff-ms", "0")
#: So that what stalls is soon over.
IMPATIENT = ("--request-timeout-secs", "0.2", "--stream-idle-timeout-secs", "0.2")
#: What costs nothing but time.
HARMLESS = {Act.DELAY, Act.DRIP}
#: What the router says itself when a worker fails a request.
FAILURES = {502, 503, 504}

faults = st.builds(
    Fault,
    # To stall is to wait until a time limit is over.
    st.sampled_from([*(act for act in Act if act is not Act.STALL)] * 3 + [Act.STALL]),
    at=st.integers(0, 200) | st.integers(200, 60_000),
    answer=st.sampled_from([True, True, False]),
    byte=st.sampled_from(b"\r\n:0 \x00\xff5") | st.integers(0, 255),
)
sizes = st.sampled_from([0, 300, 5_000, 60_000, 60_000])
asks = st.builds(
    Ask,
    st.sampled_from(FRAMINGS),
    sizes,
    st.sampled_from(UPLOADS),
    sizes,
    leaves=st.sampled_from([False] * 5 + [True]),
)
clients = st.lists(st.lists(asks, min_size=1, max_size=3), min_size=1, max_size=3)


@dataclass(frozen=True, slots=True)
class Place:
    """Two routers, one with little patience, and the harm before their two workers."""

    patient: Running
    impatient: Running
    schedule: Schedule
    proxies: list[FaultProxy]
    threads: ThreadPoolExecutor


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    schedule = Schedule()
    with (
        RawWorker(serve, timeout=PATIENCE) as a,
        RawWorker(serve, timeout=PATIENCE) as b,
    ):
        proxies = [FaultProxy(schedule, worker.port) for worker in (a, b)]
        with (
            RawWorker(proxies[0], timeout=PATIENCE) as first,
            RawWorker(proxies[1], timeout=PATIENCE) as second,
            ThreadPoolExecutor(3) as threads,
            running(first, second, flags=FLAGS) as patient,
            running(first, second, flags=FLAGS + IMPATIENT) as impatient,
        ):
            yield Place(patient, impatient, schedule, proxies, threads)


@settings(max_examples=settings().max_examples // 2)
@given(clients, st.lists(faults, min_size=1, max_size=8))
@example([[Ask("length", 300, "none", 0)] * 3], [])
@example([[Ask("close", 60_000, "held", 5_000)]], [Fault(Act.RESET, 30_000)])
@example([[Ask("events", 5_000, "none", 0)]], [Fault(Act.STALL, 1_000)])
@example([[Ask("length", 1, "chunks", 60_000)]], [Fault(Act.STALL, 99, answer=False)])
def test_no_schedule_of_faults_leaves_anything_or_mixes_anything_up(
    place: Place, clients: list[list[Ask]], faults: list[Fault]
) -> None:
    harmless = {fault.act for fault in faults} <= HARMLESS
    router = place.patient if harmless else place.impatient
    # Who had no fault the last time may have one now.
    for proxy in place.proxies:
        proxy.drop()
    router.until(lambda: not sum(map(len, place.proxies)), "all are closed")
    place.schedule.set(faults)
    doings = [
        place.threads.submit(visit, router, number, asks, faults)
        for number, asks in enumerate(clients)
    ]
    for doing in doings:
        doing.result()
    router.at_rest()
    router.until(lambda: not left_open(place), "no connection is left")
    assert router.tasks() == []


def left_open(place: Place) -> int:
    """Connections to workers that are open and that no router keeps for later."""
    routers = (place.patient, place.impatient)
    kept = sum(router.sample("upstream_connections") for router in routers)
    return sum(map(len, place.proxies)) - int(kept)


def visit(router: Running, number: int, asks: list[Ask], faults: list[Fault]) -> None:
    """One client: its requests over one connection as long as that goes on."""
    client = router.client()
    try:
        for turn, ask in enumerate(asks):
            # One byte that is another one makes no token of another request.
            token = b"<%d.%d.%d.%d>" % (number, turn, number, turn)
            client.send(ask.request(token))
            if ask.leaves:
                client.close()
                client = router.client()
                continue
            method = b"GET" if ask.upload == "none" else b"POST"
            answer = client.read_answer(method)
            check(ask, token, answer, faults)
            if not answer.complete or answer.header(b"connection") == b"close":
                client.close()
                client = router.client()
    finally:
        client.close()


def check(ask: Ask, token: bytes, answer: Answer, faults: list[Fault]) -> None:
    """The answer is right, or says what is wrong, or breaks off."""
    acts = {fault.act for fault in faults}
    if Act.CORRUPT in acts:
        # Any byte may be another one; none is of another request.
        foreign = set(re.findall(rb"<(\d)\.(\d)\.\1\.\2>", answer.body))
        assert foreign <= {(token[1:2], token[3:4])}
        return
    if acts <= HARMLESS:
        assert (answer.status, answer.complete) == (200, True)
    assert answer.status != WRONG
    if answer.header(b"x-router-worker") is None:
        assert answer.status in FAILURES
        assert json.loads(answer.body)["error"]["message"]
        return
    whole = ask.answer(token)
    if answer.complete and ask.framing != "close":
        assert answer.body == whole
    else:
        body = answer.body
        if ask.framing == "events":
            body = body.partition(b"\n\ndata: {")[0]
        assert whole.startswith(body)


def test_a_client_of_raw_sockets_is_told_of_a_cut() -> None:
    """What the schedules rest on: the reader knows a whole answer from another."""
    with RawWorker(serve) as worker, RawClient(worker.port) as client:
        ask = Ask("chunks", 5_000, "chunks", 300)
        client.send(ask.request(b"<1>"))
        answer = client.read_answer(b"POST")
        assert (answer.complete, answer.body) == (True, ask.answer(b"<1>"))
