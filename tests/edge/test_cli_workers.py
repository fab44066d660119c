"""`router workers` against a router whose answers are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from router.cli import cli
from tests.edge.fleet import running_admin

W = {
    "id": "w-1",
    "url": "http://10.0.0.1:8000",
    "models": ["m1", "m2", "m3", "[red]m4[/red]"],
    "status": "ready",
    "load": 3,
    "weight": 1.5,
    "priority": 50,
    "last_error": None,
}
LIST = {"workers": [W], "total": 1, "stats": {"ready": 1, "in_flight": 3}}


@dataclass
class Router:
    """Gives every request the same answer, and remembers the requests."""

    status: int = 200
    body: bytes = json.dumps(LIST).encode()
    url: str = ""
    #: (method, path, Authorization, body) of each request.
    asked: list[tuple[str, str, str | None, object]] = field(default_factory=list)


@pytest.fixture
def router() -> Iterator[Router]:
    scripted = Router()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            key = self.headers.get("Authorization")
            scripted.asked.append((self.command, self.path, key, body))
            self.send_response(scripted.status)
            self.end_headers()
            self.wfile.write(scripted.body)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test reads `asked`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scripted.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield scripted
    server.shutdown()
    thread.join()
    server.server_close()


def workers(router: Router, name: str, *argv: str) -> Result:
    return CliRunner().invoke(cli, ["workers", name, "--router", router.url, *argv])


def test_list_prints_a_table_of_the_fleet(router: Router) -> None:
    """What a worker says of itself is text in it, and no markup."""
    router.body = router.body.replace(b"m2", b"[/nothing]")
    result = workers(router, "list")
    assert result.exit_code == 0
    for cell in ("w-1", "http://10.0.0.1:8000", "ready", "[/nothing]", "+1", "1.5"):
        assert cell in result.output
    assert "ready 1" in result.output


def test_list_prints_the_answer_as_json_for_scripts(router: Router) -> None:
    assert json.loads(workers(router, "list", "--json").output) == LIST


def test_watch_prints_the_fleet_again_and_again(router: Router) -> None:
    result = workers(router, "watch", "--json", "--interval", "0.1", "--count", "2")
    assert [json.loads(line) for line in result.output.splitlines()] == [LIST, LIST]


def test_watch_outlives_its_router(router: Router) -> None:
    router.status, router.body = 503, b"gone"
    result = workers(router, "watch", "--interval", "0.1", "--count", "2")
    assert (result.exit_code, "503" in result.output) == (0, True)
    assert len(router.asked) == 2


def test_add_sends_what_was_given_and_nothing_else(router: Router) -> None:
    router.body = json.dumps({"worker": W, "replaced": False}).encode()
    argv = "http://a --model m --alias x=m --weight 2 --worker-api-key sk --dp-size 2"
    result = workers(router, "add", *argv.split(), "--label", "zone=a")
    assert result.output == "added w-1 http://10.0.0.1:8000\n"
    (asked,) = router.asked
    assert asked == (
        "POST",
        "/workers",
        None,
        {
            "url": "http://a",
            "models": ["m"],
            "aliases": {"x": "m"},
            "weight": 2.0,
            "api_key": "sk",
            "labels": {"zone": "a"},
            "dp_size": 2,
        },
    )


@pytest.mark.parametrize(
    ("argv", "method", "path"),
    [
        (["remove", "w-1"], "DELETE", "/workers/w-1"),
        (
            ["remove", "http://a:1", "--drain-secs", "5"],
            "DELETE",
            "/workers/http%3A%2F%2Fa%3A1?drain_secs=5",
        ),
        (["drain", "http://a:1@0"], "POST", "/workers/http%3A%2F%2Fa%3A1%400/drain"),
    ],
)
def test_a_worker_is_named_by_its_id_or_url(
    router: Router, argv: list[str], method: str, path: str
) -> None:
    router.body = json.dumps(W).encode()
    result = workers(router, *argv)
    assert result.output.endswith("w-1 http://10.0.0.1:8000\n")
    assert router.asked == [(method, path, None, None)]


def test_the_admin_key_is_sent_as_a_bearer(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETROUTER_ADMIN_API_KEY", "from-env")
    workers(router, "list")
    workers(router, "list", "--admin-api-key", "from-flag")
    keys = [key for _, _, key, _ in router.asked]
    assert keys == ["Bearer from-env", "Bearer from-flag"]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b'{"error": {"message": "No such worker."}}', "No such worker. (404)"),
        (502, b"<html>", "502 Bad Gateway"),
        (200, b"[]", "is it a router?"),
        (200, b'{"workers": 1}', "is it a router?"),
        (200, b"<html>", "no answer from http://127.0.0.1"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    router: Router, status: int, body: bytes, said: str
) -> None:
    router.status, router.body = status, body
    result = workers(router, "list")
    assert (result.exit_code, said in result.output) == (1, True)
    assert len(result.output.splitlines()) == 1


async def test_a_worker_comes_and_goes_through_a_real_admin_api() -> None:
    async with running_admin(admin_api_key="sk") as admin:
        base = str(admin.client.make_url(""))

        async def said(*argv: str) -> str:
            result = await asyncio.to_thread(
                CliRunner().invoke,
                cli,
                ["workers", *argv, "--router", base, "--admin-api-key", "sk"],
            )
            assert result.exit_code == 0
            return result.output

        url = "http://10.0.0.1:8000"
        assert (await said("add", url, "--model", "m")).endswith(f" {url}\n")
        assert (await said("add", url)).startswith("replaced ")
        (worker,) = admin.fleet.registry.workers()
        assert worker.id in await said("list")
        assert await said("remove", url) == f"removed {worker.id} {url}\n"
        assert json.loads(await said("list", "--json"))["total"] == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nowhere", "ftp://a"])
def test_a_router_that_cannot_be_reached_is_said(url: str) -> None:
    result = CliRunner().invoke(cli, ["workers", "list", "--router", url])
    assert (result.exit_code, "no answer from" in result.output) == (1, True)


@pytest.mark.parametrize(
    "argv", [["add", "http://a", "--label", "x"], ["add", "http://a", "--alias", "=m"]]
)
def test_a_pair_that_is_none_is_a_usage_error(router: Router, argv: list[str]) -> None:
    result = workers(router, *argv)
    assert (result.exit_code, "is not NAME=VALUE" in result.output) == (2, True)
    assert router.asked == []
