"""What a request asks for: model and session, out of head and body.

Owns where these may stand and which place wins. It takes bytes and gives a RouteKey;
it knows neither workers nor policies, and it never changes a byte: where the model
stands in the body is told, so that an alias can be replaced there and nowhere else.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from urllib.parse import parse_qs

from router.errors import BadRequest, InvalidJSON
from router.http1.head import Kind, RequestHead
from router.http1.scan import members

_MODEL, _SESSION_PARAMS, *_SESSIONS = (
    b"model",
    b"session_params",
    b"session_id",
    b"user",
    b"user_id",
)
_MEMBERS = (_MODEL, _SESSION_PARAMS, *_SESSIONS)

#: A body that is neither JSON nor a form is held, so that it can be sent again, up to
#: this size; a larger one streams.
SMALL_BODY = 65_536


@dataclass(frozen=True, slots=True)
class RouteKey:
    """What a request asks for."""

    #: The model's name; None: the request names none.
    model: str | None = None
    #: Where the name's value stands in the body, quotes included, if it does.
    model_at: tuple[int, int] | None = None
    #: What stays with one worker; None: nothing.
    session: bytes | None = None


def wants_body(head: RequestHead) -> bool:
    """Whether the body must be seen to route it, or is small enough to be held."""
    kind = content_type(head)
    if b"json" in kind or kind.startswith(b"multipart/form-data"):
        return True
    return 0 <= head.content_length <= SMALL_BODY


def content_type(head: RequestHead) -> bytes:
    """The Content-Type in lower case, parameters and all; empty if there is none."""
    return (head.value(Kind.CONTENT_TYPE) or b"").lower()


def route_key(
    head: RequestHead, body: bytes | None, session_headers: tuple[bytes, ...]
) -> RouteKey:
    """Reads model and session.

    `body` is None where it streams and cannot be looked at. `session_headers`, in
    lower case: the first that is present and not empty wins over the body's fields;
    an empty tuple: sessions are not looked for. Raises InvalidJSON for a body that
    claims to be JSON and is not one object, BadRequest for a model that is no string.
    """
    session = None
    for name in session_headers:
        session = head.header(name)
        if session:
            break
    sessions = bool(session_headers)
    if body:
        kind = content_type(head)
        if b"json" in kind:
            return _from_json(body, session or None, sessions, strict=True)
        if kind.startswith(b"multipart/form-data"):
            return _from_form(head, body, session or None)
        if body[:1] == b"{":
            return _from_json(body, session or None, sessions, strict=False)
    return RouteKey(_model_of_query(head.query), None, session or None)


def _from_json(
    body: bytes, session: bytes | None, sessions: bool, *, strict: bool
) -> RouteKey:
    try:
        found = members(body, _MEMBERS)
    except ValueError as error:
        if strict:
            raise InvalidJSON(f"The body is not a JSON object: {error}.") from None
        return RouteKey(session=session)
    model_at = found[0]
    model = None
    if model_at is not None:
        model = _text(body, model_at)
        if model is None and body[model_at[0] : model_at[1]] != b"null":
            raise BadRequest("`model` must be a string.", param="model")
    if session is None and sessions:
        session = _session(body, found)
    return RouteKey(model or None, model_at if model else None, session)


def _session(body: bytes, found: list[tuple[int, int] | None]) -> bytes | None:
    """The first session field that is a string with something in it."""
    places = list(found[2:])
    params = found[1]
    if params is not None and body[params[0]] == ord("{"):
        # What is not an object after all is the worker's to refuse.
        with contextlib.suppress(ValueError):
            places.insert(0, members(body, (b"session_id",), *params)[0])
    for place in places:
        text = None if place is None else _text(body, place)
        if text:
            return text.encode("utf-8", "surrogatepass")
    return None


def _text(body: bytes, at: tuple[int, int]) -> str | None:
    """The string that stands there, or None for a value of another kind."""
    raw = body[at[0] : at[1]]
    if raw[:1] != b'"':
        return None
    try:
        if b"\\" not in raw:
            return raw[1:-1].decode()
        return str(json.loads(raw))
    except ValueError as error:
        raise InvalidJSON(f"A string of the body is malformed: {error}.") from None


def _from_form(head: RequestHead, body: bytes, session: bytes | None) -> RouteKey:
    """The form field `model` (RFC 7578); its value is text as it stands."""
    boundary = _boundary(head.value(Kind.CONTENT_TYPE) or b"")
    if boundary is None:
        return RouteKey(session=session)
    delimiter = b"--" + boundary
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter)
    while at >= 0:
        start = body.find(b"\r\n\r\n", at)
        stop = body.find(b"\r\n" + delimiter, start + 2)
        if start < 0 or stop < 0:
            break
        if _field_name(body[at:start]) == b"model":
            model = body[start + 4 : stop].decode("utf-8", "replace").strip()
            return RouteKey(model or None, None, session)
        at = stop
    return RouteKey(session=session)


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


def _model_of_query(query: bytes | None) -> str | None:
    if not query or b"model=" not in query:
        return None
    return parse_qs(query.decode("latin-1")).get("model", [None])[0]


def renamed(body: bytes, key: RouteKey, name: str) -> bytes:
    """The body with the model's value replaced by `name`, and nothing else changed."""
    if key.model_at is None:
        return body
    start, stop = key.model_at
    return b"".join((body[:start], json.dumps(name).encode(), body[stop:]))
