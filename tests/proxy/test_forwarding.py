"""What a worker sees of a request, and a client of the answer: all of it, unchanged."""

from __future__ import annotations

import json
import random

import pytest

from tests.proxy.messages import answer_of, completion, ok
from tests.proxy.running import running
from tests.support.http import Answer
from tests.support.raw_worker import (
    RawConnection,
    RawWorker,
    body_of,
    like_vllm,
    saying,
)

#: The lines that a request over a connection of its own needs.
HOST = b"Host: router.example:1234\r\n"
JSON = b"Content-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n%b"


def seen(request: bytes, said: bytes = b"", flags: tuple[str, ...] = ()) -> bytes:
    """What the worker sees of a request."""
    return exchanged(request, said, flags)[0]


def exchanged(
    request: bytes, said: bytes = b"", flags: tuple[str, ...] = ()
) -> tuple[bytes, Answer]:
    """What the worker sees of a request, and the client of its answer."""
    with (
        RawWorker(like_vllm("m", saying(said or ok()))) as worker,
        running(worker, flags=flags) as router,
    ):
        answer = router.ask(request)
        assert len(worker.requests) == 1
        router.at_rest()
        return worker.requests[0], answer


def fields(message: bytes) -> list[tuple[bytes, bytes]]:
    """The header fields of a message, names in lower case."""
    lines = message.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    pairs = (line.partition(b": ") for line in lines)
    return [(name.lower(), value) for name, _, value in pairs]


def values(message: bytes, name: bytes) -> list[bytes]:
    """The values of a field."""
    return [value for key, value in fields(message) if key == name]


# --- bodies ---------------------------------------------------------------------------

NOISE = random.Random(1).randbytes(200_000)
BODIES = {
    "json": (JSON, b'{"model":"m"}'),
    "json with every liberty": (
        JSON,
        b' \t\r\n{ "x" : 1.50e+00 , "x":-0, "model"\n:\t"m","\\u006d":"\\u00e9\\/" } ',
    ),
    "json in utf-8": (JSON, '{"model":"m","t":"日本語 \U0001f600"}'.encode()),
    "json with surrogates": (JSON, b'{"model":"m","t":"\\ud800"}'),
    "token ids": (
        JSON,
        json.dumps({"model": "m", "token_ids": list(range(100_000))}).encode(),
    ),
    "json that says it is text": (b"Content-Type: text/plain\r\n", b'{"model":"m"}'),
    "a list that does not say it is json": (b"", b"[1, 2]"),
    "form": (
        b"Content-Type: multipart/form-data; boundary=b\r\n",
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        + NOISE[:5000]
        + b'\r\n--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--',
    ),
    "small bytes": (b"Content-Type: audio/wav\r\n", NOISE[:60_000]),
    "many bytes": (b"Content-Type: audio/wav\r\n", NOISE),
    "bytes of no type": (b"", NOISE),
    "one byte": (b"", b"\0"),
    "nothing": (JSON, b""),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_arrives_byte_for_byte(kind: str) -> None:
    lines, body = BODIES[kind]
    request = b"POST /v1/x HTTP/1.1\r\n" + HOST + lines + LENGTH % (len(body), body)
    got = seen(request)
    assert body_of(got) == body
    assert values(got, b"content-length") == [b"%d" % len(body)]
    assert values(got, b"content-type") == [
        line.partition(b": ")[2] for line in lines.splitlines()
    ]


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_in_chunks_arrives_byte_for_byte(kind: str) -> None:
    lines, body = BODIES[kind]
    pieces = [body[at : at + 7777] for at in range(0, len(body), 7777)]
    request = (
        b"POST /v1/x HTTP/1.1\r\n"
        + HOST
        + lines
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%X;ext=1\r\n%b\r\n" % (len(p), p) for p in pieces)
        + b"0\r\nX-Trailer: 1\r\n\r\n"
    )
    got = seen(request)
    assert body_of(got) == body
    framing = values(got, b"content-length") + values(got, b"transfer-encoding")
    assert framing in ([b"%d" % len(body)], [b"chunked"])


@pytest.mark.parametrize("said", [NOISE, b"", NOISE[:1]])
def test_an_answer_s_body_arrives_byte_for_byte(said: bytes) -> None:
    _, answer = exchanged(completion(), ok(said))
    assert answer.body == said


# --- request lines --------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"GET /v1/x?a=1&b=%2F&&c=%zz&model=m HTTP/1.1",
        b"DELETE /v1/responses/resp_1 HTTP/1.1",
        b"PUT /x HTTP/1.1",
        b"PATCH /x HTTP/1.1",
        b"OPTIONS /v1/chat/completions HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"PROPFIND /a;b=c/../%2e%2E//d HTTP/1.1",
        b"get /lower HTTP/1.1",
        b"GET /? HTTP/1.1",
        b"GET /v1/models2 HTTP/1.1",
        b"GET /healthy HTTP/1.1",
        b"GET /%77orkers HTTP/1.1",
    ],
)
def test_method_path_and_query_arrive_as_they_are(line: bytes) -> None:
    got = seen(line + b"\r\n" + HOST + b"\r\n")
    assert got.split(b"\r\n", 1)[0] == line
    assert not body_of(got)
    assert not values(got, b"content-length") + values(got, b"transfer-encoding")


