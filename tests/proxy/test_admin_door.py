"""The router's own paths, as a client reaches them: through the proxy."""

from __future__ import annotations

import json

import pytest

from tests.proxy.messages import code_of, completion, ok
from tests.proxy.running import running
from tests.support.http import post
from tests.support.raw_worker import RawWorker, like_vllm, saying

URL = "http://127.0.0.1:1"


def own(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: r\r\n\r\n".encode()


def chunks(body: bytes, size: int = 5) -> bytes:
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/liveness", 200),
        ("/readiness", 503),
        ("/health", 200),
        ("/v1/models", 200),
        ("/v1/models/org/name", 404),
        ("/workers", 200),
        ("/workers/none", 404),
        ("/metrics", 200),
        ("/list_workers", 200),
        ("/get_loads", 200),
        ("http://r/liveness?x=1", 200),
    ],
)
def test_the_router_s_own_paths_are_answered_without_a_worker(
    path: str, status: int
) -> None:
    with running() as router:
        answer = router.ask(own(path))
        assert answer.status == status
        assert answer.header(b"x-request-id")
        assert answer.header(b"x-router-worker") is None
        if status == 404:
            assert code_of(answer.body)


def test_an_own_path_keeps_the_client_s_request_id() -> None:
    with running() as router:
        request = b"GET /workers HTTP/1.1\r\nHost: r\r\nX-Correlation-Id: mine\r\n\r\n"
        assert router.ask(request).header(b"x-request-id") == b"mine"


@pytest.mark.parametrize("size", [10, 900_000])
def test_a_body_reaches_it_whole_in_chunks_or_not(size: int) -> None:
    body = json.dumps({"url": URL, "labels": {"x": "y" * size}}).encode()
    head = b"POST /workers HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
    with running() as router:
        for request in (post("/workers", body), head + chunks(body, 7000)):
            answer = router.ask(request)
            assert answer.status == 201
            assert len(json.loads(answer.body)["worker"]["labels"]["x"]) == size


def test_a_body_that_is_too_large_for_it_is_refused() -> None:
    body = json.dumps({"url": URL, "labels": {"x": "y" * 2_000_000}}).encode()
    with running() as router:
        answer = router.ask(post("/workers", body))
        assert (answer.status, code_of(answer.body)) == (413, "payload_too_large")
        router.at_rest()


@pytest.mark.parametrize(
    "rest", [b"zz\r\n", b"2\r\n{}x", b"5;a\x00=b\r\nhello\r\n"], ids=repr
)
def test_a_body_of_wrong_chunks_is_refused(rest: bytes) -> None:
    head = b"POST /workers HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
    with running() as router, router.client() as client:
        client.send(head, b"2\r\n{}\r\n", rest, delay=0.02)
        answer = client.read_answer()
        assert (answer.status, code_of(answer.body)) == (400, "invalid_request")
        assert client.ended()
        router.at_rest(client)


def test_a_body_that_is_not_whole_in_time_is_refused() -> None:
    with (
        running(flags=("--header-timeout-secs", "0.3")) as router,
        router.client() as client,
    ):
        client.send(post("/workers", b"{}")[:-1])
        answer = client.read_answer()
        assert (answer.status, code_of(answer.body)) == (408, "request_timeout")
        assert client.ended()
        router.at_rest(client)


@pytest.mark.parametrize(
    "fields", [f"X-Long: {'x' * 60_000}\r\n", "X-Many: x\r\n" * 240], ids=len
)
def test_a_large_head_reaches_it(fields: str) -> None:
    """As large as the router takes itself."""
    with running() as router:
        answer = router.ask(
            post("/workers", b'{"url": "%b"}' % URL.encode(), fields=fields)
        )
        assert answer.status == 201


