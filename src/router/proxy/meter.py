"""What the data plane tells about itself.

Owns the names of the events; who counts them is none of the proxy's business.
"""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Counts what happens to requests. Every call is a few additions."""

    #: Requests whose client left before the answer was whole.
    aborts: int
    #: Requests sent again since a reused connection had died.
    resends: int
    #: Requests that had to wait for a worker, waited too long, found the queue full.
    held: int
    hold_timeouts: int
    hold_rejections: int

    def answered(
        self, model: str | None, status: int, seconds: float, first_byte: float
    ) -> None:
        """A client was answered: the last byte went out `seconds` after the request's
        head, the first one after `first_byte` seconds."""

    def attempted(self, worker_id: str, status: int) -> None:
        """A worker was tried; status 0: there was no answer."""

    def retried(self, reason: str) -> None:
        """A request goes to another worker: connect, lost or status."""

    def upstream_failed(self, kind: str) -> None:
        """An attempt failed: refused, lost, timeout, cut, ..."""
