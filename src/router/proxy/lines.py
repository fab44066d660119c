"""Header lines that the router writes.

Owns what is added to heads on both ways, each line ready with its CRLF, and who a
request is: its id. Knows nothing of how heads are parsed or written.
"""

from __future__ import annotations

import os

from router.fleet.worker import Worker
from router.http1.head import AUTHORIZATION_FIELD, RequestHead


class RequestIds:
    """The id of each request: the client's own, or one made here.

    `headers`, in lower case: the first that is present and not empty is the id.
    """

    def __init__(self, headers: tuple[bytes, ...]) -> None:
        self._headers = (*headers, b"x-request-id")
        self._prefix = os.urandom(8).hex().encode()
        self._count = 0

    def of(self, head: RequestHead) -> bytes:
        """The request's id."""
        return head.first(self._headers) or self.new()

    def new(self) -> bytes:
        """An id that no other request of any router has."""
        self._count += 1
        return b"%b%016x" % (self._prefix, self._count)


#: Workers whose lines are kept ready. Past it they are made anew, in microseconds.
_MOST_KEPT = 32_768


class Said:
    """What the heads say of one worker."""

    def __init__(self, request: bytes, answer: bytes, drop: int) -> None:
        #: Lines of a request: Host, the worker's key, its data-parallel rank.
        self.request = request
        #: Line of an answer: which worker it was, an opaque id.
        self.answer = answer
        #: Fields of the client that give way to these lines.
        self.drop = drop


class WorkerLines:
    """What is said to each worker, and of it, in every head.

    `api_key` goes to workers without a key of their own. `client_keys`: a client's key
    was for the router, and goes to no worker.
    """

    def __init__(self, api_key: str | None, *, client_keys: bool = False) -> None:
        self._api_key = api_key
        self._client_keys = client_keys
        # By id: what is said of a worker is the same for its whole life.
        self._kept: dict[str, Said] = {}

    def of(self, worker: Worker) -> Said:
        """What is said to and of this worker."""
        return self._kept.get(worker.id) or self._make(worker)

    def _make(self, worker: Worker) -> Said:
        lines = b"Host: %b\r\n" % worker.endpoint.authority.encode()
        key = worker.api_key or self._api_key
        if key:
            lines += b"Authorization: Bearer %b\r\n" % key.encode()
        if worker.dp_rank is not None:
            lines += b"X-data-parallel-rank: %d\r\n" % worker.dp_rank
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        said = Said(
            lines,
            b"X-Router-Worker: %b\r\n" % worker.id.encode(),
            AUTHORIZATION_FIELD if key or self._client_keys else 0,
        )
        self._kept[worker.id] = said
        return said
