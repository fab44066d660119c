"""One probe: what each kind of answer and failure is called."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from router.fleet import address
from router.fleet.client import Answer, Client, Failure
from router.fleet.names import Names
from tests.support.mini_worker import MiniWorker
from tests.support.ports import free_port


async def probe(url: str, *, timeout: float = 20.0, key: str | None = None) -> Answer:
    endpoint = address.parse(url).endpoint
    return await Client().get(
        endpoint, "/health", timeout=timeout, api_key=key, whole=False
    )


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[str]:
    """URL of a server that sends these pieces one after the other and hangs up."""

    async with MiniWorker() as worker:
        worker.raw = list(pieces)
        yield worker.url


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\n\r\n"],
        [b"HTTP/1.0 204 No Content\r\nA: b\r\n\r\n"],
        [b"HTTP/1.1 103 X\r\n\r\nHTTP/1.1 200 OK\r\n", b"\r\n"],
        [b"HTTP/1.1 200\r\n", b"Content-Length: 2\r\n", b"\r\nok"],
        [bytes([byte]) for byte in b"HTTP/1.1 299 X\r\n\r\n"],
    ],
)
async def test_a_success_is_good_however_it_arrives(pieces: list[bytes]) -> None:
    async with answering(*pieces) as url:
        assert (await probe(url)).good


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([], "lost before the answer"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n"], "lost before the answer"),
        ([b"HTTP/1.1 200 OK\r\n"], "lost before the answer"),
        ([b"HTTP/2 200\r\n\r\n"], "not HTTP/1.1"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "not HTTP/1.1"),
        ([b"HTTP/1.1 2x0 OK\r\n\r\n"], "not HTTP/1.1"),
        ([b"x" * 70_000], "not HTTP/1.1"),
    ],
)
async def test_anything_but_an_answer_is_bad(pieces: list[bytes], reason: str) -> None:
    async with answering(*pieces) as url:
        answer = await probe(url)
    assert not answer.good
    assert answer.failure is Failure.BROKEN
    assert reason in (answer.reason or "")


@pytest.mark.parametrize("status", [301, 401, 404, 500, 503])
async def test_another_status_is_an_answer_but_not_good(status: int) -> None:
    async with answering(b"HTTP/1.1 %d X\r\n\r\n" % status) as url:
        assert await probe(url) == Answer(status)


async def test_a_refused_connection_is_told_from_other_failures() -> None:
    async with MiniWorker(up=False) as worker:
        for url in (worker.url, worker.url.replace("127.0.0.1", "localhost")):
            assert (await probe(url)).failure is Failure.REFUSED


async def test_a_server_is_reached_by_its_name_and_told_it() -> None:
    async with MiniWorker() as worker:
        url = worker.url.replace("127.0.0.1", "localhost")
        assert (await probe(url, key="sk-1")).good
        assert worker.headers["/health"]["host"] == f"localhost:{worker.port}"
        assert worker.headers["/health"]["authorization"] == "Bearer sk-1"


async def test_a_name_that_nobody_knows_is_a_failure() -> None:
    answer = await probe("http://nobody.invalid:8000")
    assert answer.failure is Failure.BROKEN
    assert "cannot connect" in (answer.reason or "")


async def test_a_server_that_does_not_answer_in_time_is_a_failure() -> None:
    async with MiniWorker() as worker:
        worker.hang.add("/health")
        answer = await probe(worker.url, timeout=0.1)
    assert answer.failure is Failure.TIMED_OUT
    assert answer.reason == "no answer in 0.1 s"


async def test_an_https_worker_that_speaks_no_tls_is_a_failure() -> None:
    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        answer = await probe(f"https://127.0.0.1:{port}")
    assert answer.failure is Failure.BROKEN


async def test_an_https_workers_certificate_is_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[tuple[ssl.SSLContext, str]] = []

    async def connect(*_: object, ssl: ssl.SSLContext, server_hostname: str) -> None:
        used.append((ssl, server_hostname))
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    await probe("https://127.0.0.1:1")
    ((context, name),) = used
    assert name == "127.0.0.1"
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


async def test_a_router_that_is_short_of_descriptors_does_not_blame_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    assert (await probe("http://127.0.0.1:1")).failure is Failure.OURS


Found = list[tuple[int, int, int, str, tuple[str, int]]]


def look_up(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], Awaitable[list[str]]]
) -> list[str]:
    """Has `answer` look names up from now on; gives those that were asked for."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: object) -> Found:
        asked.append(host)
        found = await answer(host)
        return [(socket.AF_INET, 1, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


async def test_the_next_address_of_a_name_is_tried_when_one_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def both(_: str) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]

    look_up(monkeypatch, both)
    async with MiniWorker() as worker:
        assert (await probe(f"http://name:{worker.port}")).good


async def test_a_name_is_looked_up_once_for_all_that_wait_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def one(_: str) -> list[str]:
        await asyncio.sleep(0.01)
        return ["10.0.0.1", "10.0.0.1"]

    asked = look_up(monkeypatch, one)
    names = Names()
    found = await asyncio.gather(*(names.addresses("a", 1) for _ in range(5)))
    assert found == [["10.0.0.1"]] * 5
    assert await names.addresses("a", 2) == ["10.0.0.1"]
    assert asked == ["a"]


async def test_who_gives_up_does_not_end_the_look_up_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()

    async def late(_: str) -> list[str]:
        await gate.wait()
        return ["10.0.0.1"]

    asked = look_up(monkeypatch, late)
    names = Names()
    first = asyncio.ensure_future(names.addresses("a", 1))
    second = asyncio.ensure_future(names.addresses("a", 1))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == ["10.0.0.1"]
    assert asked == ["a"]


async def test_an_unknown_name_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nobody(_: str) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    asked = look_up(monkeypatch, nobody)
    names = Names()
    for _ in range(2):
        with pytest.raises(OSError, match="not known"):
            await names.addresses("a", 1)
    assert asked == ["a", "a"]


async def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(_: str) -> list[str]:
        return []

    asked = look_up(monkeypatch, nobody)
    names = Names()
    assert await names.addresses("::1", free_port()) == ["::1"]
    assert await names.addresses("10.0.0.1", 80) == ["10.0.0.1"]
    assert asked == []