def test_a_url_as_target_arrives_as_its_path_and_its_host_is_told() -> None:
    got = seen(b"GET http://other.example/x?y HTTP/1.1\r\n" + HOST + b"\r\n")
    assert got.startswith(b"GET /x?y HTTP/1.1\r\n")
    assert values(got, b"x-forwarded-host") == [b"other.example"]


def test_an_old_client_is_answered_in_its_way() -> None:
    got, answer = exchanged(b"GET /x HTTP/1.0\r\n\r\n", ok(b"old"))
    assert got.startswith(b"GET /x HTTP/1.1\r\n")
    assert answer.body == b"old"


def test_head_gets_the_head_and_no_body() -> None:
    with (
        RawWorker(like_vllm("m", saying(ok(b"body").removesuffix(b"body")))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        for _ in range(2):
            client.send(b"HEAD /v1/x HTTP/1.1\r\n" + HOST + b"\r\n")
            answer = client.read_answer(b"HEAD")
            assert (answer.status, answer.header(b"content-length")) == (200, b"4")
        assert len(worker.requests) == 2


# --- header fields --------------------------------------------------------------------


def test_fields_pass_in_order_with_duplicates_as_they_are_written() -> None:
    lines = (
        b"X-One: 1\r\nx-TWO:  two, 2 \r\nAccept: */*\r\nX-One: again\r\n"
        b"User-Agent: caf\xe9\r\nCookie: a=b\r\nX-Empty:\r\nTraceparent: 00-1-2-03\r\n"
    )
    got = seen(b"GET /x HTTP/1.1\r\n" + HOST + lines + b"\r\n")
    ours = {b"host", b"x-request-id"}
    passed = [
        (name, value)
        for name, value in fields(got.replace(b":\r\n", b": \r\n"))
        if name not in ours and not name.startswith(b"x-forwarded-")
    ]
    assert [(name, value.strip()) for name, value in passed] == [
        (b"x-one", b"1"),
        (b"x-two", b"two, 2"),
        (b"accept", b"*/*"),
        (b"x-one", b"again"),
        (b"user-agent", b"caf\xe9"),
        (b"cookie", b"a=b"),
        (b"x-empty", b""),
        (b"traceparent", b"00-1-2-03"),
    ]


def test_what_is_meant_for_the_next_hop_ends_here() -> None:
    lines = (
        b"Connection: keep-alive, X-Secret, close\r\nX-Secret: 1\r\nKeep-Alive: 5\r\n"
        b"Proxy-Connection: x\r\nTE: trailers\r\nTrailer: X-T\r\nUpgrade: h2c\r\n"
        b"Proxy-Authorization: Basic eDp5\r\n"
    )
    got = seen(b"GET /x HTTP/1.1\r\n" + HOST + lines + b"\r\n")
    gone = {line.partition(b":")[0].lower() for line in lines.splitlines()}
    assert not gone & {name for name, _ in fields(got)}


def test_what_the_worker_means_for_us_ends_here() -> None:
    said = ok(
        b"body",
        b"Connection: X-Hop",
        b"X-Hop: 1",
        b"Keep-Alive: timeout=5",
        b"Proxy-Connection: x",
        b"Set-Cookie: a=1",
        b"Set-Cookie: b=2",
        b"Server: uvicorn",
    )
    _, answer = exchanged(completion(), said)
    names = [name for name, _ in answer.headers]
    assert not {b"x-hop", b"keep-alive", b"proxy-connection"} & set(names)
    assert names.count(b"set-cookie") == 2
    assert answer.header(b"server") == b"uvicorn"
    assert answer.header(b"content-length") == b"4"


def test_the_worker_is_spoken_to_by_its_own_name() -> None:
    with RawWorker(like_vllm("m", saying(ok()))) as worker, running(worker) as router:
        router.ask(completion())
        assert values(worker.requests[0], b"host") == [
            worker.url.removeprefix("http://").encode()
        ]


def test_who_asked_for_what_is_told() -> None:
    got = seen(b"GET /x HTTP/1.1\r\n" + HOST + b"\r\n")
    assert values(got, b"x-forwarded-for") == [b"127.0.0.1"]
    assert values(got, b"x-forwarded-proto") == [b"http"]
    assert values(got, b"x-forwarded-host") == [b"router.example:1234"]


def test_what_proxies_before_us_told_is_kept() -> None:
    lines = (
        b"X-Forwarded-For: 10.1.1.1, 10.1.1.2\r\nX-Forwarded-Proto: https\r\n"
        b"X-Forwarded-Host: api.example\r\n"
    )
    got = seen(b"GET /x HTTP/1.1\r\n" + HOST + lines + b"\r\n")
    hops = b", ".join(values(got, b"x-forwarded-for"))
    assert hops == b"10.1.1.1, 10.1.1.2, 127.0.0.1"
    assert values(got, b"x-forwarded-proto") == [b"https"]
    assert values(got, b"x-forwarded-host") == [b"api.example"]


# --- ids ------------------------------------------------------------------------------


def test_a_request_without_an_id_gets_one_that_both_sides_see() -> None:
    got, answer = exchanged(completion())
    made = values(got, b"x-request-id")
    assert len(made) == 1
    assert len(made[0]) >= 16
    assert answer.header(b"x-request-id") == made[0]


def test_ids_that_are_made_differ() -> None:
    with RawWorker(like_vllm("m", saying(ok()))) as worker, running(worker) as router:
        ids = {router.ask(completion()).header(b"x-request-id") for _ in range(20)}
        assert len(ids) == 20


@pytest.mark.parametrize(
    ("lines", "flags", "expected"),
    [
        ("X-Request-Id: mine\r\n", (), b"mine"),
        ("X-Trace-Id: third\r\nX-Correlation-Id: second\r\n", (), b"second"),
        ("X-Request-Id:\r\nRequest-Id: fourth\r\n", (), b"fourth"),
        ("x-session-id: s\r\n", ("--request-id-headers", "x-session-id"), b"s"),
        (
            "X-Request-Id: own\r\nx-session-id: s\r\n",
            ("--request-id-headers", "x-session-id"),
            b"s",
        ),
        ("X-Request-Id: own\r\n", ("--request-id-headers", "x-session-id"), b"own"),
    ],
)
def test_the_client_s_id_is_kept_sent_on_and_returned(
    lines: str, flags: tuple[str, ...], expected: bytes
) -> None:
    got, answer = exchanged(completion(fields=lines), ok(b"{}"), flags)
    assert values(got, b"x-request-id") == [expected]
    assert answer.header(b"x-request-id") == expected


def test_a_worker_s_own_request_id_does_not_stand_beside_ours() -> None:
    said = ok(b"{}", b"X-Request-Id: theirs", b"X-Router-Worker: forged")
    with RawWorker(like_vllm("m", saying(said))) as worker, running(worker) as router:
        answer = router.ask(completion(fields="X-Request-Id: ours\r\n"))
        assert answer.header(b"x-request-id") == b"ours"
        assert answer.header(b"x-router-worker") == router.id_of(worker).encode()


def test_the_worker_is_named_by_an_id_that_tells_no_address() -> None:
    with RawWorker(like_vllm("m", saying(ok()))) as worker, running(worker) as router:
        named = router.ask(completion()).header(b"x-router-worker")
        assert named == router.id_of(worker).encode()
        assert str(worker.port).encode() not in named


# --- answers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", 204),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nX-A: 1\r\n\r\n", 304),
        (answer_of(201, b"made", b"X-A: 1"), 201),
        (answer_of(302, b"", b"Location: http://10.0.0.1/", b"X-A: 1"), 302),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"{}", b"X-A: 1"), 200),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
            b"HTTP/1.1 102 Processing\r\n\r\n" + ok(b"{}", b"X-A: 1"),
            200,
        ),
        (b"HTTP/1.1 299\r\nContent-Length: 0\r\nX-A: 1\r\n\r\n", 299),
        (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\nX-A: 1\r\n\r\n", 999),
    ],
)
def test_an_answer_passes_and_the_connection_goes_on(said: bytes, status: int) -> None:
    with (
        RawWorker(like_vllm("m", saying(said))) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        for _ in range(3):
            client.send(completion())
            answer = client.read_answer()
            assert (answer.status, answer.header(b"x-a")) == (status, b"1")
        router.at_rest(client)
        used = [each for each in worker.connections if each.requests]
        assert [len(each.requests) for each in used] == [3]


def test_a_worker_that_closes_after_each_answer_is_asked_over_new_connections() -> None:
    def once(connection: RawConnection, request: bytes) -> None:
        connection.send(ok(b"{}", b"Connection: close"))
        connection.half_close()

    with (
        RawWorker(like_vllm("m", once)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        for _ in range(3):
            client.send(completion())
            answer = client.read_answer()
            assert answer.body == b"{}"
            assert answer.header(b"connection") is None
        assert sum(bool(each.requests) for each in worker.connections) == 3
        assert router.sample("resends_total") == 0


def test_an_answer_up_to_the_end_of_the_connection_ends_the_client_s_too() -> None:
    def until_end(connection: RawConnection, request: bytes) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\n\r\nall", b" of it")
        connection.close()

    with (
        RawWorker(like_vllm("m", until_end)) as worker,
        running(worker) as router,
        router.client() as client,
    ):
        client.send(completion())
        answer = client.read_answer()
        assert answer.body == b"all of it"
        assert answer.header(b"connection") == b"close"
        assert client.ended()


def test_a_change_of_protocols_that_nobody_asked_for_is_no_answer() -> None:
    said = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw"
    with RawWorker(like_vllm("m", saying(said))) as worker, running(worker) as router:
        assert router.ask(completion()).status == 502
        router.at_rest()
