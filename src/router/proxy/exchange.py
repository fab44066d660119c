"""One request's life, top to bottom. READ THIS FIRST.

    read what it asks for -> pick a worker -> forward -> await the answer's head
    -> relay it, or go on to another worker -> let go of the worker, account

Owns that story and nothing else: bytes are `http1`'s, connections `proxy.upstream`'s,
which worker is `proxy.choice`'s. One coroutine a request; it is resumed in the very
callback that it waits for (`http1.runner`), and while an answer is relayed it sleeps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from router._core import Slot
from router.errors import (
    BadWorkerResponse,
    RouterError,
    WorkerTimeout,
    WorkerUnreachable,
)
from router.fleet.worker import Worker
from router.http1.errors import BadAnswer, ClientGone, UpstreamLost, UpstreamTimeout
from router.http1.head import CREDENTIAL_FIELDS
from router.http1.request import Request
from router.http1.upstream import Upstream
from router.proxy import answers
from router.proxy.answers import BODY_FAILURES
from router.proxy.call import Call
from router.proxy.choice import Chooser
from router.proxy.keys import ClientKeys
from router.proxy.lines import RequestIds, WorkerLines
from router.proxy.meter import Meter
from router.proxy.places import renamed
from router.proxy.retry import Retries, RetryRules
from router.proxy.seldom import Seldom
from router.proxy.upstream import ConnectFailed, Connections
from router.proxy.wish import read_wish, wants_body

_log = logging.getLogger("router.proxy")

#: How an attempt can end without an answer. TimeoutError: while it connected.
_Failure = ConnectFailed | UpstreamLost | UpstreamTimeout | BadAnswer | TimeoutError
_FAILURES = (ConnectFailed, UpstreamLost, UpstreamTimeout, BadAnswer, TimeoutError)

_LOST = "The worker closed the connection before it answered."
_BROKE_OFF = "The worker's answer broke off in the middle."
_TOO_LONG = (
    "The worker did not begin its answer in time. The request was not tried "
    "elsewhere: it may take that long anywhere."
)


class Exchange:
    """Serves requests with workers.

    `request_timeout`: seconds until an answer's head, all attempts together (0: none).
    `idle_limit`: seconds between two pieces of an answer (0: none). `refused` and
    `model_missing` are told of slots that refused a connection, or did not know a model
    they are listed for. `finished` is told of each call once it is over. `keys`: of
    clients; None: everybody may ask.
    """

    def __init__(
        self,
        chooser: Chooser,
        connections: Connections,
        meter: Meter,
        ids: RequestIds,
        worker_lines: WorkerLines,
        retry_rules: RetryRules,
        *,
        session_headers: tuple[bytes, ...],
        request_timeout: float,
        idle_limit: float,
        refused: Callable[[Slot, str], None],
        model_missing: Callable[[Slot], None],
        finished: Callable[[Call], None],
        keys: ClientKeys | None = None,
    ) -> None:
        #: Requests being served.
        self.in_flight = 0
        self._chooser = chooser
        self._connections = connections
        self._meter = meter
        self._ids = ids
        self._worker_lines = worker_lines
        self._retry_rules = retry_rules
        self._retry_statuses = retry_rules.statuses
        self._session_headers = session_headers
        self._request_timeout = request_timeout
        self._idle_limit = idle_limit
        self._refused = refused
        self._model_missing = model_missing
        self._finished = finished
        self._keys = keys
        self._bad_answers = Seldom(_log, "a worker's answer is not HTTP")

    async def serve(self, request: Request) -> None:
        """One request, from its head to the end of its answer."""
        call = Call(request)
        self.in_flight += 1
        try:
            request.id = self._ids.of(request.head)
            client = None if self._keys is None else self._keys.admit(request.head)
            if self._request_timeout:
                call.deadline = request.began + self._request_timeout
            if not request.complete and wants_body(request.head):
                # The model may stand at its end.
                await request.read()
            wish = call.wish = read_wish(request, self._session_headers)
            if client is not None:
                client.check(self._chooser.model_of(wish))
            slot = self._chooser.now(wish, ()) or await self._chooser.wait(wish)
            while True:
                other, why = None, "status"
                try:
                    upstream = self._send(call, slot) or await self._connect(call)
                    try:
                        await upstream.answered()
                    except UpstreamLost as lost:
                        upstream = await self._resend(call, slot, upstream, lost)
                    if upstream.status in self._retry_statuses:
                        other = await self._instead_of(call, slot, upstream.status)
                    if other is None:
                        upstream.relay(self._said(call, slot), self._idle_limit)
                        call.status = upstream.status
                        await upstream.finished()
                        return
                except _FAILURES as failure:
                    other, why = self._after(call, slot, failure)
                finally:
                    self._let_go(call, slot)
                slot = other or await self._chooser.wait(wish)
                self._meter.retried(why)
        except Exception as failure:
            self._end(call, failure)
        finally:
            self.in_flight -= 1
            self._finished(call)

    # --- one attempt ------------------------------------------------------------------

    def _send(self, call: Call, slot: Slot) -> Upstream | None:
        """Sends the request over an idle connection to the slot's worker, if it can."""
        worker: Worker = slot.owner
        call.worker = worker
        call.attempts += 1
        request = call.request
        # What streams, or changes the protocol, cannot be sent again.
        if request.body is None or request.head.upgrade is not None:
            return None
        upstream = self._connections.take(worker.base_url)
        if upstream is not None:
            self._write(call, worker, upstream)
        return upstream

    async def _connect(self, call: Call) -> Upstream:
        """Sends the request over a new connection.

        Raises ConnectFailed, or TimeoutError for the request's deadline.
        """
        worker = call.worker
        assert worker is not None
        upstream = await self._connections.connect(worker.endpoint, call.deadline)
        self._write(call, worker, upstream)
        return upstream

    async def _resend(
        self, call: Call, slot: Slot, used: Upstream, lost: UpstreamLost
    ) -> Upstream:
        """The same to the same worker, if it closed an idle connection as we used it.

        A new connection, with the answer's head there. Raises UpstreamLost otherwise.
        """
        if not (lost.silent and used.reused):
            raise lost
        self._meter.resends += 1
        try:
            upstream = await self._connect(call)
        except ConnectFailed as failed:
            # It was no idle connection then: the worker died of something.
            if failed.kind == "refused":
                self._refused(slot, failed.reason)
            raise lost from None
        await upstream.answered()
        return upstream

    def _write(self, call: Call, worker: Worker, upstream: Upstream) -> None:
        """Writes the request as this worker gets it."""
        call.upstream = upstream
        request, wish = call.request, call.wish
        said = self._worker_lines.of(worker)
        lines, drop = said.request, said.drop
        body, target = request.body, None
        if worker.renames and (name := worker.renames.get(wish.model or "")):
            target, body = renamed(request, wish, name)
        if wish.rank is not None and worker.dp_rank is None:
            lines += b"X-data-parallel-rank: %b\r\n" % wish.rank.encode("latin-1")
        if worker.provider is not None and worker.provider != wish.provider:
            # Somebody else's server, which the request did not name.
            drop = CREDENTIAL_FIELDS
        upstream.send(request, lines, body, call.deadline, drop, target)

    def _said(self, call: Call, slot: Slot) -> bytes:
        """What is added to the answer's head."""
        worker: Worker = slot.owner
        assert call.upstream is not None
        if call.upstream.status == 404 and call.wish.model in worker.names:
            self._model_missing(slot)
        return self._worker_lines.of(worker).answer

    def _let_go(self, call: Call, slot: Slot) -> None:
        """An attempt is over, one way or another."""
        upstream = call.upstream
        if upstream is not None:
            worker: Worker = slot.owner
            call.upstream = None
            if upstream.status:
                self._meter.attempted(worker.id, upstream.status)
            self._connections.let_go(worker.base_url, upstream)
            if call.status and upstream.failure is not None:
                self._cut(upstream, upstream.failure)
        self._chooser.release(slot)

    def _cut(self, upstream: Upstream, failure: str) -> None:
        """Ends an answer that broke off as such."""
        self._meter.upstream_failed("idle_timeout" if "silent" in failure else "cut")
        upstream.end_with(answers.event(BadWorkerResponse(_BROKE_OFF)))

    # --- another worker, or none ------------------------------------------------------

    def _after(
        self, call: Call, slot: Slot, failure: _Failure
    ) -> tuple[Slot | None, str]:
        """What comes after an attempt without an answer: a slot to try, and why.

        None: the request waits for one. Raises what the client is told if that was all.
        """
        connects = isinstance(failure, ConnectFailed)
        error = self._told(call, slot, failure)
        # Of a body that streams, part is gone once there was a connection.
        whole = connects or call.request.body is not None
        if not whole or not self._retries(call, slot).after_failure(error):
            raise error from None
        other = self._other(call)
        # A request that no worker has seen may wait, as if it had come just now.
        if other is None and not (self._chooser.holds and error is failure):
            raise error from None
        return other, "connect" if error is failure else "lost"

    def _told(self, call: Call, slot: Slot, failure: _Failure) -> RouterError:
        """Counts and reports a failed attempt; the error that it is for the client."""
        match failure:
            case ConnectFailed():
                kind = failure.kind
                error: RouterError = failure
                if kind == "refused":
                    self._refused(slot, failure.reason)
            case TimeoutError():
                kind, error = "connect_timeout", WorkerTimeout(_TOO_LONG)
            case UpstreamTimeout():
                kind, error = "timeout", WorkerTimeout(_TOO_LONG)
            case BadAnswer():
                kind = "bad_response"
                error = BadWorkerResponse("The worker's answer is not HTTP.")
                worker: Worker = slot.owner
                self._bad_answers.warn(
                    worker=worker.id, url=worker.url, reason=failure.message
                )
            case UpstreamLost():
                kind, error = "lost", WorkerUnreachable(_LOST)
        self._meter.attempted(slot.owner.id, 0)
        self._meter.upstream_failed(kind)
        return error

    async def _instead_of(self, call: Call, slot: Slot, status: int) -> Slot | None:
        """A worker to ask instead of one whose answer another may do better.

        None: that answer is the one that the client gets.
        """
        retries = self._retries(call, slot)
        if call.request.body is None or not retries.after_status(status):
            return None
        if call.deadline and monotonic() + retries.delay >= call.deadline:
            return None
        other = self._other(call)
        if other is not None and retries.delay:
            # Nobody is to be counted on it meanwhile, and it may be gone by then.
            self._chooser.release(other)
            await asyncio.sleep(retries.delay)
            other = self._other(call)
        return other

    def _other(self, call: Call) -> Slot | None:
        """A worker that was not tried yet, or None."""
        assert call.retries is not None
        try:
            return self._chooser.now(call.wish, call.retries.tried)
        except RouterError:
            # The fleet has changed, and what a worker said still stands.
            return None

    def _retries(self, call: Call, slot: Slot) -> Retries:
        """The request's attempts, with this one among them."""
        if call.retries is None:
            call.retries = Retries(self._retry_rules, ())
        call.retries.tried += (slot,)
        return call.retries

    # --- no answer of a worker --------------------------------------------------------

    def _end(self, call: Call, failure: Exception) -> None:
        """The request has no answer of a worker, or not the whole of it, and why."""
        if isinstance(failure, RouterError):
            call.answer(failure)
        elif isinstance(failure, BODY_FAILURES):
            call.answer(answers.of_body(failure))
        elif isinstance(failure, ClientGone):
            # This is also the way to end a tunnel.
            if call.status != 101:
                self._meter.aborts += 1
        else:
            # A fault of ours must cost this request only, and must be seen.
            _log.error("a request failed inside the router", exc_info=failure)
            call.answer(RouterError("The router failed. Its log says why."))
