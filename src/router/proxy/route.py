"""What a request asks for: model, session, provider, rank, out of head and body.

Owns where these may stand and which place wins. It takes bytes and gives a Wish; it
knows neither workers nor policies, and it never changes a byte: where the model stands
in the body is told, so that an alias can be replaced there and nowhere else.
"""

from __future__ import annotations

import contextlib
import json
from enum import Enum, auto
from urllib.parse import quote, unquote_plus

from router.errors import BadRequest, InvalidJSON
from router.http1.fields import Kind
from router.http1.head import RequestHead
from router.http1.request import Request
from router.http1.scan import members

_CONTENT_TYPE = int(Kind.CONTENT_TYPE)
_X_ROUTER_PROVIDER = int(Kind.X_ROUTER_PROVIDER)
_X_DATA_PARALLEL_RANK = int(Kind.X_DATA_PARALLEL_RANK)

_MODEL_ONLY = (b"model",)
_MODEL_AND_SESSION = (
    b"model",
    b"session_params",
    b"session_id",
    b"user",
    b"user_id",
)

#: A body that is neither JSON nor a form is held, so that it can be sent again, up to
#: this size; a larger one streams.
SMALL_BODY = 65_536


class Where(Enum):
    """Where the model is named."""

    JSON = auto()
    FORM = auto()
    QUERY = auto()


class Wish:
    """What a request asks of the fleet."""

    __slots__ = (
        "has_body",
        "model",
        "model_at",
        "model_in",
        "provider",
        "rank",
        "session",
    )

    def __init__(self) -> None:
        #: The model's name; None: the request names none.
        self.model: str | None = None
        #: Where the name's value stands, quotes included, in the body or the query.
        self.model_at: tuple[int, int] | None = None
        self.model_in = Where.JSON
        #: What stays with one worker; None: nothing.
        self.session: bytes | None = None
        #: Only workers of this provider; None: any.
        self.provider: str | None = None
        #: Only this data-parallel rank, as the client wrote it; None: any.
        self.rank: str | None = None
        #: Whether there is a body that could have named a model.
        self.has_body = True


def wants_body(head: RequestHead) -> bool:
    """Whether the body must be seen to route it, or is small enough to be held."""
    kind = _content_type(head)
    if _claims_json(kind) or kind.startswith(b"multipart/form-data"):
        return True
    return 0 <= head.content_length <= SMALL_BODY


def _content_type(head: RequestHead) -> bytes:
    """The Content-Type in lower case, parameters and all; empty if there is none."""
    return (head.value(_CONTENT_TYPE) or b"").lower()


def _claims_json(kind: bytes) -> bool:
    """Whether the body should be one JSON value; a sequence of them is another type."""
    if kind == b"application/json":
        return True
    media_type = kind.partition(b";")[0].strip()
    return media_type == b"application/json" or media_type.endswith(b"+json")


def read_wish(request: Request, session_headers: tuple[bytes, ...]) -> Wish:
    """What the request asks for; a body that is not held is not looked at.

    `session_headers`, in lower case: the first that is present and not empty wins over
    the body's fields; an empty tuple: sessions are not looked for. Raises InvalidJSON
    for a body that claims to be JSON and is not one object, BadRequest for a model
    that is no string.
    """
    head = request.head
    body = request.body
    wish = Wish()
    provider = head.value(_X_ROUTER_PROVIDER)
    if provider:
        wish.provider = provider.decode("latin-1")
    rank = head.value(_X_DATA_PARALLEL_RANK)
    if rank:
        wish.rank = rank.decode("latin-1")
    if session_headers:
        wish.session = head.first(session_headers)
    wish.has_body = body is None or len(body) > 0
    kind = _content_type(head) if body else b""
    if body and _claims_json(kind):
        _read_json(wish, body, sessions=bool(session_headers))
        return wish
    if body and kind.startswith(b"multipart/form-data"):
        _read_form(wish, head, body)
        return wish
    if body and body[:1] == b"{":
        # It does not claim to be JSON; if it is, the better for the client.
        with contextlib.suppress(InvalidJSON):
            _read_json(wish, body, sessions=bool(session_headers))
    if wish.model is None and head.query:
        _read_query(wish, head.query)
    return wish


def _read_json(wish: Wish, body: bytes, *, sessions: bool) -> None:
    look = sessions and wish.session is None
    try:
        found = members(body, _MODEL_AND_SESSION if look else _MODEL_ONLY)
    except ValueError as error:
        raise InvalidJSON(f"The body is not a JSON object: {error}.") from None
    place = found[0]
    if place is not None:
        model = _text(body, place)
        if model:
            wish.model = model
            wish.model_at = place
        elif model is None and body[place[0] : place[1]] != b"null":
            raise BadRequest("`model` must be a string.", param="model")
    if look:
        wish.session = _session(body, found)


def _session(body: bytes, found: list[tuple[int, int] | None]) -> bytes | None:
    """The first session field that is a string with something in it."""
    places = found[2:]
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


def _read_form(wish: Wish, head: RequestHead, body: bytes) -> None:
    """The form field `model` (RFC 7578): its value is text as it stands.

    The last one counts, as it does for servers.
    """
    boundary = _boundary(head.value(_CONTENT_TYPE) or b"")
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


def _read_query(wish: Wish, query: bytes) -> None:
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
