"""Requests and answers as bytes, for tests of the wire."""

from __future__ import annotations

import json

from tests.support.http import post

PATH = "/v1/chat/completions"


def completion(model: str = "m", *, fields: str = "", **more: object) -> bytes:
    """A request for a model. `fields`: further header lines, each with its CRLF."""
    return post(PATH, json.dumps({"model": model, **more}).encode(), fields=fields)


def ok(body: bytes = b"{}", *fields: bytes) -> bytes:
    """A whole answer."""
    return answer_of(200, body, *fields)


def answer_of(status: int, body: bytes = b"{}", *fields: bytes) -> bytes:
    """A whole answer of any status. `fields`: further header lines without CRLF."""
    lines = (
        b"HTTP/1.1 %d Said" % status,
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        *fields,
    )
    return b"\r\n".join((*lines, b"", body))


#: The head of an event stream.
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str) -> bytes:
    """A chunk with one event."""
    return chunk(b"data: %b\n\n" % json.dumps({"text": text}).encode())


def code_of(body: bytes) -> str:
    """The code of an error in OpenAI's shape; the shape is held to on the way."""
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"]
    return str(error["code"])
