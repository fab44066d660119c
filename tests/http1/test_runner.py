"""Coroutines are resumed in the callbacks they wait for; no wake-up is lost."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Coroutine

import pytest

from router.http1.connection import Budget, Ticker
from router.http1.downstream import Downstream
from router.http1.errors import ClientGone
from router.http1.request import Request
from router.http1.runner import Runner, Wait
from tests.proxy.requests import Wire as Transport

Ended = list[BaseException | None]


def run(coroutine: Coroutine[None, None, None]) -> tuple[Runner, Ended]:
    ended: Ended = []
    runner = Runner(coroutine, ended.append)
    runner.start()
    return runner, ended


def test_a_coroutine_that_waits_for_nothing_ends_at_once() -> None:
    async def serve() -> None:
        pass

    _, ended = run(serve())
    assert ended == [None]


def test_what_it_raises_is_told_to_its_owner() -> None:
    problem = LookupError("no")

    async def serve() -> None:
        raise problem

    _, ended = run(serve())
    assert ended == [problem]


async def test_futures_tasks_and_sleeps_are_awaited_as_in_a_task() -> None:
    future = asyncio.get_running_loop().create_future()
    steps: list[object] = []

    async def serve() -> None:
        steps.append(await future)
        await asyncio.sleep(0)
        steps.append("slept")
        await asyncio.sleep(0.001)
        steps.append(await asyncio.create_task(asyncio.sleep(0, "task")))
        with pytest.raises(LookupError):
            await asyncio.create_task(fails())

    async def fails() -> None:
        raise LookupError

    _, ended = run(serve())
    assert (steps, ended) == ([], [])
    future.set_result("future")
    while not ended:
        await asyncio.sleep(0.001)
    assert (steps, ended) == (["future", "slept", "task"], [None])


async def test_what_is_no_future_ends_the_coroutine() -> None:
    class Strange:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield 5

    async def serve() -> None:
        await Strange()

    _, ended = run(serve())
    assert isinstance(ended[0], AttributeError)


def test_an_owner_that_fails_is_heard_and_called_once() -> None:
    calls = []

    async def serve() -> None:
        pass

    def finished(error: BaseException | None) -> None:
        calls.append(error)
        raise LookupError("owner")

    with pytest.raises(LookupError, match="owner"):
        Runner(serve(), finished).start()
    assert calls == [None]


def test_waits_are_made_by_what_can_be_waited_for() -> None:
    with pytest.raises(TypeError):
        Wait()
    with pytest.raises(TypeError):
        Request()


# --- waiting for a body ------------------------------------------------------------


def client(serve: object, budget: Budget | None = None) -> Downstream:
    """A client's end whose requests are served so."""
    end = Downstream(
        serve,  # type: ignore[arg-type]
        lambda peer, status, what: b"",
        Ticker(),
        budget or Budget(1 << 20),
        head_timeout=1,
        idle_timeout=1,
        write_timeout=1,
        max_body=1 << 20,
    )
    end.connection_made(Transport())
    return end


HEAD = b"POST / HTTP/1.1\r\nHost: r\r\nContent-Length: 4\r\n\r\n"


def test_it_runs_on_in_the_call_that_brings_the_last_byte() -> None:
    bodies = []

    async def serve(request: Request) -> None:
        await request.read()
        bodies.append(request.body)
        # What is there already is not waited for.
        await request.read()
        request.respond(b"answer")

    end = client(serve)
    end.data_received(HEAD)
    for byte in b"abc":
        end.data_received(bytes([byte]))
    assert bodies == []
    end.data_received(b"d" + HEAD + b"ef")
    assert bodies == [b"abcd"]
    end.data_received(b"gh")
    assert bodies == [b"abcd", b"efgh"]


async def test_a_body_that_comes_while_something_else_is_awaited_is_not_missed() -> (
    None
):
    future = asyncio.get_running_loop().create_future()
    bodies = []

    async def serve(request: Request) -> None:
        await future
        await request.read()
        bodies.append(request.body)
        request.respond(b"answer")

    end = client(serve)
    end.data_received(HEAD + b"ab")
    end.data_received(b"cd")
    assert bodies == []
    future.set_result(None)
    await asyncio.sleep(0.01)
    assert bodies == [b"abcd"]


@pytest.mark.parametrize("waits_for", ["body", "future"])
async def test_a_client_that_leaves_is_heard_wherever_it_waits(waits_for: str) -> None:
    heard = []
    future = asyncio.get_running_loop().create_future()

    async def serve(request: Request) -> None:
        try:
            await (request.read() if waits_for == "body" else future)
        except ClientGone:
            heard.append("gone")
            raise

    end = client(serve)
    end.data_received(HEAD)
    assert end.busy
    end.connection_lost(None)
    assert heard == ["gone"]
    assert not end.busy
    # What it waited for comes too late, and wakes nobody.
    future.set_result(None)
    await asyncio.sleep(0.01)
    assert heard == ["gone"]


async def test_a_failure_of_a_coroutine_is_reported_and_its_connection_closed() -> None:
    reports = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, what: reports.append(what["exception"])
    )

    async def serve(request: Request) -> None:
        await request.read()
        raise LookupError

    end = client(serve)
    end.data_received(HEAD + b"abc")
    end.data_received(b"d")
    assert [type(report) for report in reports] == [LookupError]
    assert end.closed


def test_a_coroutine_that_cannot_be_made_costs_its_connection_only() -> None:
    def serve(request: Request) -> Coroutine[None, None, None]:
        raise LookupError

    budget = Budget(100)
    end = client(serve, budget)
    with pytest.raises(LookupError):
        end.data_received(HEAD + b"ab")
    assert budget.held == 2
    end.connection_lost(None)
    assert budget.held == 0


def test_nothing_of_a_request_is_left_behind() -> None:
    """No cycle waits for the collector: memory stays flat without it."""
    seen: list[weakref.ref[object]] = []

    class Trace:
        pass

    async def serve(request: Request) -> None:
        trace = Trace()
        seen.append(weakref.ref(trace))
        await request.read()
        request.respond(b"answer")

    end = client(serve)
    gc.disable()
    try:
        for _ in range(3):
            end.data_received(HEAD + b"ab")
            end.data_received(b"cd")
        end.data_received(HEAD)
        end.connection_lost(None)
        assert [trace() for trace in seen] == [None] * 4
    finally:
        gc.enable()
