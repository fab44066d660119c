"""The frame around every admin route: who may, and what an answer looks like.

Owns the admin key, the rule for routers without one, request ids and the shape of
errors. Knows no route's meaning. The application is reached only through the router's
own proxy, which removes a client's X-Router-Peer and sets its own.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import uuid

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from router.admin.paths import is_open
from router.errors import (
    AdminForbidden,
    BadRequest,
    InvalidJSON,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RouterError,
    Unauthorized,
)

_log = logging.getLogger("router.admin")

PEER = "X-Router-Peer"
REQUEST_ID = "X-Request-Id"
#: Bytes of an admin request's body; the largest fleets' registrations are far below.
MAX_BODY = 1 << 20

_READS = frozenset(("GET", "HEAD", "OPTIONS"))
#: Sent by the clients of models, not by operators, and harmless.
_NO_ADMIN_WRITE = frozenset(("/finish_session",))


def answer(value: object, status: int = 200) -> web.Response:
    """A JSON answer."""
    return encoded(msgspec.json.encode(value), status)


def encoded(body: bytes, status: int = 200) -> web.Response:
    """A JSON answer that is written already."""
    return web.Response(body=body, status=status, content_type="application/json")


async def json_object(request: web.Request) -> dict[str, object]:
    """The request's body. Raises InvalidJSON."""
    body = await request.read()
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJSON(f"The body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidJSON("The body must be a JSON object.")
    return value


def query(request: web.Request, name: str) -> str:
    """A query parameter that must be there. Raises BadRequest."""
    value = request.query.get(name, "")
    if not value:
        raise BadRequest(f"The query needs `{name}`.", param=name)
    return value


def peer(request: web.Request) -> str:
    """The address of the client, as the proxy saw it."""
    return request.headers.get(PEER, "unknown")


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns every error into the one shape, and gives each answer its request id."""
    try:
        response = await handler(request)
    except RouterError as error:
        response = _refusal(error)
    except web.HTTPException as error:
        response = _refusal(_of_aiohttp(error))
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    except Exception:
        # A fault of ours: it has the one shape, too, and it must be seen.
        _log.exception("an admin request failed inside the router")
        response = _refusal(RouterError("The router failed. Its log says why."))
    request_id = request.headers.get(REQUEST_ID) or f"req-{uuid.uuid4().hex}"
    response.headers[REQUEST_ID] = request_id
    return response


def _refusal(error: RouterError) -> web.Response:
    response = encoded(error.body(), error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _of_aiohttp(error: web.HTTPException) -> RouterError:
    """What aiohttp itself refuses, in our terms."""
    match error:
        case web.HTTPNotFound():
            return NotFound("The router has no such path.")
        case web.HTTPMethodNotAllowed():
            return MethodNotAllowed("This path does not take this method.")
        case web.HTTPRequestEntityTooLarge():
            return PayloadTooLarge(f"The body is larger than {MAX_BODY} bytes.")
        case _:
            return BadRequest(error.reason)


def admission(key: str | None) -> Middleware:
    """A middleware that lets only operators through.

    `key`: asked for on every route that is not open. None: everybody may read, and
    writes are taken from loopback peers only.
    """
    expected = None if key is None else key.encode()

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_open(request.path):
            if expected is not None:
                _check_key(request, expected)
            elif request.method not in _READS and request.path not in _NO_ADMIN_WRITE:
                _check_local(request)
        return await handler(request)

    return admit


def _check_key(request: web.Request, expected: bytes) -> None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    sent = given.strip().encode(errors="surrogateescape")
    if scheme.lower() != "bearer" or not hmac.compare_digest(sent, expected):
        raise Unauthorized("This route needs the admin key: Authorization: Bearer KEY.")


def _check_local(request: web.Request) -> None:
    """Refuses a write that did not begin on this machine, or that a web page made.

    Behind another proxy on this machine every peer is local, so whoever that proxy
    names counts, too.
    """
    named = ",".join(request.headers.getall("X-Forwarded-For", []))
    hops = [hop.strip() for hop in named.split(",") if hop.strip()]
    if not all(map(_is_loopback, [peer(request), *hops])):
        raise AdminForbidden(
            "Without --admin-api-key, changes are taken from this machine only."
        )
    if "Origin" in request.headers:
        raise AdminForbidden(
            "Without --admin-api-key, changes are not taken from web pages."
        )


def _is_loopback(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
