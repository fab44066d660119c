"""Single requests by hand, to routers and to the mock engines. Measures nothing."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and headers (names in lower case) of an answer."""

    status: int
    body: bytes
    headers: dict[str, str]

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def get(
    port: int, path: str, timeout: float = 5.0, *, host: str = "127.0.0.1"
) -> Answer:
    """GET from this machine; raises OSError and http.client's errors."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        return _exchange(connection, "GET", path, None, {})
    finally:
        connection.close()


def post(
    port: int,
    path: str,
    value: object,
    headers: Mapping[str, str] | None = None,
    *,
    host: str = "127.0.0.1",
    connection: http.client.HTTPConnection | None = None,
) -> Answer:
    """POST JSON to this machine, on `connection` if there is one already."""
    used = connection or http.client.HTTPConnection(host, port, timeout=30.0)
    try:
        return _exchange(used, "POST", path, json.dumps(value), headers or {})
    finally:
        if connection is None:
            used.close()


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: str | None,
    headers: Mapping[str, str],
) -> Answer:
    kind = {"Content-Type": "application/json"} if body else {}
    connection.request(method, path, body, {**kind, **headers})
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(answer.status, answer.read(), found)


def chat(model: str = "model-0", *, stream: bool = False) -> dict[str, object]:
    """A small chat request."""
    messages = [{"role": "user", "content": "hello"}]
    request = {"model": model, "messages": messages, "max_tokens": 8}
    return request | {"stream": True} if stream else request
