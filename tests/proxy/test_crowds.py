"""Many requests, of every kind, under every policy: no limits but the named ones."""

from __future__ import annotations

import threading

import pytest

from router.settings.table import POLICIES
from tests.hostile.crowd import Crowd, descriptors
from tests.proxy.messages import answer_of, code_of, completion, ok
from tests.proxy.running import PATIENCE, running
from tests.support.http import post
from tests.support.raw_worker import (
    Exchange,
    RawConnection,
    RawWorker,
    like_vllm,
    saying,
)

MANY = 1_100
FORM = (
    b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: r\r\n%b"
    b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 66\r\n\r\n"
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n\r\n\r\n'
)
SESSION = b"X-Session-ID: s\r\n"
KINDS = {
    "json": completion(fields=SESSION.decode()),
    "json of a user": completion(user="s"),
    "a form": FORM % SESSION,
    "a form without a session": FORM % b"",
    "a query": b"POST /v1/x?model=m HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"GET /v1/x HTTP/1.1\r\nHost: r\r\n%b\r\n" % SESSION,
    "a websocket": b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: r\r\n"
    b"Connection: upgrade\r\nUpgrade: websocket\r\n%b\r\n" % SESSION,
}


def lose(connection: RawConnection, request: bytes) -> None:
    connection.reset()


def test_1100_requests_at_once_are_all_at_their_worker_and_own_paths_answer() -> None:
    """There is no hidden pool, queue or limit; operators do not wait behind streams."""
    go = threading.Event()

    def wait(connection: RawConnection, request: bytes) -> None:
        go.wait(PATIENCE)
        connection.send(ok())

    with (
        descriptors(4 * MANY),
        RawWorker(like_vllm("m", wait), backlog=MANY) as worker,
        running(worker) as router,
        Crowd(router.port, MANY) as crowd,
    ):
        crowd.send(completion())
        router.serving(MANY)
        for path in ("/liveness", "/readiness", "/health", "/v1/models", "/metrics"):
            assert router.call("GET", path)[0] == 200
        go.set()
        assert {answer[:12] for answer in crowd.answers()} == {b"HTTP/1.1 200"}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_every_kind_of_request(policy: str) -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as a,
        RawWorker(like_vllm("m", saying(ok()))) as b,
        running(a, b, flags=("--policy", policy)) as router,
    ):
        for name, request in KINDS.items():
            assert (name, router.ask(request).status) == (name, 200)
        router.at_rest()


@pytest.mark.parametrize(
    "sick",
    [saying(answer_of(500)), saying(answer_of(503)), saying(b"no\r\n\r\n"), lose],
    ids=["500", "503", "no HTTP", "lost"],
)
def test_a_session_whose_worker_fails_is_served_by_the_next_of_its_own_order(
    sick: Exchange,
) -> None:
    """Retries do not all go to the worker where the session is at home."""

    def named(name: bytes) -> RawWorker:
        return RawWorker(like_vllm("m", saying(ok(name))))

    flags = ("--policy", "consistent_hash", "--retry-initial-backoff-ms", "0")
    request = completion(fields="X-Session-ID: s\r\n")
    with (
        named(b"a") as a,
        named(b"b") as b,
        named(b"c") as c,
        running(a, b, c, flags=flags) as router,
    ):
        workers = {b"a": a, b"b": b, b"c": c}
        home = router.ask(request).body
        workers[home].script = like_vllm("m", sick)
        # Connections that are kept still have the old script.
        for connection in workers[home].connections:
            connection.end()
        others = {router.ask(request).body for _ in range(10)}
        assert len(others) == 1
        assert others < workers.keys() - {home}


def test_a_client_without_a_key_gets_none_on_the_way() -> None:
    """Not even an empty one, which vLLM would refuse."""
    with RawWorker(like_vllm("m", saying(ok()))) as worker, running(worker) as router:
        assert router.ask(completion()).status == 200
        assert b"authorization" not in b"".join(
            each.received.lower() for each in worker.connections
        )


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/anything/else", "/", "//v1//x", "/v1/models2"]
)
def test_every_path_has_the_same_limits(path: str) -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=("--max-payload-size", "1000")) as router,
    ):
        answer = router.ask(post(path, b'{"model":"m","x":"%b"}' % (b"x" * 1000)))
        assert (answer.status, code_of(answer.body)) == (413, "payload_too_large")
        answer = router.ask(post(path, b'{"model":"x"}'))
        assert (answer.status, code_of(answer.body)) == (404, "model_not_found")
        assert router.ask(post(path, b'{"model":"m"}')).status == 200
