"""Which worker may answer: models, adapters, aliases, ranks, the unknown, the wait."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp

from router.simulate import SimulatedFleet, SimulatedWorker
from tests.support.router_process import serving

from .common import (
    QUICK,
    ask,
    chat,
    get,
    model_ids,
    until,
    until_ready,
)


async def test_the_lists_of_all_workers_are_merged(http: aiohttp.ClientSession) -> None:
    async with (
        SimulatedFleet(4, models=["a", "b"], loras={2: ["sql"], 3: ["fr"]}) as fleet,
        serving("--worker-urls", *fleet.urls, "--model-alias", "gpt=a") as router,
    ):
        await until_ready(http, router, 4)
        listed = await get(http, router, "/v1/models")
        assert listed["object"] == "list"
        by_id = {card["id"]: card for card in listed["data"]}
        assert len(listed["data"]) == len(by_id)
        assert set(by_id) == {"a", "b", "sql", "fr", "gpt"}
        assert (by_id["sql"]["parent"], by_id["fr"]["parent"]) == ("a", "b")
        assert by_id["a"]["parent"] is None
        assert await model_ids(http, router) == [card["id"] for card in listed["data"]]
        one = await get(http, router, "/v1/models/sql")
        assert (one["id"], one["parent"]) == ("sql", "a")


async def test_an_adapter_on_one_worker_only_never_misses(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(4, models=["base"], loras={2: ["sql"]}) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 4)
        replies = await asyncio.gather(
            *(ask(http, router, chat("sql", max_tokens=1)) for _ in range(100))
        )
        assert Counter(reply.status for reply in replies) == {200: 100}
        assert {reply.body["model"] for reply in replies} == {"sql"}
        assert [worker.state.requests for worker in fleet] == [0, 0, 100, 0]
        listed = await get(http, router, "/workers?model=sql")
        assert [worker["url"] for worker in listed["workers"]] == [fleet[2].url]


async def test_an_adapter_is_routed_from_its_load_to_its_unload(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(2, models=["base"]) as fleet,
        serving("--worker-urls", *fleet.urls, *QUICK) as router,
    ):
        await until_ready(http, router, 2)
        assert (await ask(http, router, chat("sql"))).code == "model_not_found"
        load = {"lora_name": "sql", "lora_path": "/adapters/sql"}
        async with http.post(f"{fleet[1].url}/v1/load_lora_adapter", json=load):
            pass
        async with asyncio.timeout(15):
            while (await ask(http, router, chat("sql"))).status != 200:
                await asyncio.sleep(0.02)
        assert await model_ids(http, router) == ["base", "sql"]
        async with http.post(f"{fleet[1].url}/v1/unload_lora_adapter", json=load):
            pass
        # The worker's own 404 makes the router read its list at once.
        assert (await ask(http, router, chat("sql"))).status == 404
        async with asyncio.timeout(15):
            while "sql" in await model_ids(http, router):
                await asyncio.sleep(0.02)
        assert (await ask(http, router, chat("sql"))).code == "model_not_found"


async def test_an_alias_reaches_its_model_under_the_real_name(
    http: aiohttp.ClientSession,
) -> None:
    async with (
        SimulatedFleet(models=["a"]) as fleet,
        serving("--worker-urls", *fleet.urls, "--model-alias", "gpt=a") as router,
    ):
        await until_ready(http, router, 1)
        reply = await ask(http, router, chat("gpt"))
        assert (reply.status, reply.body["model"]) == (200, "a")


async def test_each_model_stays_on_its_workers(http: aiohttp.ClientSession) -> None:
    async with (
        SimulatedFleet(4, models=["a", "b"]) as fleet,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 4)
        for model, places in (("a", {0, 2}), ("b", {1, 3})):
            before = [worker.state.requests for worker in fleet]
            for _ in range(20):
                assert (await ask(http, router, chat(model))).status == 200
            used = {
                place
                for place, worker in enumerate(fleet)
                if worker.state.requests > before[place]
            }
            assert used == places


async def test_a_request_without_a_model_needs_a_fleet_of_one(
    http: aiohttp.ClientSession,
) -> None:
    body = {"prompt": "hi", "max_tokens": 1}
    async with (
        SimulatedFleet(2, models=["a"], loras={0: ["sql"]}) as fleet,
        SimulatedFleet(models=["b"]) as other,
        serving("--worker-urls", *fleet.urls) as router,
    ):
        await until_ready(http, router, 2)
        assert (await ask(http, router, body, "/v1/completions")).status == 200
        await ask(http, router, {"url": other[0].url}, "/workers")
        await until_ready(http, router, 3)
        reply = await ask(http, router, body, "/v1/completions")
        assert (reply.status, reply.code) == (400, "model_required")


async def test_an_unknown_model_is_404_once_all_models_are_known(
    http: aiohttp.ClientSession,
) -> None:
    late = SimulatedWorker("b")
    async with (
        SimulatedFleet(models=["a"]) as fleet,
        serving("--worker-urls", *fleet.urls, late.url) as router,
    ):
        await until_ready(http, router, 1)
        # The pending worker may be the one that serves it.
        assert (await ask(http, router, chat("b"))).status == 503
        await late.start()
        await until_ready(http, router, 2)
        assert (await ask(http, router, chat("b"))).status == 200
        reply = await ask(http, router, chat("nope"))
        assert (reply.status, reply.code) == (404, "model_not_found")
        assert reply.body["error"]["param"] == "model"
    await late.close()


async def test_a_request_is_held_until_its_worker_comes(
    http: aiohttp.ClientSession,
) -> None:
    worker = SimulatedWorker("m")
    async with serving(
        "--worker-urls", worker.url, "--hold-timeout-secs", "30"
    ) as router:
        held = [asyncio.create_task(ask(http, router, chat("m"))) for _ in range(20)]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in held)
        await worker.start()
        replies = await asyncio.gather(*held)
        assert Counter(reply.status for reply in replies) == {200: 20}
    await worker.close()


async def test_a_held_request_is_refused_when_its_time_is_over(
    http: aiohttp.ClientSession,
) -> None:
    worker = SimulatedWorker("m")
    async with serving(
        "--worker-urls", worker.url, "--hold-timeout-secs", "0.3"
    ) as router:
        reply = await ask(http, router, chat("m"))
        assert (reply.status, reply.code) == (503, "no_available_workers")
    await worker.close()


async def test_ranks_are_workers_of_their_own(http: aiohttp.ClientSession) -> None:
    async with (
        SimulatedFleet(models=["m"], dp_size=2) as fleet,
        serving(
            "--worker-urls", *fleet.urls, "--intra-node-data-parallel-size", "2"
        ) as router,
    ):
        await until_ready(http, router, 2)
        listed = (await get(http, router, "/workers"))["workers"]
        assert [worker["url"] for worker in listed] == [
            f"{fleet[0].url}@0",
            f"{fleet[0].url}@1",
        ]
        assert [worker["dp_rank"] for worker in listed] == [0, 1]
        fleet[0].switch(hang=True)
        asked = [asyncio.create_task(ask(http, router, chat("m"))) for _ in range(6)]
        await until(lambda: fleet.running == 6)
        assert [len(engine.queue) for engine in fleet[0].state.engines] == [3, 3]
        fleet[0].switch(hang=False)
        await asyncio.gather(*asked)
        url = f"{router.url}/v1/chat/completions"
        for rank in ("0", "1"):
            pinned = {"X-data-parallel-rank": rank}
            async with http.post(url, json=chat("m"), headers=pinned) as response:
                assert response.headers["x-simulated-rank"] == rank
        missing = {"X-data-parallel-rank": "2"}
        async with http.post(url, json=chat("m"), headers=missing) as response:
            assert response.status == 400
