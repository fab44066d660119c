"""The admin routes of vllm-router answer as its scripts expect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from aiohttp import web
from aiohttp.test_utils import TestServer

from router.fleet.worker import Status
from tests.edge.fleet import Admin, running_admin
from tests.edge.test_admin_workers import A, B, assert_error


async def test_add_worker_answers_once_the_worker_is_ready(admin: Admin) -> None:
    path = f"/add_worker?url={quote(A, safe='')}"
    asked = asyncio.create_task(admin.ask("POST", path))
    while not (workers := admin.fleet.registry.workers()):
        await asyncio.sleep(0)
    assert workers[0].status is Status.PENDING
    await admin.ask("GET", "/list_workers")
    assert not asked.done()
    admin.fleet.is_ready(workers[0].slot, "m")
    assert await asked == (200, f"Successfully added worker: {A}")


async def test_add_worker_refuses_a_url_that_is_there_already(admin: Admin) -> None:
    worker = admin.fleet.add("http://a:8000", "m")
    status, body = await admin.ask("POST", "/add_worker?url=http://a:8000/")
    assert status == 400
    assert_error(body, "invalid_request", "url")
    assert admin.fleet.registry.workers() == (worker,)


async def test_add_worker_gives_up_when_its_time_is_over_and_keeps_the_worker() -> None:
    async with running_admin(worker_startup_timeout=0.05) as admin:
        status, body = await admin.ask("POST", "/add_worker?url=http://a")
        assert status == 504
        assert_error(body, "worker_timeout")
        assert len(admin.fleet.registry.workers()) == 1


async def test_add_worker_ends_when_the_worker_is_removed_meanwhile(
    admin: Admin,
) -> None:
    asked = asyncio.create_task(admin.ask("POST", "/add_worker?url=http://a"))
    while not (workers := admin.fleet.registry.workers()):
        await asyncio.sleep(0)
    admin.fleet.registry.remove(workers[0].id)
    assert (await asked)[0] == 504


async def test_add_worker_waits_for_every_rank() -> None:
    async with running_admin(dp_size=2) as admin:
        asked = asyncio.create_task(admin.ask("POST", "/add_worker?url=http://a"))
        while not (workers := admin.fleet.registry.workers()):
            await asyncio.sleep(0)
        admin.fleet.is_ready(workers[0].slot, "m")
        await admin.ask("GET", "/list_workers")
        assert not asked.done()
        admin.fleet.is_ready(workers[1].slot, "m")
        assert (await asked)[0] == 200


async def test_the_url_is_asked_for_by_name(admin: Admin) -> None:
    for path in ("/add_worker", "/remove_worker", "/add_worker?url="):
        status, body = await admin.ask("POST", path)
        assert status == 400
        assert_error(body, "invalid_request", "url")


async def test_remove_worker_takes_the_worker_out(admin: Admin) -> None:
    admin.fleet.add(A, "m")
    path = f"/remove_worker?url={quote(A, safe='')}"
    assert await admin.ask("POST", path) == (200, f"Successfully removed worker: {A}")
    status, body = await admin.ask("POST", path)
    assert status == 404
    assert_error(body, "worker_not_found")


async def test_lists_and_loads_are_in_registration_order(admin: Admin) -> None:
    admin.fleet.add(B, "m")
    admin.fleet.registry.snapshot.everyone.least_load()
    admin.fleet.add(A, dp_size=2)
    urls = [B, f"{A}@0", f"{A}@1"]
    assert await admin.ask("GET", "/list_workers") == (200, {"urls": urls})
    loads = [
        {"worker": url, "load": load} for url, load in zip(urls, (1, 0, 0), strict=True)
    ]
    assert await admin.ask("GET", "/get_loads") == (200, {"workers": loads})


@asynccontextmanager
async def engine(status: int, asked: list[str | None]) -> AsyncIterator[str]:
    """The URL of a server that answers /reset_prefix_cache; the keys it was sent."""

    async def reset(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Authorization"))
        return web.Response(status=status)

    app = web.Application()
    app.add_routes([web.post("/reset_prefix_cache", reset)])
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_flush_cache_asks_each_ready_server_once() -> None:
    """With its own key or the router's; ranks share a server."""
    asked: list[str | None] = []
    async with (
        running_admin(worker_api_key="common") as admin,
        engine(200, asked) as one,
        engine(200, asked) as two,
        engine(200, asked) as pending,
    ):
        admin.fleet.add(one, "m", api_key="own")
        admin.fleet.add(two, "m", dp_size=2)
        admin.fleet.add(pending)
        answer = await admin.ask("POST", "/flush_cache")
    assert answer == (200, "Cache flushed on all servers")
    assert sorted(map(str, asked)) == ["Bearer common", "Bearer own"]


async def test_flush_cache_names_the_servers_where_it_failed(admin: Admin) -> None:
    """By id: what went wrong may be read by whoever sees the answer."""
    async with engine(200, []) as good, engine(404, []) as bad:
        admin.fleet.add(good, "m")
        refused = admin.fleet.add("http://127.0.0.1:1", "m")
        odd = admin.fleet.add(bad, "m")
        status, body = await admin.ask("POST", "/flush_cache")
    assert status == 502
    assert_error(body, "worker_unreachable")
    message = body["error"]["message"]
    assert message.startswith("Cache flushed on 1 of 3 servers; ")
    assert f"{refused.id} (unreachable)" in message
    assert f"{odd.id} (status 404)" in message


async def test_flush_cache_of_no_servers_is_done(admin: Admin) -> None:
    assert (await admin.ask("POST", "/flush_cache"))[0] == 200
