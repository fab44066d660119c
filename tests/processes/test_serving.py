"""Several processes serve as one router does."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from urllib.parse import quote

import pytest

from router.simulate import SimulatedFleet, Switches
from tests.processes.common import (
    LINUX,
    Client,
    children,
    close,
    descriptors,
    metric,
    one_each,
    ready,
    two,
    until_idle,
)
from tests.support.router_process import RouterFailed, RouterProcess, serving

pytestmark = LINUX


async def test_all_processes_serve_and_what_they_count_is_summed() -> None:
    async with (
        SimulatedFleet(2, models=["m"]) as fleet,
        two(fleet) as (router, clients),
    ):
        assert len(children(router.pid)) == 2
        for client, times in zip(clients, (7, 5), strict=True):
            for _ in range(times):
                await client.complete()
        for client in clients:
            assert await metric(client, 'fleetrouter_requests_total{model="m"') == 12
            assert await metric(client, "fleetrouter_worker_attempts_total") == 12
            name = "fleetrouter_request_duration_seconds_count"
            assert await metric(client, name) == 12
            assert await metric(client, "fleetrouter_data_processes") == 2
            assert await metric(client, "fleetrouter_client_connections") >= 2


async def test_a_change_is_in_force_in_all_processes_once_it_is_answered() -> None:
    async with SimulatedFleet(3, models=["m"]) as fleet, two(fleet) as (_, clients):
        one, other = clients
        workers = await ready(one, 3)
        for worker in workers[:2]:
            status, _ = await one.ask("DELETE", f"/workers/{worker['id']}")
            assert status == 200
            for _ in range(10):
                assert await other.complete() != worker["id"]
            one, other = other, one
        url = quote(workers[0]["url"], safe="")
        assert (await one.ask("POST", f"/add_worker?url={url}"))[0] == 200
        _, body = await one.ask("GET", f"/workers/{url}")
        assert (await other.ask("DELETE", f"/workers/{workers[2]['id']}"))[0] == 200
        for client in clients:
            assert await client.complete() == body["id"]
        for name in ("new", "newer"):
            one, other = other, one
            change = {"aliases": {name: "m"}}
            assert (await one.ask("PATCH", f"/workers/{body['id']}", change))[0] == 200
            assert await other.complete(name) == body["id"]
        request = {"model": "new", "prompt": "hi"}
        assert (await other.ask("POST", "/v1/completions", request))[0] == 404


async def test_every_process_answers_for_the_whole_router() -> None:
    async with SimulatedFleet(2, models=["m"]) as fleet, two(fleet) as (_, clients):
        answers = [
            [
                await client.ask("GET", path)
                for path in ("/readiness", "/health", "/v1/models", "/workers")
            ]
            for client in clients
        ]
        assert answers[0] == answers[1]
        assert [status for status, _ in answers[0]] == [200] * 4
        for client in clients:
            assert (await client.ask("GET", "/workers/none"))[0] == 404
            assert (await client.ask("PUT", "/workers"))[0] == 405


async def test_a_session_has_one_worker_in_all_processes() -> None:
    policy = ("--policy", "consistent_hash")
    async with (
        SimulatedFleet(4, models=["m"]) as fleet,
        two(fleet, *policy) as (_, clients),
    ):
        for session in range(8):
            body = {"model": "m", "prompt": "hi", "session_id": f"s{session}"}
            workers = set()
            for client in clients:
                client.send("POST", "/v1/completions", body)
                _, fields = await client.head()
                await client.body(fields)
                workers.add(fields["x-router-worker"])
            assert len(workers) == 1


async def test_a_limit_per_worker_is_one_for_all_processes() -> None:
    """But for what comes within the time that a process does not know of another."""
    async with (
        SimulatedFleet(1, models=["m"], switches=Switches(ttft_ms=2000)) as fleet,
        serving("--processes", "2") as router,
    ):
        clients = await one_each(router)
        worker = {"url": fleet.urls[0], "max_concurrency": 1}
        assert (await clients[0].ask("POST", "/workers", worker))[0] == 201
        await ready(clients[0], 1)
        body = {"model": "m", "prompt": "hi"}
        clients[0].send("POST", "/v1/completions", body)
        await asyncio.sleep(0.5)
        status, refusal = await clients[1].ask("POST", "/v1/completions", body)
        assert (status, refusal["error"]["code"]) == (503, "no_available_workers")
        assert (await clients[0].answer())[0] == 200
        await close(clients)


async def test_one_who_waits_gets_what_another_process_let_go_of() -> None:
    async with (
        SimulatedFleet(1, models=["m"], switches=Switches(ttft_ms=600)) as fleet,
        serving("--processes", "2", "--hold-timeout-secs", "20") as router,
    ):
        clients = await one_each(router)
        worker = {"url": fleet.urls[0], "max_concurrency": 1}
        assert (await clients[0].ask("POST", "/workers", worker))[0] == 201
        await ready(clients[0], 1)
        clients[0].send("POST", "/v1/completions", {"model": "m", "prompt": "hi"})
        await asyncio.sleep(0.2)
        await clients[1].complete()
        assert (await clients[0].answer())[0] == 200
        assert await metric(clients[0], "fleetrouter_held_total") == 1
        await close(clients)


async def test_load_is_even_over_workers_although_two_processes_give_it() -> None:
    """Steady load on workers of one speed: the mean in flight of each, sampled."""
    slow = Switches(ttft_ms=120, tokens=1, jitter=0.3)
    async with (
        SimulatedFleet(8, models=["m"], switches=slow) as fleet,
        two(fleet) as (router, clients),
    ):
        users = [await Client.open(router) for _ in range(64)]
        assert len({user.process for user in users}) == 2
        over = asyncio.Event()

        async def use(user: Client) -> None:
            while not over.is_set():
                await user.complete()

        tasks = [asyncio.create_task(use(user)) for user in users]
        await asyncio.sleep(1)
        totals: Counter[str] = Counter()
        for _ in range(60):
            _, body = await clients[0].ask("GET", "/workers")
            for worker in body["workers"]:
                totals[worker["id"]] += worker["load"]
            await asyncio.sleep(0.04)
        over.set()
        await asyncio.gather(*tasks)
        assert len(totals) == 8
        assert max(totals.values()) <= 1.1 * sum(totals.values()) / 8
        await until_idle(clients[0])
        await close(users)


async def test_a_slot_is_used_again_only_when_no_process_counts_on_it() -> None:
    """Workers come and go while a stream of a worker that has gone still runs."""
    slow = Switches(token_ms=50, tokens=60)
    async with (
        SimulatedFleet(1, models=["m"], switches=slow) as old,
        SimulatedFleet(2, models=["m"]) as new,
        two(old) as (_, clients),
    ):
        await clients[1].stream()
        assert (
            await clients[0].ask("DELETE", f"/workers/{quote(old.urls[0], safe='')}")
        )[0] == 200
        for _ in range(5):
            for url in new.urls:
                assert (await clients[0].ask("POST", "/workers", {"url": url}))[
                    0
                ] == 201
            workers = await ready(clients[0], 2)
            assert [worker["load"] for worker in workers] == [0, 0]
            await asyncio.sleep(0.3)  # for slots to be given back
        assert (await clients[1].rest()).endswith(b"0\r\n\r\n")
        await until_idle(clients[0])
        served = {await clients[1].complete() for _ in range(8)}
        assert served == {worker["id"] for worker in await ready(clients[0], 2)}


async def test_asking_leaves_nothing_open() -> None:
    async with (
        SimulatedFleet(1, models=["m"]) as fleet,
        two(fleet) as (router, clients),
    ):

        async def ask_around() -> None:
            for _ in range(20):
                for client in clients:
                    await client.ask("GET", "/workers")
                    await client.complete()

        def counts() -> list[int]:
            return [descriptors(pid) for pid in (router.pid, *children(router.pid))]

        await ask_around()
        before = counts()
        for _ in range(3):
            await ask_around()
        assert max(b - a for a, b in zip(before, counts(), strict=True)) <= 2


def test_a_port_that_another_router_shares_out_is_taken() -> None:
    with RouterProcess("--processes", "2") as router:
        second = RouterProcess("--processes", "2")
        second.command[second.command.index(str(second.port))] = str(router.port)
        second.port = router.port
        with pytest.raises(RouterFailed, match="cannot start"):
            _start_and_wait(second)


def _start_and_wait(router: RouterProcess) -> None:
    """As `start`, for one whose port answers anyway."""
    router.start()
    assert router.wait() == 2
    raise RouterFailed(router.logs())


def test_auto_is_a_process_for_each_core() -> None:
    cores = len(os.sched_getaffinity(0))
    with RouterProcess("--processes", "auto") as router:
        assert len(children(router.pid)) == (cores if cores > 1 else 0)
