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
from router.proxy.call import Call, forwarded_head
from router.proxy.choice import Chooser
from router.proxy.lines import RequestIds, WorkerLines
from router.proxy.meter import Meter
from router.proxy.retry import Retries, RetryRules
from router.proxy.route import read_wish, renamed, wants_body
from router.proxy.seldom import Seldom
from router.proxy.upstream import ConnectFailed, Connections

_log = logging.getLogger("router.proxy")

_LOST = "The worker closed the connection before it answered."
_TOO_LONG = (
    "The worker did not begin its answer in time. The request was not tried "
    "elsewhere: it may take that long anywhere."
)


class Exchange:
    """Serves requests with workers.

    `request_timeout`: seconds until an answer's head, all attempts together (0: none).
    `idle_limit`: seconds between two pieces of an answer (0: none). `refused` and
    `model_missing` are told of slots that refused a connection, or did not know a model
    they are listed for. `finished` is told of each call once it is over.
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
    ) -> None:
        #: Requests being served.
        self.in_flight = 0
        self._chooser = chooser
        self._connections = connections
        self._meter = meter
        self._ids = ids
        self._worker_lines = worker_lines
        self._retry_rules = retry_rules
        self._session_headers = session_headers
        self._request_timeout = request_timeout
        self._idle_limit = idle_limit
        self._refused = refused
        self._model_missing = model_missing
        self._finished = finished
        self._bad_answers = Seldom(_log, "a worker's answer is not HTTP")

    async def serve(self, request: Request) -> None:
        """One request, from its head to the end of its answer."""
        call = Call(request, self._ids.of(request.head), monotonic())
        self.in_flight += 1
        try:
            await self._forward(call)
        except RouterError as error:
            self.answer(call, error)
        except BODY_FAILURES as failure:
            self.answer(call, answers.of_body(failure))
        except ClientGone:
            self._left(call)
        except Exception:
            # A fault of ours must cost this request only, and must be seen.
            _log.exception("a request failed inside the router")
            self.answer(call, RouterError("The router failed. Its log says why."))
        finally:
            self.in_flight -= 1
            self._finished(call)

    async def _forward(self, call: Call) -> None:
        """Finds a worker that answers, and relays its answer."""
        request = call.request
        if self._request_timeout:
            call.deadline = call.began + self._request_timeout
        if not request.complete and wants_body(request.head):
            # The model may stand at its end.
            await request.read()
        wish = call.wish = read_wish(request, self._session_headers)
        slot = self._chooser.now(wish, ()) or await self._chooser.wait(wish)
        while True:
            other: Slot | None = None
            why = "status"
            try:
                upstream = await self._ask(call, slot)
                if upstream.status in self._retry_rules.statuses:
                    other = await self._instead_of(call, slot, upstream)
                if other is None:
                    lines = self._answer_lines(call, upstream, slot)
                    await self.pass_on(call, upstream, lines, self._idle_limit)
                    return self._relayed(call, upstream)
            except (WorkerUnreachable, BadWorkerResponse) as failure:
                if not self._goes_on(call, slot, failure):
                    raise
                other = self._other(call)
                if other is None and not self._may_wait(failure):
                    raise
                why = "connect" if isinstance(failure, ConnectFailed) else "lost"
            finally:
                self._chooser.release(slot)
            slot = other or await self._chooser.wait(wish)
            self._meter.retried(why)

    # --- one attempt ------------------------------------------------------------------

    async def _ask(self, call: Call, slot: Slot) -> Upstream:
        """Sends the request to a worker; the connection, with its answer's head there.

        Raises WorkerUnreachable, BadWorkerResponse or WorkerTimeout.
        """
        worker: Worker = slot.owner
        call.worker = worker
        call.attempts += 1
        request = call.request
        upstream = None
        # What streams, or changes the protocol, cannot be sent again.
        if request.body is not None and request.head.upgrade is None:
            upstream = self._connections.take(worker.base_url)
        resent = False
        try:
            if upstream is not None:
                try:
                    return await self._send(call, upstream, worker)
                except UpstreamLost as lost:
                    if not lost.silent:
                        raise
                    # The worker closed an idle connection just as we used it.
                    resent = True
                    self._meter.resends += 1
            upstream = await self._connections.connect(worker.endpoint, call.deadline)
            return await self._send(call, upstream, worker)
        except ConnectFailed as failed:
            self._failed(worker, failed.kind)
            if failed.kind == "refused":
                self._refused(slot, failed.reason)
            if resent:
                # It was no idle connection then: the worker died of something.
                raise WorkerUnreachable(_LOST) from None
            raise
        except TimeoutError:
            self._failed(worker, "connect_timeout")
            raise WorkerTimeout(_TOO_LONG) from None
        except UpstreamLost:
            self._failed(worker, "lost")
            raise WorkerUnreachable(_LOST) from None

    async def _send(self, call: Call, upstream: Upstream, worker: Worker) -> Upstream:
        """Sends the request over a connection and awaits the answer's head."""
        request = call.request
        body, target = request.body, None
        if worker.renames:
            name = worker.renames.get(call.wish.model or "")
            if name is not None:
                target, body = renamed(request, call.wish, name)
        head = self._head(call, worker, body, target)
        try:
            upstream.send(request, head, body, deadline=call.deadline)
            if body is None:
                request.stream_to(upstream)
            await upstream.answered()
        except UpstreamTimeout:
            self._failed(worker, "timeout")
            raise WorkerTimeout(_TOO_LONG) from None
        except BadAnswer as error:
            self._failed(worker, "bad_response")
            self._bad_answers.warn(
                worker=worker.id, url=worker.url, reason=error.message
            )
            raise BadWorkerResponse("The worker's answer is not HTTP.") from None
        except BaseException:
            upstream.abort()
            raise
        self._meter.attempted(worker.id, upstream.status)
        return upstream

    def _head(
        self, call: Call, worker: Worker, body: bytes | None, target: bytes | None
    ) -> bytes:
        """The request's head as this worker gets it."""
        wish = call.wish
        said = self._worker_lines.of(worker)
        lines = said.request + b"X-Request-Id: " + call.id + b"\r\n"
        if wish.rank is not None and worker.dp_rank is None:
            lines += b"X-data-parallel-rank: %b\r\n" % wish.rank.encode("latin-1")
        drop = said.drop
        if worker.provider is not None and worker.provider != wish.provider:
            # Somebody else's server, which the request did not name.
            drop = CREDENTIAL_FIELDS
        return forwarded_head(call.request, body, lines, drop, target)

    # --- another worker, or none ------------------------------------------------------

    async def _instead_of(
        self, call: Call, slot: Slot, upstream: Upstream
    ) -> Slot | None:
        """A worker to ask instead of one whose answer another may do better.

        None: that answer is the one that the client gets.
        """
        retries = self._retries(call, slot)
        if call.request.body is None or not retries.after_status(upstream.status):
            return None
        if call.deadline and monotonic() + retries.delay >= call.deadline:
            return None
        other = self._other(call)
        if other is not None and retries.delay:
            # Nobody is to be counted on it meanwhile, and it may be gone by then.
            self._chooser.release(other)
            try:
                await asyncio.sleep(retries.delay)
            except BaseException:
                upstream.abort()
                raise
            other = self._other(call)
        if other is not None:
            upstream.abort()
        return other

    def _goes_on(self, call: Call, slot: Slot, failure: RouterError) -> bool:
        """Whether a request goes on after an attempt without an answer."""
        # Of a body that streams, part is gone once there was a connection.
        if call.request.body is None and not isinstance(failure, ConnectFailed):
            return False
        return self._retries(call, slot).after_failure(failure)

    def _may_wait(self, failure: RouterError) -> bool:
        """Whether a request that no other worker can take waits for one.

        As it would have done had it come a moment later: no worker has seen it.
        """
        return self._chooser.holds and isinstance(failure, ConnectFailed)

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

    def _failed(self, worker: Worker, kind: str) -> None:
        self._meter.attempted(worker.id, 0)
        self._meter.upstream_failed(kind)

    # --- the answer -------------------------------------------------------------------

    def _answer_lines(self, call: Call, upstream: Upstream, slot: Slot) -> bytes:
        """What is added to the answer's head."""
        worker: Worker = slot.owner
        if upstream.status == 404 and call.wish.model in worker.names:
            self._model_missing(slot)
        said = self._worker_lines.of(worker)
        return said.answer + b"X-Request-Id: " + call.id + b"\r\n"

    def _relayed(self, call: Call, upstream: Upstream) -> None:
        """An answer was passed on to its end, or broke off."""
        if upstream.reusable and call.worker is not None:
            self._connections.give_back(call.worker.base_url, upstream)
        elif upstream.failure is not None:
            silent = "silent" in upstream.failure
            self._meter.upstream_failed("idle_timeout" if silent else "cut")
            call.error = upstream.failure

    async def pass_on(
        self, call: Call, upstream: Upstream, lines: bytes, idle_limit: float
    ) -> None:
        """Relays an answer and awaits its end; one that broke off is ended as such."""
        try:
            if upstream.status == 101:
                upstream.tunnel(lines)
            else:
                upstream.relay(lines, idle_limit=idle_limit)
            call.status = upstream.status
            if call.worker is not None:
                # Probes of the router itself would hide how fast the workers are.
                self._meter.began(monotonic() - call.began)
            await upstream.finished()
        except UpstreamLost:
            raise WorkerUnreachable("The worker's answer broke off.") from None
        finally:
            if not upstream.reusable:
                upstream.abort()
        if upstream.failure is not None:
            upstream.end_with(
                answers.event(
                    BadWorkerResponse("The worker's answer broke off in the middle.")
                )
            )

    def _left(self, call: Call) -> None:
        """The client left, as is the way to end a tunnel."""
        if call.status != 101:
            self._meter.aborts += 1
            call.error = "the client left"

    def answer(self, call: Call, error: RouterError) -> None:
        """Answers with an error of the router's own."""
        call.error = error.code
        if call.request.answered:
            return
        call.status = error.status
        call.request.respond(
            answers.render(
                error,
                call.id,
                keep_alive=call.request.keep_alive,
                head_only=call.request.head.method == b"HEAD",
            )
        )
