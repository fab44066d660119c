"""When descriptors run out: refused, not stuck, and well again once there are some."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.proxy.messages import code_of, completion, ok
from tests.support.http import Answer, RawClient
from tests.support.raw_worker import RawWorker, like_vllm, saying
from tests.support.router_process import RouterProcess

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="limits another process, and reads /proc"
)


def descriptors(router: RouterProcess) -> set[int]:
    return {int(path.name) for path in Path(f"/proc/{router.pid}/fd").iterdir()}


def limit(router: RouterProcess, most: int) -> None:
    _, hard = resource.prlimit(router.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(router.pid, resource.RLIMIT_NOFILE, (most, hard))


def settled(router: RouterProcess) -> None:
    """Returns once what was kept idle has gone: it is kept for 4 seconds."""
    before, since = descriptors(router), monotonic()
    while monotonic() - since < 5.5:
        sleep(0.1)
        if (now := descriptors(router)) != before:
            before, since = now, monotonic()


@contextmanager
def short(router: RouterProcess) -> Iterator[None]:
    """The router gets no more descriptors than it has."""
    have = descriptors(router)
    limit(router, next(n for n in range(10_000) if n not in have))
    try:
        yield
    finally:
        limit(router, 1000)


def answer(client: RawClient, request: bytes) -> Answer:
    client.send(request)
    return client.read_answer()


def cpu_seconds(router: RouterProcess) -> float:
    fields = Path(f"/proc/{router.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_router_without_descriptors_says_so_and_recovers() -> None:
    flags = ("--health-check-interval-secs", "3600")
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        RouterProcess("--worker-urls", worker.url, *flags) as router,
    ):
        router.wait_ready(1)
        with RawClient(router.port) as client:
            assert answer(client, completion()).status == 200
            settled(router)
            with short(router):
                refused = answer(client, completion())
                assert (refused.status, code_of(refused.body)) == (503, "overloaded")
                assert refused.header(b"retry-after") == b"1"
                # It cannot accept, and does not try again all the time.
                with RawClient(router.port), RawClient(router.port):
                    before = cpu_seconds(router)
                    sleep(1)
                    assert cpu_seconds(router) - before < 0.5
                assert answer(client, completion()).status == 503
            assert answer(client, completion()).status == 200
            with RawClient(router.port) as another:
                assert answer(another, completion()).status == 200
        assert [w["status"] for w in router.workers()] == ["ready"]
        assert router.logs().count("no socket for a worker") == 1
