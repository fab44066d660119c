"""Adapters come and go at runtime, as with VLLM_ALLOW_RUNTIME_LORA_UPDATING."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from router.simulate import SimulatedFleet

from .conftest import CHAT

LOAD = "/v1/load_lora_adapter"
UNLOAD = "/v1/unload_lora_adapter"
SQL = {"lora_name": "sql", "lora_path": "/adapters/sql"}


async def post(
    http: aiohttp.ClientSession, url: str, body: dict[str, Any]
) -> tuple[int, str]:
    async with http.post(url, json=body) as response:
        return response.status, await response.text()


async def listed(http: aiohttp.ClientSession, url: str) -> list[str]:
    async with http.get(f"{url}/v1/models") as response:
        return [card["id"] for card in (await response.json())["data"]]


async def test_an_adapter_serves_from_its_load_to_its_unload(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"]) as fleet:
        url = fleet[0].url
        chat = CHAT | {"model": "sql"}
        assert (await post(http, f"{url}/v1/chat/completions", chat))[0] == 404
        status, text = await post(http, url + LOAD, SQL)
        assert status == 200
        assert text == "Success: LoRA adapter 'sql' added successfully."
        assert await listed(http, url) == ["tiny", "sql"]
        async with http.post(f"{url}/v1/chat/completions", json=chat) as response:
            assert (await response.json())["model"] == "sql"
        status, text = await post(http, url + UNLOAD, {"lora_name": "sql"})
        assert status == 200
        assert text == "Success: LoRA adapter 'sql' removed successfully."
        assert await listed(http, url) == ["tiny"]
        assert (await post(http, f"{url}/v1/chat/completions", chat))[0] == 404


async def test_metrics_name_an_adapter_once_it_was_asked_for(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"], loras=["sql"]) as fleet:
        url = fleet[0].url
        await post(http, f"{url}/v1/chat/completions", CHAT | {"model": "sql"})
        async with http.get(f"{url}/metrics") as response:
            page = await response.text()
    assert 'running_lora_adapters="sql"' in page


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        (LOAD, SQL, 400, "InvalidUserInput"),
        (LOAD, {"lora_name": "x"}, 400, "InvalidUserInput"),
        (LOAD, {"lora_name": "tiny", "lora_path": "/x"}, 400, "InvalidUserInput"),
        (LOAD, {"lora_name": "x", "lora_path": "/a/missing"}, 404, "NotFoundError"),
        (UNLOAD, {"lora_name": "x"}, 404, "NotFoundError"),
        (UNLOAD, {}, 400, "InvalidUserInput"),
    ],
)
async def test_what_cannot_be_loaded_or_unloaded_is_refused(
    http: aiohttp.ClientSession,
    path: str,
    body: dict[str, Any],
    status: int,
    kind: str,
) -> None:
    async with (
        SimulatedFleet(models=["tiny"], loras=["sql"]) as fleet,
        http.post(fleet[0].url + path, json=body) as response,
    ):
        assert response.status == status
        assert (await response.json())["error"]["type"] == kind


async def test_an_adapter_is_replaced_in_place_when_asked(
    http: aiohttp.ClientSession,
) -> None:
    async with SimulatedFleet(models=["tiny"], loras=["sql"]) as fleet:
        again = SQL | {"lora_path": "/adapters/sql-2", "load_inplace": True}
        assert (await post(http, fleet[0].url + LOAD, again))[0] == 200
        assert fleet[0].state.loras == {"sql": "/adapters/sql-2"}


async def test_adapters_can_be_given_by_worker(http: aiohttp.ClientSession) -> None:
    async with SimulatedFleet(2, models=["tiny"], loras={1: ["sql"]}) as fleet:
        lists = [await listed(http, worker.url) for worker in fleet]
    assert lists == [["tiny"], ["tiny", "sql"]]
