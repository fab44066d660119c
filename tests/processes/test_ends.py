"""How processes end: by themselves, by a signal, all at once. Nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from router.simulate import SimulatedFleet, Switches
from tests.processes.common import (
    LINUX,
    Client,
    alive,
    children,
    close,
    descriptors,
    in_flight,
    metric,
    one_each,
    ready,
    two,
    until_idle,
)
from tests.support.router_process import RouterFailed, RouterProcess, serving

pytestmark = LINUX
#: Streams of three seconds.
SLOW = Switches(token_ms=50, tokens=60)


async def until_gone(pids: list[int]) -> None:
    async with asyncio.timeout(10):
        while any(map(alive, pids)):
            await asyncio.sleep(0.02)


async def until_free(port: int) -> None:
    """Until another server can listen there."""
    async with asyncio.timeout(10):
        while True:
            try:
                socket.create_server(("127.0.0.1", port)).close()
                return
            except OSError:
                await asyncio.sleep(0.02)


async def test_a_process_that_is_killed_costs_its_own_connections_only() -> None:
    async with (
        SimulatedFleet(2, models=["m"], switches=SLOW) as fleet,
        two(fleet) as (router, (dying, living)),
    ):
        idle = await Client.open(router)
        while idle.process != living.process:
            await idle.close()
            idle = await Client.open(router)
        more = [await Client.open(router) for _ in range(6)]
        streams = [dying, living, *more]
        for client in streams:
            await client.stream()
        own = sum(client.process == dying.process for client in streams)
        assert await in_flight(idle) == len(streams)
        os.kill(dying.process, signal.SIGKILL)
        async with asyncio.timeout(5):
            while await in_flight(idle) > len(streams) - own:
                await asyncio.sleep(0.02)
        for client in streams:
            whole = (await client.rest()).endswith(b"0\r\n\r\n")
            assert whole == (client.process != dying.process)
        await until_idle(idle)
        # Started again, and used.
        clients = await one_each(router)
        assert dying.process not in [client.process for client in clients]
        for client in clients:
            await client.complete()
        await close([*clients, *more, idle])


async def test_what_a_dead_process_counted_stays_counted() -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        two(fleet) as (
            router,
            (dying, living),
        ),
    ):
        name = 'fleetrouter_requests_total{model="m"'
        for client in (dying, living):
            for _ in range(10):
                await client.complete()
        assert await metric(living, name) == 20
        os.kill(dying.process, signal.SIGKILL)
        assert await metric(living, name) == 20
        clients = await one_each(router)
        for client in clients:
            await client.complete()
            assert await metric(living, "fleetrouter_process_restarts_total") == 1
        assert await metric(living, name) == 22
        await close(clients)


async def test_a_process_is_started_again_each_time_and_nothing_adds_up() -> None:
    async with (
        SimulatedFleet(1, models=["m"]) as fleet,
        two(fleet) as (router, _),
    ):
        before = descriptors(router.pid)
        for _ in range(3):
            os.kill(children(router.pid)[0], signal.SIGKILL)
            await asyncio.sleep(0.1)
            again = await one_each(router)
            for client in again:
                await client.complete()
            await close(again)
        await asyncio.sleep(0.1)
        assert abs(descriptors(router.pid) - before) <= 4
        assert len(children(router.pid)) == 2


async def test_a_process_that_hangs_holds_up_nobody_and_is_started_again() -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        two(fleet) as (router, (hanging, other)),
    ):
        for client in (hanging, other):
            await client.complete()
        os.kill(hanging.process, signal.SIGSTOP)
        hanging.send("POST", "/v1/completions", {"model": "m", "prompt": "hi"})
        # All of this while it hangs: a change waits for it once, and no longer.
        for _ in range(4):
            gone, left = await ready(other, 2)
            assert (await other.ask("DELETE", f"/workers/{gone['id']}"))[0] == 200
            assert await other.complete() == left["id"]
            status, _ = await other.ask("POST", "/workers", {"url": gone["url"]})
            assert status == 201
        assert await metric(other, "fleetrouter_requests_total") >= 4
        async with asyncio.timeout(60):
            while alive(hanging.process):
                await asyncio.sleep(0.05)
        assert await hanging.rest() == b""
        again = await one_each(router)
        assert hanging.process not in [client.process for client in again]
        for client in again:
            await client.complete()
        await until_idle(other)
        assert "a data process hangs" in router.logs()
        await close(again)


async def test_requests_are_served_while_the_control_process_hangs() -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        two(fleet) as (router, clients),
    ):
        os.kill(router.pid, signal.SIGSTOP)
        for client in clients:
            await client.complete()
        os.kill(router.pid, signal.SIGCONT)
        name = 'fleetrouter_requests_total{model="m"'
        assert await metric(clients[0], name) == 2
        assert await metric(clients[1], "fleetrouter_process_restarts_total") == 0


async def test_a_process_that_hangs_does_not_hold_up_the_end() -> None:
    async with SimulatedFleet(1, models=["m"]) as fleet:
        router = RouterProcess(
            *("--processes", "2", "--worker-urls", *fleet.urls),
            *("--drain-timeout-secs", "0.5"),
        )
        await asyncio.to_thread(router.start)
        clients = await one_each(router)
        pids = children(router.pid)
        os.kill(pids[0], signal.SIGSTOP)
        os.kill(router.pid, signal.SIGTERM)
        assert await asyncio.to_thread(router.wait) == 0
        assert not any(map(alive, pids))
        await close(clients)


async def test_connections_wait_while_their_process_is_started_again() -> None:
    async with SimulatedFleet(1, models=["m"]) as fleet, two(fleet) as (router, _):
        for pid in children(router.pid):
            os.kill(pid, signal.SIGKILL)
        waiting = [
            await asyncio.open_connection("127.0.0.1", router.port) for _ in range(8)
        ]
        for reader, writer in waiting:
            client = Client(reader, writer, router)
            assert (await client.ask("GET", "/readiness"))[0] == 200
            await client.complete()
            await client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_streams_of_all_processes_end(
    number: signal.Signals,
) -> None:
    async with SimulatedFleet(2, models=["m"], switches=SLOW) as fleet:
        flags = ("--processes", "2", "--worker-urls", *fleet.urls)
        router = RouterProcess(*flags)
        await asyncio.to_thread(router.start)
        clients = await one_each(router)
        await asyncio.to_thread(router.wait_ready, 2)
        for client in clients:
            await client.stream()
        pids = children(router.pid)
        # As a terminal or a service manager does: to every one of them.
        for pid in (router.pid, *pids):
            os.kill(pid, number)
        for client in clients:
            assert (await client.rest()).endswith(b"0\r\n\r\n")
        assert await asyncio.to_thread(router.wait) == 0
        assert not any(map(alive, pids))
        assert "Traceback" not in router.logs()
        await close(clients)


async def test_a_drain_is_over_after_its_time_limit_and_a_second_signal_ends_it() -> (
    None
):
    async with SimulatedFleet(1, models=["m"], switches=Switches(hang=True)) as fleet:
        for limit, signals, code in (("0.5", 1, 0), ("60", 2, 1)):
            router = RouterProcess(
                *("--processes", "2", "--worker-urls", *fleet.urls),
                *("--drain-timeout-secs", limit),
            )
            await asyncio.to_thread(router.start)
            await asyncio.to_thread(router.wait_ready, 1)
            clients = await one_each(router)
            for client in clients:
                client.send("POST", "/v1/completions", {"model": "m", "prompt": "hi"})
            await asyncio.sleep(0.3)
            for _ in range(signals):
                os.kill(router.pid, signal.SIGTERM)
                await asyncio.sleep(0.2)
            assert await asyncio.to_thread(router.wait) == code
            await close(clients)


@pytest.mark.parametrize("all_at_once", [False, True], ids=["control", "all"])
async def test_nothing_is_left_of_a_router_that_is_killed(
    tmp_path: Path, all_at_once: bool
) -> None:
    """kill -9 of the control process, or of all: no process, no file, no segment."""
    shared = set(Path("/dev/shm").iterdir())
    async with SimulatedFleet(1, models=["m"], switches=SLOW) as fleet:
        flags = ("--processes", "2", "--worker-urls", *fleet.urls)
        router = RouterProcess(*flags, env={"TMPDIR": str(tmp_path)})
        await asyncio.to_thread(router.start)
        await asyncio.to_thread(router.wait_ready, 1)
        clients = await one_each(router)
        for client in clients:
            await client.stream()
        pids = [router.pid, *children(router.pid)]
        assert list(tmp_path.iterdir()) == []
        for pid in pids if all_at_once else pids[:1]:
            os.kill(pid, signal.SIGKILL)
        await until_gone(pids)
        for client in clients:
            assert not (await client.rest()).endswith(b"0\r\n\r\n")
        await until_free(router.port)
        assert list(tmp_path.iterdir()) == []
        left = set(Path("/dev/shm").iterdir()) - shared
        assert [path for path in left if "router" in path.name] == []
        router.kill()
        await close(clients)


async def test_a_process_that_hangs_goes_with_its_control_process() -> None:
    async with serving("--processes", "2") as router:
        await close(await one_each(router))  # all of them are up
        pids = children(router.pid)
        os.kill(pids[0], signal.SIGSTOP)
        os.kill(router.pid, signal.SIGKILL)
        await until_gone(pids)
        await asyncio.to_thread(router.kill)


async def test_processes_share_one_memory_that_has_no_name() -> None:
    async with serving("--processes", "2") as router:
        await close(await one_each(router))  # all of them are up
        for pid in (router.pid, *children(router.pid)):
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            shared = [line for line in maps if line.split()[1] == "rw-s"]
            named = [line for line in shared if "anon_inode" not in line]
            assert len(named) == 1
            assert "/memfd:fleetrouter (deleted)" in named[0]


def test_a_process_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'router.data_process' in sys.orig_argv:\n"
        "    raise SystemExit('no such luck')\n"
    )
    with pytest.raises(RouterFailed, match="no such luck"):
        RouterProcess("--processes", "2", env={"PYTHONPATH": str(tmp_path)}).start()
