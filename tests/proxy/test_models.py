"""Which worker a request gets by what it says, and what it is told if it gets none."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.proxy.messages import answer_of, code_of, completion, ok
from tests.proxy.running import Running, running
from tests.support.http import post
from tests.support.raw_worker import (
    RawConnection,
    RawWorker,
    body_of,
    like_vllm,
    saying,
)

GET = b"GET /v1/responses/r1 HTTP/1.1\r\nHost: r\r\n\r\n"


@contextmanager
def serving(*models: str, flags: tuple[str, ...] = ()) -> Iterator[Running]:
    """A router with a worker for each model, which says its model's name."""
    workers = [RawWorker(like_vllm(m, saying(ok(m.encode())))) for m in models]
    with contextless(workers), running(*workers, flags=flags) as router:
        yield router


@contextmanager
def contextless(workers: list[RawWorker]) -> Iterator[None]:
    if not workers:
        yield
        return
    with workers[0], contextless(workers[1:]):
        yield


@contextmanager
def pending(router: Running) -> Iterator[None]:
    """One more worker, of which nothing is known."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        router.call("POST", "/workers", {"url": url})
        yield


def test_each_model_gets_its_own_workers() -> None:
    with serving("a", "b") as router:
        for model in ("a", "b", "b", "a"):
            assert router.ask(completion(model)).body == model.encode()


def test_text_that_looks_like_a_model_is_text() -> None:
    with serving("a", "b") as router:
        body = (
            b'{"messages":[{"content":"\\"model\\":\\"b\\"","model":"b"}],"model":"a"}'
        )
        assert router.ask(post("/v1/x", body)).body == b"a"


def test_an_unknown_model_does_not_exist() -> None:
    with serving("a") as router:
        answer = router.ask(completion("other"))
        assert (answer.status, code_of(answer.body)) == (404, "model_not_found")
        assert json.loads(answer.body)["error"]["param"] == "model"
        assert answer.header(b"x-request-id")
        assert answer.header(b"content-type") == b"application/json"


def test_an_unknown_model_may_be_a_pending_worker_s() -> None:
    with serving("a") as router, pending(router):
        answer = router.ask(completion("other"))
        assert (answer.status, code_of(answer.body)) == (503, "no_available_workers")
        assert answer.header(b"retry-after") == b"1"


def test_a_model_whose_workers_are_down_is_still_known() -> None:
    with RawWorker(like_vllm("a", saying(ok()))) as worker, running(worker) as router:
        worker.refuse()
        router.ask(completion("a"))
        answer = router.ask(completion("a"))
        assert (answer.status, code_of(answer.body)) == (503, "no_available_workers")


def test_without_a_model_the_only_one_is_meant() -> None:
    with serving("a") as router:
        assert router.ask(post("/v1/x", b"{}")).body == b"a"


def test_without_a_model_one_of_several_cannot_be_guessed() -> None:
    with serving("a", "b") as router:
        answer = router.ask(post("/v1/x", b"{}"))
        assert (answer.status, code_of(answer.body)) == (400, "model_required")


def test_without_a_body_any_worker_will_do() -> None:
    with serving("a", "b") as router:
        assert {router.ask(GET).body for _ in range(30)} == {b"a", b"b"}


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b'{"model":"a"', b'"a"'])
def test_a_body_that_says_it_is_json_and_is_no_object_is_refused(body: bytes) -> None:
    with serving("a") as router:
        answer = router.ask(post("/v1/x", body))
        assert (answer.status, code_of(answer.body)) == (400, "invalid_json")


def test_the_query_names_the_model_where_there_is_no_body_to() -> None:
    with serving("a", "b") as router:
        get = b"GET /v1/realtime?x=1&model=b HTTP/1.1\r\nHost: r\r\n\r\n"
        assert {router.ask(get).body for _ in range(8)} == {b"b"}
        upload = (
            b"POST /x?model=b HTTP/1.1\r\nHost: r\r\nContent-Type: audio/wav\r\n"
            b"Content-Length: 100000\r\n\r\n"
        )
        assert router.ask(upload, bytes(100_000)).body == b"b"


def test_no_error_of_the_router_tells_where_a_worker_is() -> None:
    with (
        RawWorker(like_vllm("a", lambda c, r: c.reset())) as worker,
        running(worker) as router,
    ):
        answer = router.ask(completion("a"))
        assert answer.status == 502
        whole = answer.body + b"".join(value for _, value in answer.headers)
        assert not re.search(rb"127\.0\.0\.1|%d" % worker.port, whole)
        assert answer.header(b"x-router-worker") is None


def test_a_worker_that_does_not_know_its_model_is_asked_for_its_list() -> None:
    """Its 404 passes, and what it serves by now is known at once."""

    def only_b(connection: RawConnection, request: bytes) -> None:
        connection.send(answer_of(404, b"gone") if b'"a"' in request else ok(b"b"))

    with RawWorker(like_vllm("a", only_b)) as worker, running(worker) as router:
        worker.script = like_vllm("b", only_b)
        assert router.ask(completion("a")).body == b"gone"
        # A list that was read just now is not read again at once.
        router.until(lambda: router.ask(completion("a")).body != b"gone", "a is gone")
        assert code_of(router.ask(completion("a")).body) == "model_not_found"
        assert router.ask(completion("b")).body == b"b"


# --- aliases --------------------------------------------------------------------------


def forwarded(router: Running, worker: RawWorker, request: bytes) -> bytes:
    assert router.ask(request).status == 200
    return worker.requests[-1]


@contextmanager
def aliased() -> Iterator[tuple[Running, RawWorker]]:
    """A worker of `org/model`, which is called `fast`, too."""
    with (
        RawWorker(like_vllm("org/model", saying(ok()))) as worker,
        running(worker, flags=("--model-alias", "fast=org/model")) as router,
    ):
        yield router, worker


def test_an_alias_becomes_the_model_and_every_other_byte_stays() -> None:
    body = b'{ "x":1.0e0,"model"\t:  "f\\u0061st" , "t":"\\"model\\":\\"fast\\"" }'
    expected = body.replace(b'"f\\u0061st"', b'"org/model"')
    with aliased() as (router, worker):
        got = forwarded(router, worker, post("/v1/x", body))
        assert body_of(got) == expected
        assert b"\r\nContent-Length: %d\r\n" % len(expected) in got


def test_an_alias_in_a_body_of_chunks_becomes_the_model() -> None:
    with aliased() as (router, worker):
        request = (
            b"POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
            b'Transfer-Encoding: chunked\r\n\r\n9\r\n{"model":\r\n7\r\n"fast"}\r\n'
            b"0\r\n\r\n"
        )
        got = forwarded(router, worker, request)
        assert body_of(got) == b'{"model":"org/model"}'


def test_an_alias_in_a_form_or_a_query_becomes_the_model() -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--b--\r\n'
    body = part % b"fast"
    form = (
        b"POST /v1/audio HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n\r\n%b" % (len(body), body)
    )
    with aliased() as (router, worker):
        assert body_of(forwarded(router, worker, form)) == part % b"org/model"
        got = forwarded(
            router, worker, b"GET /x?model=fast HTTP/1.1\r\nHost: r\r\n\r\n"
        )
        assert got.startswith(b"GET /x?model=org%2Fmodel HTTP/1.1\r\n")


def test_the_model_s_own_name_stays_as_it_was_written() -> None:
    body = b'{"model": "org\\/model"}'
    with aliased() as (router, worker):
        assert body_of(forwarded(router, worker, post("/v1/x", body))) == body


def test_an_alias_of_one_worker_only_is_renamed_for_that_one() -> None:
    """Retried elsewhere, the request is as the other worker wants it."""
    with (
        RawWorker(like_vllm("m1", saying(answer_of(503)))) as first,
        RawWorker(like_vllm("m2", saying(ok()))) as second,
        running() as router,
    ):
        for worker, model in ((first, "m1"), (second, "m2")):
            body = {"url": worker.url, "aliases": {"both": model}}
            router.call("POST", "/workers", body)
        router.ready(2)
        for _ in range(8):
            assert router.ask(completion("both")).status == 200
        for worker, model in ((first, "m1"), (second, "m2")):
            assert {json.loads(body_of(r))["model"] for r in worker.requests} == {model}


# --- data-parallel ranks --------------------------------------------------------------


@contextmanager
def ranked() -> Iterator[tuple[Running, RawWorker]]:
    """A server with three ranks."""
    with RawWorker(like_vllm("m", saying(ok()))) as worker, running() as router:
        router.call("POST", "/workers", {"url": worker.url, "dp_size": 3})
        router.ready(3)
        yield router, worker


def ranks(request: bytes) -> list[bytes]:
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return [
        line.partition(b": ")[2]
        for line in lines
        if line.lower().startswith(b"x-data-parallel-rank:")
    ]


def test_the_rank_is_told_once_and_all_are_used() -> None:
    with ranked() as (router, worker):
        for _ in range(30):
            router.ask(completion())
        told = [ranks(request) for request in worker.requests]
        assert {len(each) for each in told} == {1}
        assert {each[0] for each in told} == {b"0", b"1", b"2"}


def test_the_rank_a_client_wants_is_the_one_it_gets() -> None:
    with ranked() as (router, worker):
        for _ in range(5):
            router.ask(completion(fields="x-data-parallel-RANK: 2\r\n"))
        assert [ranks(request) for request in worker.requests] == [[b"2"]] * 5


@pytest.mark.parametrize("rank", ["3", "-1", "x", "9" * 5000])
def test_a_rank_that_does_not_exist_is_refused(rank: str) -> None:
    with ranked() as (router, _):
        answer = router.ask(completion(fields=f"X-data-parallel-rank: {rank}\r\n"))
        assert (answer.status, code_of(answer.body)) == (400, "invalid_request")
        router.at_rest()


def test_a_worker_without_ranks_gets_the_client_s_wish_as_it_is() -> None:
    with RawWorker(like_vllm("m", saying(ok()))) as worker, running(worker) as router:
        router.ask(completion(fields="X-data-parallel-rank: 1\r\n"))
        assert ranks(worker.requests[0]) == [b"1"]
