"""Thousands of requests of every kind leave as much behind as a few of them do."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.proxy.messages import LAST, STREAM, answer_of, completion, event, ok
from tests.proxy.running import running
from tests.support.http import BadAnswer, RawClient, post
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm
from tests.support.router_process import RouterProcess

#: Each round is a request of every kind below.
WARM_UP, ROUNDS = 25, 150
#: Objects of connections that are kept for a while.
SLACK = 50
MOST_BYTES = 3_000_000

FLAGS = ("--retry-initial-backoff-ms", "0", "--model-alias", "fast=m")


def behave(connection: RawConnection, request: bytes) -> None:
    """Does what the path says."""
    match request.split(b" ", 2)[1]:
        case b"/stream":
            connection.send(STREAM, event("token"), event("token"), LAST)
        case b"/cut":
            connection.send(STREAM, event("token"))
            connection.close()
        case b"/busy":
            connection.send(answer_of(503))
        case b"/lose":
            connection.reset()
        case b"/garbage":
            connection.send(b"what?\r\n\r\n")
            connection.close()
        case b"/once":
            connection.send(ok(b"{}", b"Connection: close"))
            connection.close()
        case b"/endless" | b"/silent" as path:
            connection.send(STREAM + event("token") if path == b"/endless" else b"")
            connection.read_all()
        case _:
            connection.send(ok())


#: Requests that are answered, in one way or another.
ANSWERED = [
    completion(),
    completion(text="x" * 100_000),
    completion("unknown"),
    completion("fast"),
    *(
        post(f"/{what}", b'{"model":"m"}')
        for what in ("stream", "cut", "busy", "lose", "garbage", "once")
    ),
    post("/v1/x", b"not json"),
    post("/workers", b"{}"),
    b"GET /workers HTTP/1.1\r\nHost: r\r\n\r\n",
    b"GET /v1/responses/x HTTP/1.1\r\nHost: r\r\n\r\n",
    b"POST /upload HTTP/1.1\r\nHost: r\r\nContent-Length: 300000\r\n\r\n"
    + bytes(300_000),
    b"nonsense\r\n\r\n",
]
#: Requests whose clients leave.
LEFT = [
    b"",
    completion()[:40],
    completion()[:-1],
    post("/silent", b'{"model":"m"}'),
    post("/endless", b'{"model":"m"}'),
]


def a_round(port: int) -> None:
    """A request of every kind."""
    for request in ANSWERED:
        with RawClient(port, timeout=20) as client, suppress(BadAnswer):
            client.send(request)
            client.read_answer()
    for number, request in enumerate(LEFT):
        with RawClient(port, timeout=20) as client:
            client.send(request)
            if request.startswith(b"POST /endless"):
                assert client.read_some()
            if number % 2:
                client.reset()


def objects() -> Counter[str]:
    """What the router and its loop are made of now, counted by type."""
    gc.collect()
    counts: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        room = str(kind.__module__).partition(".")[0]
        if room in ("router", "uvloop", "asyncio", "_asyncio"):
            counts[f"{kind.__module__}.{kind.__qualname__}"] += 1
        elif kind.__name__ == "coroutine" and "/router/" in each.cr_code.co_filename:
            counts[each.__qualname__] += 1
    return counts


def test_no_object_of_a_request_outlives_it() -> None:
    with (
        RawWorker(like_vllm("m", behave)) as a,
        RawWorker(like_vllm("m", behave)) as b,
        running(a, b, flags=FLAGS) as router,
    ):
        for _ in range(WARM_UP):
            a_round(router.port)
        router.at_rest()
        before = objects()
        for _ in range(ROUNDS):
            a_round(router.port)
        router.at_rest()
        # Connections that are kept for a while are not many more than before.
        router.until(
            lambda: all(n <= before[k] + SLACK for k, n in objects().items()),
            f"as few objects as before: {objects() - before}",
        )


def rss(router: RouterProcess) -> int:
    pages = Path(f"/proc/{router.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_the_process_stays_flat() -> None:
    with (
        RawWorker(like_vllm("m", behave)) as a,
        RawWorker(like_vllm("m", behave)) as b,
        RouterProcess("--worker-urls", a.url, b.url, *FLAGS) as router,
    ):
        router.wait_ready(2)
        for _ in range(WARM_UP):
            a_round(router.port)
        before = rss(router)
        for _ in range(ROUNDS):
            a_round(router.port)
        assert rss(router) - before < MOST_BYTES
