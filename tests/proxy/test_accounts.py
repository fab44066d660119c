"""Every answer is told of: what was no request, and the router's own paths, too."""

from __future__ import annotations

import logging

import pytest

from tests.proxy.messages import code_of, completion, ok
from tests.proxy.running import Running, running
from tests.support.raw_worker import RawWorker, like_vllm, saying

LOGGED = ("--access-log", "--header-timeout-secs", "0.3", "--max-payload-size", "1000")
HEAD = b"POST /v1/x HTTP/1.1\r\nHost: r\r\n"

REFUSED = {
    "no HTTP": (b"hello\r\n\r\n", 400, "invalid_request"),
    "two lengths": (HEAD + b"Content-Length: 1\r\n" * 2 + b"\r\n", 400, None),
    "a head that does not come": (HEAD, 408, "request_timeout"),
    "a body that is too large": (
        HEAD + b"Content-Length: 1001\r\n\r\n",
        413,
        "payload_too_large",
    ),
    "a target that is too long": (b"GET /" + b"x" * 65_536, 414, "uri_too_long"),
    "the same, all at once": (
        b"GET /%b HTTP/1.1\r\nHost: r\r\n\r\n" % (b"x" * 65_536),
        414,
        "uri_too_long",
    ),
    "a field that is too long": (HEAD + b"A: " + b"x" * 65_536, 431, None),
    "too many fields": (HEAD + b"A: b\r\n" * 300 + b"\r\n", 431, "headers_too_large"),
}


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The access lines."""
    return [vars(record) for record in caplog.records if record.msg == "request"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_request_is_counted_and_in_the_access_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, status, code = REFUSED[name]
    caplog.set_level(logging.INFO, "router.access")
    with running(flags=LOGGED) as router:
        answer = router.ask(data)
        assert answer.status == status
        assert code_of(answer.body) == (code or code_of(answer.body))
        assert router.sample('requests_total{model="none",status="4xx"}') == 1
    line = told(caplog)[0]
    assert (line["status"], line["client"]) == (status, "127.0.0.1")
    assert str(line["request_id"]).encode() == answer.header(b"x-request-id")
    assert isinstance(line["sent"], int)
    assert line["sent"] > len(answer.body)


def test_the_router_s_own_paths_are_in_the_access_log_and_not_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "router.access")
    asked = [
        (b"GET /liveness?x=secret", 200),
        (b"GET /workers/nobody", 404),
        (b"BREW /workers", 405),
    ]
    with (
        RawWorker(like_vllm("m", saying(ok()))) as worker,
        running(worker, flags=LOGGED) as router,
    ):
        for start, status in asked:
            assert router.ask(start + b" HTTP/1.1\r\nHost: r\r\n\r\n").status == status
        assert router.ask(completion()).status == 200
        counted = [n for n in router.samples() if n.startswith("requests_total")]
        assert counted == ['requests_total{model="m",status="2xx"}']
    lines = [(x["method"], x["path"], x["status"]) for x in told(caplog)]
    # The test itself has asked for these.
    asides = {("GET", "/workers", 200), ("GET", "/metrics", 200)}
    assert [line for line in lines if line not in asides] == [
        ("GET", "/liveness", 200),
        ("GET", "/workers/nobody", 404),
        ("BREW", "/workers", 405),
        ("POST", "/v1/chat/completions", 200),
    ]


# --- what the admin application would not take --------------------------------------


@pytest.mark.parametrize("method", ["TRACE", "BREW", "PURGE", "get", "PUT"])
def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_takes(
    method: str,
) -> None:
    with running() as router:
        for path, allowed in (
            ("/liveness", b"GET, HEAD"),
            ("/workers", b"GET, HEAD, POST"),
            ("/workers/x", b"DELETE, GET, HEAD, PATCH"),
        ):
            start = f"{method} {path} HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\n"
            answer = router.ask(start.encode(), b"{}")
            assert (answer.status, code_of(answer.body)) == (405, "method_not_allowed")
            assert answer.header(b"allow") == allowed


def odd_requests() -> list[bytes]:
    """What a strict reader of HTTP takes, and a library for it may not."""
    fields = [
        b"Sec-WebSocket-Key1: 1",
        b"Sec-WebSocket-Key1: 1\r\nUpgrade: websocket\r\nConnection: upgrade",
        b"Content-Encoding: br",
        b"Content-Encoding: \xff",
        b"Content-Type: \xff; charset=nothing",
        b"Cookie: \xff=;;;\xff",
        b"Expect: \xff",
        b"Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x",
        b"X: " + bytes(range(128, 256)),
        b"!#$%&'*+-.^_`|~: x",
    ]
    targets = [
        b"/workers/%c%%%c" % (c, c) for c in range(33, 127) if c not in (ord("#"),)
    ]
    return [
        *(
            b"GET /workers HTTP/1.1\r\nHost: r\r\n%b\r\n\r\n" % field
            for field in fields
        ),
        *(b"GET %b HTTP/1.1\r\nHost: r\r\n\r\n" % target for target in targets),
    ]


def ask_all(router: Running) -> None:
    for request in odd_requests():
        answer = router.ask(request)
        assert answer.status in (200, 400, 404), request
        assert answer.header(b"content-type") == b"application/json", request
        assert answer.header(b"x-request-id"), request
        if answer.status != 200:
            assert code_of(answer.body)


def test_every_answer_of_an_own_path_has_the_one_shape() -> None:
    """Whatever the library behind them makes of a request."""
    with running() as router:
        ask_all(router)
        router.at_rest()
