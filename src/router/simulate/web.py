"""The HTTP vocabulary of the simulated worker: bodies in, answers out, as uvicorn.

Knows vLLM's refusals (content type, bad JSON) and the headers every answer carries;
knows no route.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import NoReturn, TypeVar

import msgspec
from aiohttp import web

from .shapes import Json, dump, error

T = TypeVar("T")
JSON = "application/json"
#: RST instead of FIN when the socket is closed.
_NO_LINGER = struct.pack("ii", 1, 0)


class Refusal(Exception):
    """An answer that is an error, from anywhere inside a handler."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def bad_request(message: str, param: str | None = None) -> Refusal:
    """A value that vLLM itself refuses."""
    return Refusal(400, error(400, "BadRequestError", message, param))


def malformed(message: str) -> Refusal:
    """A request that does not pass validation, before vLLM sees it."""
    return Refusal(400, error(400, "Bad Request", message))


def answer(
    body: bytes = b"",
    *,
    status: int = 200,
    kind: str = JSON,
    headers: dict[str, str] | None = None,
) -> web.Response:
    """A whole answer. An empty one carries no content type."""
    all_headers = {"server": "uvicorn", "vary": "Origin", **(headers or {})}
    if body:
        all_headers["content-type"] = kind
    return web.Response(status=status, body=body, headers=all_headers)


def answer_json(data: object, *, status: int = 200) -> web.Response:
    return answer(dump(data), status=status)


def answer_text(text: str) -> web.Response:
    return answer(text.encode(), kind="text/plain; charset=utf-8")


async def read_body(request: web.BaseRequest) -> bytes:
    """The whole body, however large; says 100 Continue if the client waits for it."""
    waits = request.headers.get("expect", "").lower() == "100-continue"
    if waits and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return await request.content.read()


async def read_json(request: web.BaseRequest, kind: type[T]) -> T:
    """The body as `kind`. Raises `Refusal` as vLLM: wrong type, bad JSON, bad value."""
    body = await read_body(request)
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != JSON:
        raise malformed("Unsupported Media Type: Only 'application/json' is allowed")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise malformed(str(problem)) from problem


async def lost() -> NoReturn:
    """Waits for the cancellation that the loss of the connection brings."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nothing sets this future")


def reset(transport: asyncio.Transport | None) -> None:
    """Ends a connection with RST: what a killed process' peer may see."""
    if transport is None:
        return
    plain = transport.get_extra_info("socket")
    if plain is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
