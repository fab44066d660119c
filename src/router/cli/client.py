"""What `router workers` says to a running router: its admin API over HTTP.

Owns the requests and the words for what goes wrong with them. Knows neither the
terminal nor the router's insides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

#: Seconds. No admin route that is used here waits for a worker.
_TIMEOUT = 10.0

JSON = dict[str, Any]


class ClientError(Exception):
    """The router did not do it; the message says why."""


def _opener() -> OpenerDirector:
    """Goes to the router itself, whatever proxy the environment names."""
    return build_opener(ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Client:
    """The admin API of the router at a base URL."""

    router: str
    admin_key: str | None = field(default=None, repr=False)
    opener: OpenerDirector = field(default_factory=_opener, repr=False)

    def list(self) -> JSON:
        """All workers with their load and status, and the totals."""
        return self._ask("GET", "/workers")

    def add(self, registration: Mapping[str, object]) -> JSON:
        """Registers a worker; it may be pending for a while."""
        return self._ask("POST", "/workers", registration)

    def remove(self, worker: str, drain_secs: float | None = None) -> JSON:
        """Takes out a worker, by id or URL; its running requests finish."""
        query = "" if drain_secs is None else f"?drain_secs={drain_secs:g}"
        return self._ask("DELETE", f"/workers/{quote(worker, safe='')}{query}")

    def drain(self, worker: str) -> JSON:
        """No new requests for a worker, by id or URL; it goes when it is empty."""
        return self._ask("POST", f"/workers/{quote(worker, safe='')}/drain")

    def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> JSON:
        headers = {"Accept": "application/json"}
        if self.admin_key is not None:
            headers["Authorization"] = f"Bearer {self.admin_key}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            request = Request(
                self.router.rstrip("/") + path, data, headers, method=method
            )
            with self.opener.open(request, timeout=_TIMEOUT) as answer:
                return _decoded(answer.read())
        except HTTPError as error:
            with error:
                raise ClientError(_reason(error)) from error
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ClientError(f"no answer from {self.router}: {reason}") from error


def _decoded(body: bytes) -> JSON:
    """Raises ValueError for what is no JSON object."""
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object; is it a router?")
    return answer


def _reason(error: HTTPError) -> str:
    """The message of an answer in the router's error shape, else its status."""
    try:
        return f"{_decoded(error.read())['error']['message']} ({error.code})"
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return f"{error.code} {error.reason}"
