"""Everything at once: clients that leave, workers that fail, a fleet that changes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.proxy.running import PATIENCE, Running, running
from tests.proxy.test_leaks import ANSWERED, LEFT, behave
from tests.support.http import BadAnswer, RawClient
from tests.support.raw_worker import RawWorker, like_vllm

FLAGS = (
    *("--retry-initial-backoff-ms", "5", "--model-alias", "fast=m"),
    *("--hold-timeout-secs", "2", "--hold-queue-size", "3"),
)


def ask(router: Running, chance: random.Random) -> None:
    """One request of any kind, of a client of any patience."""
    with (
        suppress(BadAnswer, ConnectionError),
        RawClient(router.port, timeout=PATIENCE) as client,
    ):
        client.send(chance.choice(ANSWERED))
        if chance.random() < 0.7:
            client.read_answer()
        elif chance.random() < 0.5:
            client.read_some()


def leave(router: Running, chance: random.Random) -> None:
    """A client that leaves."""
    with suppress(ConnectionError), RawClient(router.port, timeout=PATIENCE) as client:
        client.send(chance.choice(LEFT))
        if chance.random() < 0.5:
            client.reset()


def change(router: Running, workers: list[RawWorker], chance: random.Random) -> None:
    """A worker goes, or comes, or is replaced by itself with another limit."""
    worker = chance.choice(workers)
    if chance.random() < 0.4:
        for listed in router.workers():
            if listed["base_url"] == worker.url:
                router.call("DELETE", f"/workers/{listed['id']}")
    else:
        limit = chance.choice([0, 1, 2])
        body = {"url": worker.url, "max_concurrency": limit, "models": ["m"]}
        router.call("POST", "/workers", body)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_and_nothing_fails_inside(seed: int) -> None:
    with (
        RawWorker(like_vllm("m", behave)) as a,
        RawWorker(like_vllm("m", behave)) as b,
        RawWorker(like_vllm("m", behave)) as c,
        running(a, b, c, flags=FLAGS) as router,
    ):
        workers = [a, b, c]
        acts: list[Callable[[random.Random], None]] = [
            *[lambda chance: ask(router, chance)] * 4,
            *[lambda chance: leave(router, chance)] * 2,
            lambda chance: change(router, workers, chance),
        ]

        def act(number: int) -> None:
            chance = random.Random(seed * 100 + number)
            for _ in range(60):
                chance.choice(acts)(chance)

        threads = [threading.Thread(target=act, args=[n]) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker in workers:
            router.call("POST", "/workers", {"url": worker.url})
        router.ready(3)
        router.at_rest()
        assert {router.ask(ANSWERED[0]).status for _ in range(10)} == {200}
