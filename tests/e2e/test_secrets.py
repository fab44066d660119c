"""Nothing that is secret is shown: in no log, answer, list, metric or command line."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.proxy.messages import answer_of, ok
from tests.support.http import RawClient, post
from tests.support.raw_worker import RawConnection, RawWorker, like_vllm
from tests.support.router_process import RouterProcess

#: Of the router, of a worker, of clients, and what clients say.
SECRETS = {
    name: f"hush-{name}-0123456789"
    for name in ("all", "admin", "own", "bearer", "api", "cookie", "query", "prompt")
}
CLIENT = (
    "Authorization: Bearer {bearer}\r\nX-API-Key: {api}\r\nCookie: id={cookie}\r\n"
).format(**SECRETS)


def behave(connection: RawConnection, request: bytes) -> None:
    """Fails in the ways in which routers have something to say."""
    match request.split(b" ", 2)[1].partition(b"?")[0]:
        case b"/garbage":
            connection.send(request + b"\r\n\r\n")
        case b"/lost":
            connection.reset()
        case b"/refused":
            connection.send(answer_of(401))
        case b"/cut":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
            connection.close()
        case _:
            connection.send(ok())


def requests() -> list[bytes]:
    """What clients send, with secrets wherever they may stand."""
    body = '{{"model":"m","prompt":"{prompt}"}}'.format(**SECRETS).encode()
    query = "?api_key={query}".format(**SECRETS)
    wrong = body[:-1]
    return [
        *(
            post(path + query, body, fields=CLIENT)
            for path in ("/v1/x", "/garbage", "/lost", "/refused", "/cut", "/workers")
        ),
        post("/v1/x" + query, body.replace(b'"m"', b'"none"'), fields=CLIENT),
        post("/v1/x" + query, wrong, fields=CLIENT),
        f"GET /v1/models{query} HTTP/1.1\r\nHost: r\r\n{CLIENT}\r\n".encode(),
        # Read, and refused for something else.
        f"GET /x{query} HTTP/1.1\r\nHost: r\r\n{CLIENT}A : b\r\n\r\n".encode(),
        f"GET /x{query} HTTP/1.1\r\n{CLIENT}\r\n".encode(),
        f"GET /x{query}#x HTTP/1.1\r\nHost: r\r\n{CLIENT}\r\n".encode(),
    ]


def test_no_secret_is_shown_anywhere(tmp_path: Path) -> None:
    for name in ("all", "admin"):
        (tmp_path / name).write_text(SECRETS[name] + "\n")
    admin = {"Authorization": f"Bearer {SECRETS['admin']}"}
    flags = (
        *("--api-key", f"@{tmp_path / 'all'}", "--access-log", "--log-level", "debug"),
        *("--admin-api-key", f"@{tmp_path / 'admin'}"),
    )
    with (
        RawWorker(like_vllm("m", behave)) as a,
        RawWorker(like_vllm("m", behave)) as b,
        RouterProcess("--worker-urls", a.url, *flags) as router,
    ):

        def listed(status: str) -> bool:
            found = router.call("GET", "/workers", headers=admin)[1]["workers"]
            return status in [worker["status"] for worker in found]

        registered = {"url": b.url, "api_key": SECRETS["own"]}
        shown = [router.call("POST", "/workers", registered, headers=admin)]
        a.wait_for(lambda: not listed("pending"))
        for request in requests():
            with RawClient(router.port) as client:
                client.send(request)
                shown.append((0, client.read_some()))
        b.refuse()
        for connection in b.connections:
            connection.end()
        for _ in range(30):
            shown.append(router.call("POST", "/v1/x", {"model": "m"}))
        a.wait_for(lambda: listed("unhealthy"))
        for path in ("/workers", "/list_workers", "/get_loads", "/metrics"):
            shown.append(router.call("GET", path, headers=admin))
        shown.append(router.call("GET", "/workers", headers={"Authorization": "x"}))
        if sys.platform == "linux":
            shown.append((0, Path(f"/proc/{router.pid}/cmdline").read_bytes()))
        told = repr(shown)
    for worker in (a, b):
        assert all(b"hush-" in request for request in worker.requests)
    logs = router.logs()
    assert "worker" in logs
    assert "request" in logs
    assert [name for name, secret in SECRETS.items() if secret in told + logs] == []
