"""/workers: the fleet seen and changed over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from router.fleet.worker import to_json
from tests.edge.fleet import Admin, running_admin

A, B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


def assert_error(body: object, code: str, param: str | None = None) -> None:
    """The one shape of errors."""
    assert isinstance(body, dict)
    error = body["error"]
    assert body.keys() == {"error"}
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)


async def test_a_registered_worker_is_there_at_once_and_pending(admin: Admin) -> None:
    status, body = await admin.ask("POST", "/workers", {"url": A, "model_id": "m"})
    assert (status, body["replaced"]) == (201, False)
    worker = body["worker"]
    assert worker == {
        "id": worker["id"],
        "url": A,
        "base_url": A,
        "dp_rank": None,
        "model_id": "m",
        "models": ["m"],
        "aliases": {},
        "status": "pending",
        "is_healthy": False,
        "circuit": "closed",
        "load": 0,
        "weight": 1.0,
        "max_concurrency": 0,
        "worker_type": "regular",
        "connection_mode": "http",
        "provider": None,
        "labels": {},
        "priority": 50,
        "registered_at": 1.0,
        "ready_at": None,
        "last_error": None,
    }
    assert "10.0.0.1" not in worker["id"]
    assert await admin.ask("GET", f"/workers/{worker['id']}") == (200, worker)
    _, listed = await admin.ask("GET", "/workers")
    assert listed["workers"] == [worker]


async def test_a_url_that_is_there_already_is_replaced(admin: Admin) -> None:
    _, first = await admin.ask("POST", "/workers", {"url": A})
    status, second = await admin.ask("POST", "/workers", {"url": f"{A}/"})
    assert (status, second["replaced"]) == (201, True)
    assert second["worker"]["id"] != first["worker"]["id"]
    status, body = await admin.ask("GET", f"/workers/{first['worker']['id']}")
    assert status == 404
    assert_error(body, "worker_not_found")


async def test_the_list_is_in_registration_order_with_totals(admin: Admin) -> None:
    ready = admin.fleet.add(B, "m")
    pending = admin.fleet.add(A)
    admin.fleet.registry.snapshot.everyone.least_load()
    status, body = await admin.ask("GET", "/workers")
    assert status == 200
    assert [worker["url"] for worker in body["workers"]] == [B, A]
    assert body["total"] == 2
    assert body["stats"] == {
        "ready": 1,
        "pending": 1,
        "unhealthy": 0,
        "draining": 0,
        "in_flight": 1,
    }
    assert body["workers"] == [to_json(ready, 1), to_json(pending, 0)]


async def test_load_status_and_circuit_in_the_list_are_those_of_now(
    admin: Admin,
) -> None:
    """What is kept of a worker's JSON never holds them."""
    worker = admin.fleet.add(A, "m")
    slot = admin.fleet.registry.snapshot.everyone.least_load()
    for load, healthy in ((1, True), (1, False), (0, True)):
        if load == 0:
            assert slot is not None
            admin.fleet.slots.release(slot)
        admin.fleet.registry.set_health(worker.slot, healthy, "no answer")
        if healthy:
            admin.fleet.is_ready(worker.slot, "m")
        _, body = await admin.ask("GET", "/workers")
        (listed,) = body["workers"]
        assert (listed["load"], listed["is_healthy"]) == (load, healthy)
        assert listed["status"] == ("ready" if healthy else "unhealthy")


async def test_the_list_of_a_model_holds_all_its_candidates_whatever_their_status(
    admin: Admin,
) -> None:
    admin.fleet.add(A, "m")
    admin.fleet.add(B, "n")
    down = admin.fleet.add("http://10.0.0.3", "m", aliases={"x": "m"})
    admin.fleet.registry.set_health(down.slot, False, "refused")
    admin.fleet.registry.flush()
    for model, urls in (("m", [A, down.url]), ("x", [down.url]), ("none", [])):
        _, body = await admin.ask("GET", f"/workers?model={model}")
        assert [worker["url"] for worker in body["workers"]] == urls
        assert body["total"] == len(urls)


async def test_a_list_longer_than_a_slice_is_whole(admin: Admin) -> None:
    urls = [f"http://worker-{number}" for number in range(600)]
    for url in urls:
        await admin.ask("POST", "/workers", {"url": url})
    for _ in range(2):
        _, body = await admin.ask("GET", "/workers")
        assert [worker["url"] for worker in body["workers"]] == urls


@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("ranked", [True, False])
async def test_a_worker_is_named_by_its_url_encoded_or_not(
    admin: Admin, encoded: bool, ranked: bool
) -> None:
    worker = admin.fleet.add(A, **({"dp_size": 2} if ranked else {}))
    key = quote(worker.url, safe="") if encoded else worker.url
    status, body = await admin.ask("GET", f"/workers/{key}")
    assert (status, body["id"]) == (200, worker.id)


async def test_a_patch_changes_what_it_names_and_nothing_else(admin: Admin) -> None:
    worker = admin.fleet.add(A, "m", labels={"zone": "a"})
    change = {"weight": 2.5, "priority": 10, "aliases": ["x"]}
    status, body = await admin.ask("PATCH", f"/workers/{worker.id}", change)
    assert status == 200
    assert (body["weight"], body["priority"]) == (2.5, 10)
    assert (body["labels"], body["aliases"]) == ({"zone": "a"}, {"x": "m"})
    assert await admin.ask("GET", f"/workers/{worker.id}") == (200, body)
    assert await admin.ask("PATCH", f"/workers/{worker.id}", {}) == (200, body)


