"""Every error of the router, and the answer each one is.

Owns the one tree of errors: HTTP status, OpenAI `type` and `code`, whether trying
another worker may help. Knows nothing else of ours; turning an error into bytes is
one function, `body`, used by every place that answers.
"""

from __future__ import annotations

import json


class RouterError(Exception):
    """An error that knows its answer.

    The message is read by the client: what is wrong and what to do. It never names a
    worker's address.
    """

    status = 500
    type = "internal_error"
    code = "internal_error"
    param: str | None = None
    #: Seconds for Retry-After, or None for no such header.
    retry_after: int | None = None
    #: Whether another worker may succeed where this one failed.
    retryable = False

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if param is not None:
            self.param = param

    def body(self) -> bytes:
        """The answer's JSON body, in OpenAI's shape."""
        return json.dumps(
            {
                "error": {
                    "message": self.message,
                    "type": self.type,
                    "param": self.param,
                    "code": self.code,
                }
            }
        ).encode()


# --- the request is wrong -----------------------------------------------------------


class BadRequest(RouterError):
    """The request cannot be understood, or asks for what cannot be."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class ModelRequired(BadRequest):
    """No model was named and the fleet serves several."""

    code = "model_required"
    param = "model"


class InvalidJSON(BadRequest):
    """The body claims to be JSON and is not an object."""

    code = "invalid_json"


class Unauthorized(RouterError):
    """The key is missing or wrong."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class ModelNotAllowed(RouterError):
    """The client's key is not for this model."""

    status = 403
    type = "permission_error"
    code = "model_not_allowed"
    param = "model"


class AdminForbidden(RouterError):
    """Admin writes are taken from loopback peers only while no admin key is set."""

    status = 403
    type = "permission_error"
    code = "admin_forbidden"


class NotFound(RouterError):
    """A router's own path that leads nowhere."""

    status = 404
    type = "not_found_error"
    code = "not_found"


class ModelNotFound(NotFound):
    """No worker serves this model, and none that is pending could."""

    code = "model_not_found"
    param = "model"


class WorkerNotFound(NotFound):
    """No worker has this id or URL."""

    code = "worker_not_found"


class MethodNotAllowed(RouterError):
    """The path exists; the method does not."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class RequestTimeout(RouterError):
    """The client did not finish its request in time."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class PayloadTooLarge(RouterError):
    """The body is larger than --max-payload-size."""

    status = 413
    type = "invalid_request_error"
    code = "payload_too_large"


class TargetTooLong(RouterError):
    """The request line alone is larger than 64 KiB."""

    status = 414
    type = "invalid_request_error"
    code = "uri_too_long"


class HeadersTooLarge(RouterError):
    """The head is larger than 64 KiB or has more than 256 fields."""

    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


# --- the fleet cannot serve it now ---------------------------------------------------


class WorkerUnreachable(RouterError):
    """No connection to the worker could be made, or it was lost before the answer."""

    status = 502
    type = "server_error"
    code = "worker_unreachable"
    retryable = True


class BadWorkerResponse(RouterError):
    """The worker's answer is not HTTP that can be passed on."""

    status = 502
    type = "server_error"
    code = "bad_worker_response"
    retryable = True


class NoAvailableWorkers(RouterError):
    """The model is known, and none of its workers can take a request now."""

    status = 503
    type = "server_error"
    code = "no_available_workers"
    retry_after = 1


class Overloaded(RouterError):
    """The router itself holds all it may: bodies or descriptors."""

    status = 503
    type = "server_error"
    code = "overloaded"
    retry_after = 1


class Draining(RouterError):
    """The router is shutting down."""

    status = 503
    type = "server_error"
    code = "draining"
    retry_after = 1


class WorkerTimeout(RouterError):
    """The worker took longer than --request-timeout-secs. Never retried."""

    status = 504
    type = "server_error"
    code = "worker_timeout"
