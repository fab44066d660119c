"""What machines ask of the router: alive, ready, healthy, which models."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from router.fleet.worker import ModelCard
from tests.edge.fleet import Admin, running_admin
from tests.edge.test_admin_workers import A, B, assert_error


async def status_of(admin: Admin, path: str) -> tuple[int, str]:
    status, body = await admin.ask("GET", path)
    return status, body["status"]


async def test_a_router_without_workers_is_alive_and_healthy_but_not_ready(
    admin: Admin,
) -> None:
    assert await status_of(admin, "/liveness") == (200, "alive")
    assert await status_of(admin, "/health") == (200, "healthy")
    assert await status_of(admin, "/readiness") == (503, "not_ready")


async def test_a_router_that_waits_for_its_first_worker_is_not_healthy_yet(
    admin: Admin,
) -> None:
    """Launchers poll /health until the fleet is up."""
    worker = admin.fleet.add(A)
    assert await status_of(admin, "/health") == (503, "unhealthy")
    admin.fleet.is_ready(worker.slot, "m")
    assert await status_of(admin, "/health") == (200, "healthy")


async def test_one_bad_worker_makes_the_router_neither_unhealthy_nor_unready(
    admin: Admin,
) -> None:
    admin.fleet.add(A, "m")
    down = admin.fleet.add(B, "m")
    admin.fleet.registry.set_health(down.slot, False, "refused")
    admin.fleet.registry.flush()
    assert await status_of(admin, "/health") == (200, "healthy")
    status, body = await admin.ask("GET", "/readiness")
    assert status == 200
    assert body == {
        "status": "ready",
        "ready_workers": 1,
        "total_workers": 2,
        "models": {"m": {"ready": 1, "total": 2}},
    }


async def test_a_router_that_lost_all_its_workers_is_not_healthy(admin: Admin) -> None:
    worker = admin.fleet.add(A, "m")
    admin.fleet.registry.remove(worker.id)
    assert await status_of(admin, "/health") == (503, "unhealthy")


async def test_so_many_workers_must_be_ready_as_was_asked_for() -> None:
    async with running_admin(min_ready_workers=2) as admin:
        admin.fleet.add(A, "m")
        assert await status_of(admin, "/health") == (503, "unhealthy")
        assert await status_of(admin, "/readiness") == (503, "not_ready")
        admin.fleet.add(B, "m")
        assert await status_of(admin, "/health") == (200, "healthy")
        assert await status_of(admin, "/readiness") == (200, "ready")


async def test_a_draining_router_is_alive_but_takes_nothing_new(admin: Admin) -> None:
    admin.fleet.add(A, "m")
    admin.fleet.draining = True
    assert await status_of(admin, "/readiness") == (503, "draining")
    assert await status_of(admin, "/liveness") == (200, "alive")
    assert await status_of(admin, "/health") == (200, "healthy")


async def test_models_are_merged_over_ready_workers_each_once(admin: Admin) -> None:
    one = admin.fleet.add(A, "org/base", aliases={"short": "org/base"})
    two = admin.fleet.add(B, "org/base")
    down = admin.fleet.add("http://10.0.0.3", "other")
    admin.fleet.registry.set_health(down.slot, False, "refused")
    base = ModelCard("org/base", root="/models/base", max_model_len=4096, created=7)
    lora = ModelCard("lora", parent="org/base", root="/lora", created=8)
    admin.fleet.registry.sync_models(one.slot, [base])
    admin.fleet.registry.sync_models(two.slot, [base, lora])
    admin.fleet.registry.flush()
    status, body = await admin.ask("GET", "/v1/models")
    assert (status, body["object"]) == (200, "list")
    assert [card["id"] for card in body["data"]] == ["org/base", "lora", "short"]
    assert body["data"][1] == {
        "id": "lora",
        "object": "model",
        "created": 8,
        "owned_by": "vllm",
        "root": "/lora",
        "parent": "org/base",
        "max_model_len": None,
        "permission": [],
    }


@pytest.mark.parametrize("encoded", [True, False])
async def test_a_model_is_asked_for_by_an_id_that_may_hold_a_slash(
    admin: Admin, encoded: bool
) -> None:
    admin.fleet.add(A, "org/base")
    key = quote("org/base", safe="") if encoded else "org/base"
    status, body = await admin.ask("GET", f"/v1/models/{key}")
    assert (status, body["id"]) == (200, "org/base")
    status, body = await admin.ask("GET", f"/v1/models/{key}x")
    assert status == 404
    assert_error(body, "model_not_found", "model")


async def test_the_list_of_models_is_that_of_now(admin: Admin) -> None:
    """Also when it was asked for a moment ago."""
    worker = admin.fleet.add(A, "m")
    seen = []
    for healthy in (True, False, True):
        admin.fleet.registry.set_health(worker.slot, healthy, "refused")
        if healthy:
            admin.fleet.is_ready(worker.slot, "m")
        _, body = await admin.ask("GET", "/v1/models")
        seen.append([card["id"] for card in body["data"]])
    assert seen == [["m"], [], ["m"]]