@pytest.mark.parametrize("method", ["TRACE", "BREW"])
def test_a_method_that_no_own_path_takes_is_refused_in_our_words(method: str) -> None:
    request = f"{method} /workers HTTP/1.1\r\nHost: r\r\n\r\n".encode()
    with running() as router:
        answer = router.ask(request)
        assert (answer.status, code_of(answer.body)) == (405, "method_not_allowed")


def test_a_body_that_is_not_compressed_as_it_claims_is_not_looked_into() -> None:
    body = b'{"url": "%b"}' % URL.encode()
    with running() as router:
        for sent, status in ((body, 201), (b"\x1f\x8b\x08", 400)):
            answer = router.ask(
                post("/workers", sent, fields="Content-Encoding: gzip\r\n")
            )
            assert answer.status == status
            assert json.loads(answer.body)


def test_own_paths_do_not_count_among_the_answers_of_workers() -> None:
    with RawWorker(like_vllm("m", saying(ok()))) as worker, running(worker) as router:
        for _ in range(3):
            assert router.ask(own("/liveness")).status == 200
        assert router.sample("first_byte_seconds_count") == 0
        assert router.ask(completion()).status == 200
        assert router.sample("first_byte_seconds_count") == 1


def test_own_and_other_requests_in_one_pipeline_are_answered_in_order() -> None:
    with (
        RawWorker(like_vllm("m", saying(ok(b"worker")))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send((completion() + own("/liveness") + own("/workers")) * 10)
        for _ in range(10):
            assert client.read_answer().body == b"worker"
            assert client.read_answer().status == 200
            assert b'"workers"' in client.read_answer().body
        router.at_rest(client)


def test_a_client_that_leaves_meanwhile_is_no_error() -> None:
    """The worker never comes up; add_worker waits for it."""
    with running() as router:
        with router.client() as client:
            client.send(
                f"POST /add_worker?url={URL} HTTP/1.1\r\nHost: r\r\n\r\n".encode()
            )
            router.until(lambda: len(router.workers()) == 1, "it is being added")
        router.at_rest()
        assert router.call("DELETE", f"/workers/{router.workers()[0]['id']}")[0] == 200


@pytest.mark.parametrize("path", ["/Workers", "/workersx", "//workers", "/v1/modelsx"])
def test_other_paths_are_not_the_router_s(path: str) -> None:
    with running() as router:
        assert code_of(router.ask(own(path)).body) == "no_available_workers"


# --- who may ------------------------------------------------------------------------


def test_a_client_cannot_say_that_it_is_another_peer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its own X-Router-Peer does not count, and no Connection takes ours away."""
    register = f'{{"url": "{URL}"}}'.encode()
    caplog.set_level("INFO", "router")
    with running() as router:
        for lines in (
            "X-Router-Peer: 10.0.0.1\r\n",
            "Connection: X-Router-Peer\r\n",
            "x-router-peer: 10.0.0.1\r\nX-ROUTER-PEER: ::1\r\n",
        ):
            assert router.ask(post("/workers", register, fields=lines)).status == 201
    told = [r.__dict__["client"] for r in caplog.records if "client" in r.__dict__]
    assert told == ["127.0.0.1"] * 3


def test_who_comes_by_way_of_another_machine_may_not_write() -> None:
    register = f'{{"url": "{URL}"}}'.encode()
    with running() as router:
        fields = "X-Forwarded-For: 10.0.0.1\r\nX-Router-Peer: 127.0.0.1\r\n"
        answer = router.ask(post("/workers", register, fields=fields))
        assert (answer.status, code_of(answer.body)) == (403, "admin_forbidden")


def test_with_an_admin_key_only_its_holder_may() -> None:
    register = f'{{"url": "{URL}"}}'.encode()
    with running(flags=("--admin-api-key", "secret")) as router:
        answer = router.ask(post("/workers", register))
        assert (answer.status, code_of(answer.body)) == (401, "invalid_api_key")
        fields = "Authorization: Bearer secret\r\n"
        assert router.ask(post("/workers", register, fields=fields)).status == 201
