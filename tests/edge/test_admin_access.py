"""Who may use the admin API, and what every answer of it has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiohttp import hdrs

from router.admin import is_admin_path
from tests.edge.fleet import LOOPBACK, REMOTE, Admin, running_admin
from tests.edge.test_admin_workers import assert_error

OPEN = ["/liveness", "/readiness", "/health", "/metrics", "/v1/models", "/v1/models/m"]
READS = ["/workers", "/workers/w", "/list_workers", "/get_loads"]
WRITES = [
    ("POST", "/workers"),
    ("PATCH", "/workers/w"),
    ("DELETE", "/workers/w"),
    ("POST", "/workers/w/drain"),
    ("POST", "/add_worker"),
    ("POST", "/remove_worker"),
    ("POST", "/flush_cache"),
]


def bearer(key: str, scheme: str = "Bearer") -> dict[str, str]:
    return {**REMOTE, "Authorization": f"{scheme} {key}"}


@pytest.mark.parametrize("path", OPEN)
async def test_what_machines_ask_for_needs_no_key(path: str) -> None:
    async with running_admin(admin_api_key="sk") as admin:
        status, _ = await admin.ask("GET", path, headers=REMOTE)
        assert status not in (401, 403)


@pytest.mark.parametrize(("method", "path"), [*(("GET", p) for p in READS), *WRITES])
async def test_with_a_key_every_other_route_asks_for_it(method: str, path: str) -> None:
    """From this machine, too."""
    async with running_admin(admin_api_key="sk") as admin:
        for headers in (LOOPBACK, bearer("sk-"), bearer("s"), bearer("sk", "Basic")):
            status, body, answer = await admin.full(method, path, headers=headers)
            assert status == 401
            assert_error(body, "invalid_api_key")
            assert answer["WWW-Authenticate"] == "Bearer"
        for headers in (bearer("sk"), bearer("sk", "bearer")):
            status, _ = await admin.ask(method, path, headers=headers)
            assert status != 401


async def test_with_a_key_a_path_that_is_not_there_asks_for_it_first() -> None:
    async with running_admin(admin_api_key="sk") as admin:
        assert (await admin.ask("GET", "/workers/", headers=REMOTE))[0] == 401
        assert (await admin.ask("PUT", "/workers", headers=REMOTE))[0] == 401


async def test_a_key_beyond_ascii_is_wrong_and_no_more() -> None:
    async with running_admin(admin_api_key="sk") as admin:
        status, _ = await admin.ask("GET", "/workers", headers=bearer("s\u00e4"))
        assert status == 401


@pytest.mark.parametrize("path", READS)
async def test_without_a_key_everybody_may_read(admin: Admin, path: str) -> None:
    status, _ = await admin.ask("GET", path, headers=REMOTE)
    assert status in (200, 404)


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize(
    "headers",
    [
        REMOTE,
        {"X-Router-Peer": "::ffff:10.0.0.9"},
        {"X-Router-Peer": "localhost"},
        {"X-Router-Peer": ""},
        {"Host": "127.0.0.1"},
        {**LOOPBACK, "X-Forwarded-For": "10.0.0.9"},
        {**LOOPBACK, "X-Forwarded-For": "10.0.0.9, 127.0.0.1"},
        {**LOOPBACK, "X-Forwarded-For": "unknown"},
        {**LOOPBACK, "Origin": "http://127.0.0.1:30000"},
    ],
)
async def test_without_a_key_writes_are_taken_from_this_machine_only(
    admin: Admin, method: str, path: str, headers: dict[str, str]
) -> None:
    """Neither through a proxy on it, nor from a page that its browser shows."""
    status, body = await admin.ask(method, path, headers=headers)
    assert status == 403
    assert_error(body, "admin_forbidden")


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
async def test_every_address_of_this_machine_may_write(admin: Admin, peer: str) -> None:
    headers = {"X-Router-Peer": peer, "X-Forwarded-For": peer}
    body = {"url": "http://a"}
    status, _ = await admin.ask("POST", "/workers", body, headers)
    assert status == 201


async def test_clients_of_models_may_end_their_sessions(admin: Admin) -> None:
    """They are not on this machine, and have no admin key when there is none."""
    path = "/finish_session?session_id=s"
    for _ in range(2):
        status, body = await admin.ask("POST", path, headers=REMOTE)
        assert (status, body) == (200, {"status": "ok", "session_id": "s"})


@pytest.mark.parametrize("path", ["/", "/ui", "/metrics/", "/workersx"])
async def test_a_path_that_is_not_there_is_said_in_the_one_shape(
    admin: Admin, path: str
) -> None:
    status, body, headers = await admin.full("GET", path)
    assert status == 404
    assert_error(body, "not_found")
    assert headers["X-Request-Id"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/workers", "GET, HEAD, POST"),
        ("POST", "/health", "GET, HEAD"),
        ("GET", "/add_worker", "POST"),
        ("POST", "/workers/w", "DELETE, GET, HEAD, PATCH"),
    ],
)
async def test_a_method_that_is_not_there_is_said_with_those_that_are(
    admin: Admin, method: str, path: str, allow: str
) -> None:
    status, body, headers = await admin.full(method, path)
    assert status == 405
    assert_error(body, "method_not_allowed")
    assert headers["Allow"] == allow


@pytest.mark.parametrize("path", ["/health", "/workers", "/nowhere"])
async def test_a_request_id_is_kept_or_made(admin: Admin, path: str) -> None:
    kept = {**LOOPBACK, "X-Request-Id": "mine"}
    assert (await admin.full("GET", path, headers=kept))[2]["X-Request-Id"] == "mine"
    made = [(await admin.full("GET", path))[2]["X-Request-Id"] for _ in range(2)]
    assert made[0] != made[1]


async def test_a_read_can_be_asked_for_its_head(admin: Admin) -> None:
    assert (await admin.ask("HEAD", "/health"))[0] == 200


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        *((path, True) for path in OPEN),
        ("/workers", True),
        ("/workers/http%3A%2F%2Fa", True),
        ("/v1/models/org/model", True),
        ("/finish_session", True),
        ("/v1/chat/completions", False),
        ("/v1/modelsx", False),
        ("/workersx", False),
        ("/metricsx", False),
        ("/", False),
        ("*", False),
        ("", False),
    ],
)
def test_what_is_the_routers_own_is_told_by_the_path(path: str, ours: bool) -> None:
    assert is_admin_path(path.encode()) is ours


async def test_every_route_of_the_application_is_told_to_be_the_routers_own(
    admin: Admin,
) -> None:
    """Or the proxy would send it to a worker."""
    app = admin.client.server.app  # type: ignore[attr-defined]
    paths = [resource.canonical for resource in app.router.resources()]
    assert len(paths) >= 14
    assert [path for path in paths if not is_admin_path(path.encode())] == []
    assert hdrs.METH_POST in {route.method for route in app.router.routes()}


async def test_a_fault_of_ours_has_the_shape_of_errors_and_is_logged(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    admin.fleet.add("http://10.0.0.1:8000", "m")

    def fails(number: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(admin.fleet, "slots", SimpleNamespace(load_of=fails))
    status, body = await admin.ask("GET", "/workers")
    assert status == 500
    assert_error(body, "internal_error")
    assert "ZeroDivisionError" in caplog.text
