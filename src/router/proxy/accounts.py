"""What is told of a request once it is over: the counts, and the access line.

Owns what goes into them for each kind of end: a request that went to the workers, one
of the router's own paths, and what was no request. Knows neither how counts are kept
nor how a line is written.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from router.errors import RouterError
from router.proxy.call import Call
from router.proxy.meter import Meter


class Accounts:
    """Counts on `meter`; `access` writes an access line, None: there are none."""

    def __init__(self, meter: Meter, access: Callable[..., None] | None) -> None:
        self._meter = meter
        self._access = access

    def served(self, call: Call) -> None:
        """A request that workers were to serve is over."""
        if call.status:
            request = call.request
            self._meter.answered(
                call.wish.model,
                call.status,
                monotonic() - request.began,
                request.first_byte - request.began,
            )
        if self._access is not None:
            self.own(call)

    def own(self, call: Call) -> None:
        """A request to a path of the router's own is over: it is not counted."""
        if self._access is not None:
            request = call.request
            self._access(
                request_id=request.id.decode("latin-1"),
                client=request.client.peer,
                method=request.head.method.decode("latin-1"),
                path=request.head.path.decode("latin-1"),
                status=call.status or 499,
                seconds=monotonic() - request.began,
                sent=request.sent,
                model=call.wish.model,
                worker=None if call.worker is None else call.worker.id,
                attempts=call.attempts,
            )

    def refused(
        self, peer: str, request_id: bytes, error: RouterError, sent: int
    ) -> None:
        """`peer` sent what is no request; `error` was the answer, of `sent` bytes."""
        self._meter.answered(None, error.status, 0.0, 0.0)
        if self._access is not None:
            self._access(
                request_id=request_id.decode("latin-1"),
                client=peer,
                method=None,
                path=None,
                status=error.status,
                seconds=0.0,
                sent=sent,
                model=None,
                worker=None,
                attempts=0,
            )