async def test_a_draining_worker_is_given_nothing_and_goes_when_it_is_empty(
    admin: Admin,
) -> None:
    worker = admin.fleet.add(A, "m")
    slot = admin.fleet.registry.snapshot.everyone.least_load()
    assert slot is not None
    status, body = await admin.ask("POST", f"/workers/{worker.id}/drain")
    assert (status, body["status"], body["load"]) == (200, "draining", 1)
    assert admin.fleet.registry.snapshot.everyone.least_load() is None
    admin.fleet.slots.release(slot)
    admin.fleet.registry.tick()
    status, _ = await admin.ask("GET", f"/workers/{worker.id}")
    assert status == 404


async def test_a_deleted_worker_is_gone_and_its_running_requests_are_counted_on(
    admin: Admin,
) -> None:
    worker = admin.fleet.add(A, "m")
    admin.fleet.registry.snapshot.everyone.least_load()
    status, body = await admin.ask("DELETE", f"/workers/{worker.id}")
    assert (status, body["id"], body["load"]) == (200, worker.id, 1)
    status, body = await admin.ask("DELETE", f"/workers/{worker.id}")
    assert status == 404
    assert_error(body, "worker_not_found")
    assert (await admin.ask("GET", "/workers"))[1]["total"] == 0


async def test_a_delete_with_time_to_drain_lets_the_worker_finish(
    admin: Admin,
) -> None:
    worker = admin.fleet.add(A, "m")
    admin.fleet.registry.snapshot.everyone.least_load()
    path = f"/workers/{worker.id}?drain_secs=100"
    status, body = await admin.ask("DELETE", path)
    assert (status, body["status"]) == (200, "draining")
    assert (await admin.ask("GET", f"/workers/{worker.id}"))[0] == 200


@pytest.mark.parametrize("seconds", ["-1", "x", "nan", "inf", ""])
async def test_a_bad_time_to_drain_changes_nothing(admin: Admin, seconds: str) -> None:
    worker = admin.fleet.add(A, "m")
    path = f"/workers/{worker.id}?drain_secs={seconds}"
    status, body = await admin.ask("DELETE", path)
    assert status == 400
    assert_error(body, "invalid_request", "drain_secs")
    assert admin.fleet.registry.find(worker.id) is worker


async def test_ranks_are_registered_and_removed_together(admin: Admin) -> None:
    status, body = await admin.ask("POST", "/workers", {"url": A, "dp_size": 3})
    assert status == 201
    assert [w["url"] for w in body["workers"]] == [f"{A}@{rank}" for rank in range(3)]
    assert body["worker"] == body["workers"][0]
    await admin.ask("DELETE", f"/workers/{quote(A, safe='')}")
    assert (await admin.ask("GET", "/workers"))[1]["total"] == 0


async def test_a_url_without_a_number_of_ranks_has_that_of_the_router() -> None:
    async with running_admin(dp_size=2) as admin:
        _, body = await admin.ask("POST", "/workers", {"url": A})
        assert [worker["dp_rank"] for worker in body["workers"]] == [0, 1]
        _, body = await admin.ask("POST", "/workers", {"url": B, "dp_size": 1})
        assert [worker["dp_rank"] for worker in body["workers"]] == [0]


async def test_a_key_is_taken_and_never_shown(admin: Admin) -> None:
    fields = {"url": A, "api_key": "sk-secret", "cost": 2.5}
    _, body = await admin.ask("POST", "/workers", fields)
    assert body["worker"]["labels"] == {"cost": "2.5"}
    assert "api_key" not in body["worker"]
    for path in ("/workers", f"/workers/{body['worker']['id']}", "/metrics"):
        assert "sk-secret" not in str(await admin.ask("GET", path))


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"[]", "invalid_json", None),
        (b'"\xff"', "invalid_json", None),
        (b"[" * 100_000, "invalid_json", None),
        (b"{}", "invalid_request", "url"),
        (b'{"url": 1}', "invalid_request", "url"),
        (b'{"url": "ftp://a"}', "invalid_request", "url"),
        (
            b'{"url": "http://a", "bootstrap_port": 1}',
            *("invalid_request", "bootstrap_port"),
        ),
        (b'{"url": "http://a", "weight": 0}', "invalid_request", "weight"),
        (b'{"url": "http://a", "weight": "1"}', "invalid_request", "weight"),
        (b'{"url": "http://a", "api_key": "a b"}', "invalid_request", "api_key"),
    ],
)
async def test_a_bad_registration_is_refused_by_the_name_of_what_is_wrong(
    admin: Admin, body: bytes, code: str, param: str | None
) -> None:
    status, answer, headers = await admin.full("POST", "/workers", data=body)
    assert status == 400
    assert_error(answer, code, param)
    assert headers["X-Request-Id"]
    assert admin.fleet.registry.workers() == ()


async def test_a_patch_of_what_cannot_be_changed_is_refused(admin: Admin) -> None:
    worker = admin.fleet.add(A, "m")
    status, body = await admin.ask("PATCH", f"/workers/{worker.id}", {"url": B})
    assert status == 400
    assert_error(body, "invalid_request", "url")


async def test_a_body_that_is_too_large_is_refused(admin: Admin) -> None:
    body = b'{"url": "http://a", "labels": {"x": "' + b"x" * 2_000_000 + b'"}}'
    status, answer, _ = await admin.full("POST", "/workers", data=body)
    assert status == 413
    assert_error(answer, "payload_too_large")
