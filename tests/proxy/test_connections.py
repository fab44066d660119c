"""Connections to workers: made, kept for a while, and never left behind."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from router.errors import Overloaded
from router.fleet.worker import Endpoint
from router.http1.connection import Ticker
from router.http1.upstream import Upstream
from router.proxy.upstream import Address, ConnectFailed, Connections
from tests.support.ports import free_port
from tests.support.raw_worker import RawConnection, RawWorker, swallow


class Opened(Connections):
    """Counts what it opens; `before` is run in the way of each opening."""

    def __init__(
        self,
        *,
        connect_timeout: float = 10,
        idle_timeout: float = 10,
        most_idle_each: int = 100,
        most_idle: int = 100,
    ) -> None:
        self.ticker = Ticker()
        super().__init__(
            self.ticker,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            most_idle_each=most_idle_each,
            most_idle=most_idle,
        )
        self.opened: list[Upstream] = []

    async def before(self) -> None:
        pass

    async def _open(self, address: Address) -> Upstream:
        await self.before()
        upstream = await super()._open(address)
        self.opened.append(upstream)
        return upstream


def at(port: int) -> Endpoint:
    return Endpoint("127.0.0.1", port, False, f"127.0.0.1:{port}")


@asynccontextmanager
async def worker(connections: Opened) -> AsyncIterator[RawWorker]:
    """A worker that only listens; in the end no connection is left."""
    with RawWorker(swallow) as running:
        yield running
        connections.close()
        await until(lambda: not len(connections.ticker))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.002)


async def test_the_connection_used_last_is_the_first_to_be_used_again() -> None:
    connections = Opened()
    async with worker(connections) as running:
        first = await connections.connect(at(running.port))
        second = await connections.connect(at(running.port))
        connections.give_back("w", first)
        connections.give_back("w", second)
        assert len(connections) == 2
        assert connections.take("w") is second
        assert connections.take("w") is first
        assert connections.take("w") is None
        assert connections.take("other") is None
        connections.give_back("w", first)
        connections.give_back("w", second)


async def test_what_was_idle_for_too_long_is_not_used_again() -> None:
    connections = Opened(idle_timeout=0.01)
    async with worker(connections) as running:
        connections.give_back("w", await connections.connect(at(running.port)))
        await asyncio.sleep(0.02)
        assert connections.take("w") is None
        await until(lambda: not len(connections.ticker))


async def test_what_nobody_uses_is_closed_in_time() -> None:
    """Also what was given back once its worker was forgotten."""
    connections = Opened(idle_timeout=0.05)
    connections.start()
    async with worker(connections) as running:
        late = await connections.connect(at(running.port))
        connections.give_back("gone", await connections.connect(at(running.port)))
        connections.forget("gone")
        connections.give_back("gone", late)
        await until(lambda: not len(connections.ticker))
        assert len(connections) == 0


async def test_of_too_many_for_a_worker_the_oldest_is_closed() -> None:
    connections = Opened(most_idle_each=2)
    async with worker(connections) as running:
        opened = [await connections.connect(at(running.port)) for _ in range(3)]
        for upstream in opened:
            connections.give_back("w", upstream)
        assert len(connections) == 2
        assert opened[0].closed
        assert [connections.take("w"), connections.take("w")] == [opened[2], opened[1]]
        for upstream in opened[1:]:
            connections.give_back("w", upstream)


async def test_of_too_many_in_all_the_oldest_are_closed_whose_ever_they_are() -> None:
    connections = Opened(most_idle=20)
    async with worker(connections) as running:
        opened = [await connections.connect(at(running.port)) for _ in range(21)]
        for number, upstream in enumerate(opened):
            connections.give_back(f"w{number % 7}", upstream)
            await asyncio.sleep(0.001)
        closed = [upstream.closed for upstream in opened]
        assert closed == [True] * sum(closed) + [False] * len(connections)
        assert 1 <= sum(closed) <= 5


async def test_idle_connections_make_room_when_descriptors_run_out() -> None:
    class Short(Opened):
        short = False

        async def before(self) -> None:
            if self.short:
                raise OSError(errno.EMFILE, "Too many open files")

    connections = Short()
    async with worker(connections) as running:
        idle = await connections.connect(at(running.port))
        connections.give_back("w", idle)
        connections.short = True
        with pytest.raises(Overloaded):
            await connections.connect(at(running.port))
        assert idle.closed
        assert len(connections) == 0


async def test_a_connection_that_the_worker_closed_is_not_used_again() -> None:
    def once(connection: RawConnection) -> None:
        connection.half_close()
        connection.read_all()

    connections = Opened()
    with RawWorker(once) as running:
        connections.give_back("w", await connections.connect(at(running.port)))
        await until(lambda: not connections.opened[0].idle)
        assert connections.take("w") is None
        connections.close()
        await until(lambda: not len(connections.ticker))


async def test_a_closed_port_is_told_from_other_failures() -> None:
    with pytest.raises(ConnectFailed) as failed:
        await Opened().connect(at(free_port()))
    assert failed.value.kind == "refused"
    with pytest.raises(ConnectFailed) as failed:
        await Opened().connect(Endpoint("name.invalid", 1, False, "name.invalid"))
    assert failed.value.kind == "unreachable"


class Failing(Opened):
    """Cannot open any."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    async def before(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[Errno 99] Cannot assign, [Errno 111] Connection refused", "refused"),
        ("[Errno 113] No route to host, [Errno 110] Timed out", "unreachable"),
    ],
)
async def test_a_name_with_several_addresses_is_refused_where_one_is(
    text: str, kind: str
) -> None:
    text = text.replace("Errno 111", f"Errno {errno.ECONNREFUSED}")
    error = OSError(f"Multiple exceptions: {text}")
    with pytest.raises(ConnectFailed) as failed:
        await Failing(error).connect(at(1))
    assert failed.value.kind == kind


