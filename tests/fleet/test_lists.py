"""Model lists over real sockets: adapters, empty, broken and hanging lists."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from router.fleet.client import MOST_BYTES, Answer, Failure
from router.fleet.models import UnreadableList, parse
from router.fleet.reads import MOST_READS
from router.fleet.record import EMPTY_LIST
from router.fleet.worker import ModelCard, Status
from tests.fleet.fleets import listed, routed
from tests.fleet.probing import probing, until
from tests.support.mini_worker import MiniWorker

SOON = 0.05
LIST = "/v1/models"


async def test_a_list_is_read_at_every_so_many_checks() -> None:
    async with MiniWorker("a") as worker, probing(interval=SOON) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        worker.models = ["a", "sql"]
        await until(lambda: routed(fleet.registry, "sql") == {worker.url})
        worker.models = ["a"]
        await until(lambda: not fleet.registry.snapshot.knows("sql"))
        await until(lambda: worker.asked["/health"] >= 30)
        checks, reads = worker.asked["/health"], worker.asked[LIST]
        assert checks / 5 - 3 <= reads <= checks / 5 + 3


async def test_a_worker_in_no_models_pool_is_read_at_every_check() -> None:
    """Far below any number of checks after which a settled one is read again."""
    worker = MiniWorker()
    async with worker, probing(interval=1000.0, refresh_checks=1000) as fleet:
        fleet.register(worker)
        await until(lambda: worker.asked[LIST] >= 3)
        assert fleet.status(worker) is Status.PENDING
        worker.models = ["a"]
        await fleet.ready(worker)
        assert worker.asked["/health"] - worker.asked[LIST] <= 2


async def test_an_unlisted_wildcard_is_read_at_every_check_until_it_names_models() -> (
    None
):
    worker = MiniWorker()
    async with (
        worker,
        probing(interval=SOON, refresh_checks=1000, unlisted_wildcard=True) as fleet,
    ):
        fleet.register(worker)
        await fleet.ready(worker)
        assert routed(fleet.registry, "anything") == {worker.url}
        await until(lambda: worker.asked[LIST] >= 4)
        worker.models = ["a"]
        await until(lambda: fleet.registry.snapshot.knows("a"))
        assert routed(fleet.registry, "a") == {worker.url}
        assert routed(fleet.registry, "anything") == set()
        reads, checks = worker.asked[LIST], worker.asked["/health"]
        await until(lambda: worker.asked["/health"] >= checks + 4)
        assert worker.asked[LIST] == reads


async def test_a_404_for_a_listed_model_has_the_list_read_now() -> None:
    async with MiniWorker("a", "sql") as worker, probing(interval=1000.0) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        await asyncio.sleep(0.3)
        worker.models = ["a"]
        slot = fleet.registry.find(worker.url).slot
        for _ in range(10):
            fleet.models.missing(slot)
        await until(lambda: not fleet.registry.snapshot.knows("sql"))
        assert worker.asked[LIST] == 2, "one read for all of them"
        fleet.registry.remove(worker.url)
        fleet.models.missing(slot)


@pytest.mark.parametrize(
    ("models", "error"),
    [
        (500, "model list: HTTP 500"),
        (401, "model list: HTTP 401; give the worker's key"),
        (302, "model list: HTTP 302"),
        (b"<html>", "model list: not the JSON of a model list"),
        (b"[]", "model list: not the JSON of a model list"),
        (b'{"data": [{"id": 7}]}', "model list: not the JSON of a model list"),
        (b"x" * (MOST_BYTES + 1), "model list: answer of more than"),
    ],
)
async def test_a_list_that_cannot_be_read_is_told_of_and_read_again(
    models: int | bytes, error: str
) -> None:
    worker = MiniWorker()
    worker.models = models
    async with worker, probing(interval=1000.0) as fleet:
        fleet.register(worker)
        await until(lambda: (fleet.error(worker) or "").startswith(error))
        assert fleet.status(worker) is Status.PENDING
        worker.models = ["a"]
        await fleet.ready(worker)
        assert fleet.error(worker) is None


async def test_a_server_without_a_list_serves_what_was_given() -> None:
    worker = MiniWorker()
    worker.models = 404
    async with worker, probing() as fleet:
        fleet.register(worker, models=("a",))
        await until(lambda: worker.asked[LIST] >= 1)
        await fleet.ready(worker)
        assert routed(fleet.registry, "a") == {worker.url}


async def test_a_server_without_a_list_is_an_unlisted_worker() -> None:
    worker = MiniWorker()
    worker.models = 404
    async with worker, probing(unlisted_wildcard=True) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        assert routed(fleet.registry, "anything") == {worker.url}
    async with worker, probing() as fleet:
        fleet.register(worker)
        await until(lambda: fleet.error(worker) == EMPTY_LIST)
        assert fleet.status(worker) is Status.PENDING


async def test_a_list_that_fails_after_it_was_read_changes_nothing() -> None:
    async with MiniWorker("a") as worker, probing(interval=0.1) as fleet:
        fleet.register(worker)
        await fleet.ready(worker)
        worker.models = 500
        await until(lambda: fleet.error(worker) == "model list: HTTP 500")
        assert routed(fleet.registry, "a") == {worker.url}


async def test_lists_that_hang_from_the_start_delay_no_new_worker() -> None:
    """More of them than may be read at once; each is healthy."""
    async with AsyncExitStack() as stack, probing(timeout=1000.0) as fleet:
        hanging = [MiniWorker("a") for _ in range(40)]
        for worker in hanging:
            worker.hang.add(LIST)
            await stack.enter_async_context(worker)
            fleet.register(worker)
        await until(lambda: sum(w.running[LIST] for w in hanging) >= MOST_READS - 1)
        for _ in range(3):
            new = await stack.enter_async_context(MiniWorker("a"))
            fleet.register(new)
            await fleet.ready(new)
            assert sum(w.running[LIST] for w in hanging) <= MOST_READS


async def test_lists_that_hang_on_healthy_workers_delay_no_new_one() -> None:
    async with (
        AsyncExitStack() as stack,
        probing(interval=SOON, refresh_checks=1, timeout=1000.0) as fleet,
    ):
        hanging = [MiniWorker("a") for _ in range(40)]
        for worker in hanging:
            await stack.enter_async_context(worker)
            fleet.register(worker)
        await fleet.ready(*hanging)
        for worker in hanging:
            worker.hang.add(LIST)
        await until(lambda: sum(w.running[LIST] for w in hanging) >= 15)
        new = await stack.enter_async_context(MiniWorker("a"))
        fleet.register(new)
        await fleet.ready(new)
        assert routed(fleet.registry, "a") >= {worker.url for worker in hanging}


async def test_a_list_is_applied_as_it_arrives() -> None:
    """Not when all that were asked for have arrived."""
    async with MiniWorker("a") as quick, MiniWorker("a") as slow, probing() as fleet:
        slow.hang.add(LIST)
        fleet.register(slow)
        fleet.register(quick)
        await fleet.ready(quick)
        await until(lambda: slow.running[LIST] == 1)
        assert fleet.status(slow) is Status.PENDING
        slow.hang.clear()
        await fleet.ready(slow)


async def test_a_list_that_times_out_is_left_alone_for_a_while() -> None:
    worker = MiniWorker("a")
    worker.hang.add(LIST)
    async with worker, probing(timeout=0.1) as fleet:
        fleet.register(worker)
        await until(lambda: fleet.error(worker) == "model list: no answer in time")
        await until(lambda: worker.asked["/health"] >= 5)
        assert worker.asked[LIST] <= worker.asked["/health"] / 2
        worker.hang.clear()
        await fleet.ready(worker)


@pytest.mark.parametrize("gone", ["removed", "replaced"])
async def test_a_list_that_arrives_after_the_worker_has_gone_changes_nothing(
    gone: str,
) -> None:
    worker = MiniWorker("late")
    worker.hang.add(LIST)
    async with worker, probing(timeout=1000.0) as fleet:
        fleet.register(worker)
        await until(lambda: worker.running[LIST] == 1)
        if gone == "removed":
            fleet.registry.remove(worker.url)
        else:
            worker.models = ["new"]
            fleet.register(worker)
        worker.hang.clear()
        if gone == "replaced":
            await fleet.ready(worker)
            assert routed(fleet.registry, "new") == {worker.url}
        await until(lambda: worker.running[LIST] == 0)
        assert not fleet.registry.snapshot.knows("late")
        assert listed(fleet.registry, "late") == set()


def answer(body: object) -> Answer:
    return Answer(200, json.dumps(body).encode())


def test_a_list_is_read_as_vllm_writes_it() -> None:
    base = {
        "id": "org/base",
        "object": "model",
        "created": 1700000000,
        "owned_by": "vllm",
        "root": "/models/base",
        "parent": None,
        "max_model_len": 4096,
        "permission": [{"id": "modelperm-1"}],
    }
    adapter = {
        **base,
        "id": "sql",
        "root": "/adapters/sql",
        "parent": "org/base",
        "max_model_len": None,
    }
    assert parse(answer({"object": "list", "data": [base, adapter]})) == (
        ModelCard("org/base", None, "/models/base", 4096, 1700000000),
        ModelCard("sql", "org/base", "/adapters/sql", None, 1700000000),
    )


def test_a_field_of_a_wrong_type_is_as_good_as_none() -> None:
    entry = {"id": "a", "parent": 1, "root": [], "max_model_len": "x", "created": True}
    assert parse(answer({"data": [entry]})) == (ModelCard("a"),)
    assert parse(answer({"data": [{"id": "a", "created": 1.5}]}))[0].created == 1
    assert parse(answer({"data": []})) == ()


@pytest.mark.parametrize(
    "body",
    [{}, [], None, 7, {"data": None}, {"data": {}}, {"data": ["a"]}, {"data": [{}]}],
)
def test_what_is_no_list_is_refused(body: object) -> None:
    with pytest.raises(UnreadableList):
        parse(answer(body))


def test_a_list_without_end_is_refused() -> None:
    entries = [{"id": str(number)} for number in range(10_001)]
    with pytest.raises(UnreadableList, match="more than"):
        parse(answer({"data": entries}))
    assert parse(answer({"data": [{"id": "a" * 513}]})) == ()


def test_a_failed_read_says_why() -> None:
    with pytest.raises(UnreadableList, match="connection refused"):
        parse(Answer(failure=Failure.REFUSED, reason="connection refused"))
