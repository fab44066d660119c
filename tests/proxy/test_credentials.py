"""Who gets a client's credentials: workers of ours, or of the provider it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.proxy.messages import answer_of, code_of, completion, ok
from tests.proxy.running import Running, running
from tests.support.raw_worker import RawWorker, like_vllm, saying

CREDENTIALS = "Authorization: Bearer mine\r\nx-api-key: mine2\r\nCookie: mine3=1\r\n"


def secrets(request: bytes) -> set[bytes]:
    """The lines of a request that may hold a secret."""
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    names = (b"authorization:", b"x-api-key:", b"cookie:")
    return {line for line in lines if line.lower().startswith(names)}


ALL = {b"Authorization: Bearer mine", b"x-api-key: mine2", b"Cookie: mine3=1"}


@contextmanager
def fleet(*more: dict[str, object]) -> Iterator[tuple[Running, list[RawWorker]]]:
    """Workers registered with these fields, each of model `m`, and a router."""
    workers: list[RawWorker] = []
    with running() as router:

        def start(rest: tuple[dict[str, object], ...]) -> Iterator[None]:
            if not rest:
                yield
                return
            name = str(len(workers)).encode()
            with RawWorker(like_vllm("m", saying(ok(name)))) as worker:
                workers.append(worker)
                router.call("POST", "/workers", {"url": worker.url, **rest[0]})
                yield from start(rest[1:])

        for _ in start(more):
            router.ready(len(more))
            yield router, workers


def test_a_worker_of_ours_gets_all_a_client_sends() -> None:
    with fleet({}) as (router, workers):
        router.ask(completion(fields=CREDENTIALS))
        assert secrets(workers[0].requests[0]) == ALL


def test_a_provider_s_worker_gets_none_unless_it_is_named() -> None:
    with fleet({"provider": "cloud"}) as (router, workers):
        assert router.ask(completion(fields=CREDENTIALS)).status == 200
        named = CREDENTIALS + "X-Router-Provider: cloud\r\n"
        assert router.ask(completion(fields=named)).status == 200
        assert [secrets(request) for request in workers[0].requests] == [set(), ALL]


def test_a_provider_that_is_named_is_the_only_one_asked() -> None:
    with fleet({}, {"provider": "cloud"}, {"provider": "other"}) as (router, workers):
        for _ in range(20):
            fields = CREDENTIALS + "X-Router-Provider: cloud\r\n"
            assert router.ask(completion(fields=fields)).body == b"1"
        assert not workers[0].requests + workers[2].requests


@pytest.mark.parametrize("down", ["refuses", "busy"])
def test_a_provider_that_is_down_is_not_replaced_by_another(down: str) -> None:
    with fleet({}, {"provider": "cloud"}, {"provider": "other"}) as (router, workers):
        if down == "refuses":
            workers[1].refuse()
        else:
            workers[1].script = like_vllm("m", saying(answer_of(503, b"busy")))
        for _ in range(5):
            fields = CREDENTIALS + "X-Router-Provider: cloud\r\n"
            assert router.ask(completion(fields=fields)).status in (502, 503)
        assert not workers[0].requests + workers[2].requests


def test_credentials_do_not_follow_a_request_to_a_provider_when_ours_are_down() -> None:
    with fleet({}, {"provider": "cloud"}) as (router, workers):
        workers[0].refuse()
        for _ in range(5):
            assert router.ask(completion(fields=CREDENTIALS)).body == b"1"
        assert {frozenset(secrets(r)) for r in workers[1].requests} == {frozenset()}


def test_a_provider_that_nobody_is_of_has_no_worker() -> None:
    with fleet({}) as (router, workers):
        answer = router.ask(completion(fields="X-Router-Provider: nobody\r\n"))
        assert (answer.status, code_of(answer.body)) == (503, "no_available_workers")
        assert not workers[0].requests


def test_what_names_the_provider_is_for_the_router() -> None:
    with fleet({"provider": "cloud"}) as (router, workers):
        router.ask(completion(fields="X-Router-Provider: cloud\r\n"))
        assert b"x-router-provider" not in workers[0].requests[0].lower()


def test_a_worker_s_own_key_takes_the_place_of_the_client_s() -> None:
    with fleet({"api_key": "own"}) as (router, workers):
        router.ask(completion(fields=CREDENTIALS))
        assert secrets(workers[0].requests[0]) == {
            b"Authorization: Bearer own",
            b"x-api-key: mine2",
            b"Cookie: mine3=1",
        }


def test_a_provider_s_worker_with_a_key_gets_that_key_only() -> None:
    with fleet({"api_key": "own", "provider": "cloud"}) as (router, workers):
        router.ask(completion(fields=CREDENTIALS))
        assert secrets(workers[0].requests[0]) == {b"Authorization: Bearer own"}


def test_the_key_for_all_workers_gives_way_to_one_s_own() -> None:
    with (
        RawWorker(like_vllm("m", saying(ok()))) as a,
        running(a, flags=("--api-key", "common")) as router,
        RawWorker(like_vllm("n", saying(ok()))) as b,
    ):
        router.call("POST", "/workers", {"url": b.url, "api_key": "own"})
        router.ready(2)
        router.ask(completion("m", fields=CREDENTIALS))
        router.ask(completion("n"))
        assert b"Authorization: Bearer common" in secrets(a.requests[0])
        assert secrets(b.requests[0]) == {b"Authorization: Bearer own"}