@pytest.mark.parametrize("number", ["EMFILE", "ENFILE", "ENOBUFS", "EADDRNOTAVAIL"])
async def test_a_shortage_of_ours_is_no_worker_s_fault_and_said_once_in_a_while(
    number: str, caplog: pytest.LogCaptureFixture
) -> None:
    connections = Failing(OSError(getattr(errno, number), "too many"))
    for _ in range(5):
        with pytest.raises(Overloaded):
            await connections.connect(at(1))
    assert [record.getMessage() for record in caplog.records] == [
        "no socket for a worker"
    ]


class Stuck(Opened):
    """Never gets through."""

    async def before(self) -> None:
        await asyncio.get_running_loop().create_future()


async def test_connecting_takes_no_longer_than_it_may() -> None:
    with pytest.raises(ConnectFailed) as failed:
        await Stuck(connect_timeout=0.01).connect(at(1))
    assert failed.value.kind == "connect_timeout"


async def test_connecting_takes_no_longer_than_the_request_may() -> None:
    deadline = asyncio.get_running_loop().time() + 0.01
    with pytest.raises(TimeoutError):
        await Stuck(connect_timeout=3600).connect(at(1), deadline)


async def test_who_leaves_while_connecting_leaves_no_connection() -> None:
    connections = Stuck()
    task = asyncio.create_task(connections.connect(at(1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


class Made(Opened):
    """Calls `then` the moment a connection is made and nobody has it yet."""

    def then(self) -> None:
        pass

    async def _open(self, address: Address) -> Upstream:
        upstream = await super()._open(address)
        # It comes before the turn of the one who waits for this.
        asyncio.get_running_loop().call_soon(lambda: self.then())
        return upstream


async def test_who_leaves_as_the_connection_is_made_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Made()
    async with worker(connections) as running:
        task = asyncio.create_task(connections.connect(at(running.port)))
        monkeypatch.setattr(connections, "then", task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(connections.opened) == 1
        await until(lambda: not len(connections.ticker))
