"""Where a model is named outside of JSON, and how another name is put in its place.

Owns the form field, the parameter of the query, and the rewriting of all three places.
Knows neither workers nor policies; which place wins is `proxy.wish`'s.
"""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_plus

from router.http1.request import Request

if TYPE_CHECKING:
    from router.proxy.wish import Wish


class Where(Enum):
    """Where the model is named."""

    JSON = auto()
    FORM = auto()
    QUERY = auto()


def read_form(wish: Wish, kind: bytes, body: bytes) -> None:
    """The form field `model` (RFC 7578): its value is text as it stands.

    The last one counts, as it does for servers. `kind`: the Content-Type.
    """
    boundary = _boundary(kind)
    if boundary is None:
        return
    delimiter = b"--" + boundary
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter)
    while at >= 0:
        start = body.find(b"\r\n\r\n", at)
        stop = body.find(b"\r\n" + delimiter, start + 2)
        if start < 0 or stop < 0:
            return
        if _field_name(body[at:start]) == b"model":
            model = body[start + 4 : stop].decode("utf-8", "replace").strip()
            wish.model = model or None
            wish.model_at = (start + 4, stop)
            wish.model_in = Where.FORM
        at = stop


def _boundary(kind: bytes) -> bytes | None:
    for parameter in kind.split(b";")[1:]:
        name, _, value = parameter.strip().partition(b"=")
        if name.lower() == b"boundary":
            return value.strip(b'"') or None
    return None


def _field_name(part_head: bytes) -> bytes | None:
    for line in part_head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() != b"content-disposition":
            continue
        for parameter in value.split(b";")[1:]:
            key, _, text = parameter.strip().partition(b"=")
            if key.lower() == b"name":
                return text.strip(b'"')
    return None


def read_query(wish: Wish, query: bytes) -> None:
    """The last `model` of the query that has a value."""
    at = 0
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        stop = at + len(part)
        if value and unquote_plus(name.decode("latin-1")) == "model":
            wish.model = unquote_plus(value.decode("latin-1"))
            wish.model_at = (stop - len(value), stop)
            wish.model_in = Where.QUERY
        at = stop + 1


def renamed(
    request: Request, wish: Wish, name: str
) -> tuple[bytes | None, bytes | None]:
    """Target and body with `name` where the model stands, and all else as it was.

    Target None: it is as it came.
    """
    body = request.body
    if wish.model_at is None:
        return None, body
    start, stop = wish.model_at
    if wish.model_in is Where.QUERY:
        query = request.head.query or b""
        parts = (request.head.path, b"?", query[:start], quote(name, "").encode())
        return b"".join((*parts, query[stop:])), body
    assert body is not None
    value = json.dumps(name) if wish.model_in is Where.JSON else name
    return None, b"".join((body[:start], value.encode(), body[stop:]))
