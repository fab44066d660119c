"""Header lines that the router writes.

Owns what is added to heads on both ways, each line ready with its CRLF, and who a
request is: its id. Knows nothing of how heads are parsed or written.
"""

from __future__ import annotations

import os
from itertools import count

from router.fleet.worker import Worker
from router.http1.head import RequestHead


class RequestIds:
    """The id of each request: the client's own, or one made here.

    `headers`, in lower case: the first that is present and not empty is the id.
    """

    def __init__(self, headers: tuple[bytes, ...]) -> None:
        self._headers = (*headers, b"x-request-id")
        self._prefix = os.urandom(8).hex().encode()
        self._count = count(1)

    def of(self, head: RequestHead) -> bytes:
        """The request's id."""
        return head.first(self._headers) or self.new()

    def new(self) -> bytes:
        """An id that no other request of any router has."""
        return b"%b%016x" % (self._prefix, next(self._count))


#: Workers whose lines are kept ready. Past it they are made anew, in microseconds.
_MOST_KEPT = 32_768


class WorkerLines:
    """What is said to each worker, and of it, in every head.

    `api_key` goes to workers without a key of their own.
    """

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key
        # By id: what the lines say of a worker is the same for its whole life.
        self._kept: dict[str, tuple[bytes, bytes]] = {}

    def of_request(self, worker: Worker) -> bytes:
        """Host, the worker's key, its data-parallel rank."""
        kept = self._kept.get(worker.id)
        return (self._make(worker) if kept is None else kept)[0]

    def of_answer(self, worker: Worker) -> bytes:
        """Which worker it was: an opaque id."""
        kept = self._kept.get(worker.id)
        return (self._make(worker) if kept is None else kept)[1]

    def has_key(self, worker: Worker) -> bool:
        """Whether the client's Authorization gives way to a key of the worker's."""
        return bool(worker.api_key or self._api_key)

    def _make(self, worker: Worker) -> tuple[bytes, bytes]:
        lines = b"Host: %b\r\n" % worker.endpoint.authority.encode()
        key = worker.api_key or self._api_key
        if key:
            lines += b"Authorization: Bearer %b\r\n" % key.encode()
        if worker.dp_rank is not None:
            lines += b"X-data-parallel-rank: %d\r\n" % worker.dp_rank
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        made = (lines, b"X-Router-Worker: %b\r\n" % worker.id.encode())
        self._kept[worker.id] = made
        return made
