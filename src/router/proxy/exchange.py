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
    Overloaded,
    RequestTimeout,
    RouterError,
    WorkerTimeout,
    WorkerUnreachable,
)
from router.fleet.worker import Worker
from router.http1.errors import (
    BadAnswer,
    BodyOverBudget,
    BodyTimeout,
    ClientGone,
    ProtocolError,
    UpstreamLost,
    UpstreamTimeout,
)
from router.http1.head import AUTHORIZATION_FIELD, CREDENTIAL_FIELDS
from router.http1.request import Request
from router.http1.upstream import Upstream
from router.proxy import answers
from router.proxy.choice import Chooser
from router.proxy.lines import RequestIds, WorkerLines
from router.proxy.meter import Meter
from router.proxy.retry import Retries, RetryRules
from router.proxy.route import Wish, read_wish, renamed, wants_body
from router.proxy.upstream import ConnectFailed, Connections

_log = logging.getLogger("router.proxy")

#: The wish of a request that was not read.
_NOTHING_YET = Wish()


def tunnel_wanted(request: Request) -> bytes | None:
    """`websocket` if the client asks for one: the only protocol we change to."""
    upgrade = request.head.upgrade
    return upgrade if upgrade is not None and upgrade.lower() == b"websocket" else None


def forwarded_head(
    request: Request, body: bytes | None, lines: bytes, drop: int = 0
) -> bytes:
    """The request's head as it goes on, with `lines` in it and `drop` left out.

    `body` is what is sent with it; None: it streams, framed as the client did.
    """
    head = request.head
    if body is None:
        length, chunked = head.content_length, head.chunked
    else:
        length, chunked = (len(body) if request.has_body else -1), False
    return head.render(
        lines, length=length, chunked=chunked, drop=drop, upgrade=tunnel_wanted(request)
    )


class Call:
    """What is known of one request while it lives; then it is accounted for."""

    __slots__ = (
        "began",
        "error",
        "id",
        "request",
        "retries",
        "status",
        "wish",
        "worker",
    )

    def __init__(self, request: Request, id: bytes, began: float) -> None:
        self.request = request
        self.id = id
        #: Monotonic seconds.
        self.began = began
        self.wish = _NOTHING_YET
        #: The answer's status; 0: none went out.
        self.status = 0
        self.worker: Worker | None = None
        self.retries: Retries | None = None
        self.error: str | None = None


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

    async def serve(self, request: Request) -> None:
        """One request, from its head to the end of its answer."""
        call = Call(request, self._ids.of(request.head), monotonic())
        self.in_flight += 1
        try:
            await self._forward(call)
        except RouterError as error:
            self.answer(call, error)
        except ClientGone:
            self._meter.aborts += 1
            call.error = "the client left"
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
        if not request.complete and wants_body(request.head):
            await self._hold_body(request)
        wish = call.wish = read_wish(request, self._session_headers)
        slot = self._chooser.now(wish, ()) or await self._chooser.wait(wish)
        while True:
            other: Slot | None = None
            try:
                if call.retries is not None and call.retries.delay:
                    await asyncio.sleep(call.retries.delay)
                upstream = await self._ask(call, slot)
                if upstream.status in self._retry_rules.statuses:
                    other = self._other(call, slot, upstream.status)
                if other is None:
                    return await self._relay(call, upstream, slot)
                upstream.abort()
            except (WorkerUnreachable, BadWorkerResponse) as failure:
                other = self._other(call, slot, failure)
                if other is None:
                    raise
            finally:
                self._chooser.release(slot)
            slot = other

    async def _hold_body(self, request: Request) -> None:
        """Waits for the whole body, since the model may stand at its end."""
        try:
            await request.read()
        except ProtocolError as error:
            raise answers.malformed(error.status, error.message) from None
        except BodyTimeout:
            raise RequestTimeout("The request's body was not whole in time.") from None
        except BodyOverBudget:
            raise Overloaded(
                "The router holds as many bytes of requests as it may. Try again soon."
            ) from None

    # --- one attempt ------------------------------------------------------------------

    async def _ask(self, call: Call, slot: Slot) -> Upstream:
        """Sends the request to a worker; the connection, with its answer's head there.

        Raises WorkerUnreachable, BadWorkerResponse or WorkerTimeout.
        """
        worker: Worker = slot.owner
        call.worker = worker
        request = call.request
        upstream = None
        # What streams, or changes the protocol, cannot be sent again.
        if request.body is not None and tunnel_wanted(request) is None:
            upstream = self._connections.take(worker.base_url)
        if upstream is not None:
            try:
                return await self._send(call, upstream, worker)
            except UpstreamLost as lost:
                if not lost.silent:
                    raise BadWorkerResponse("The worker's answer broke off.") from None
                # The worker closed an idle connection just as we used it: no failure.
                self._meter.resends += 1
        try:
            upstream = await self._connections.connect(worker.endpoint)
            return await self._send(call, upstream, worker)
        except ConnectFailed as failed:
            self._failed(worker, failed.kind)
            if failed.kind == "refused":
                self._refused(slot, failed.reason)
            raise
        except UpstreamLost:
            self._failed(worker, "lost")
            raise WorkerUnreachable(
                "The worker closed the connection before it answered."
            ) from None

    async def _send(self, call: Call, upstream: Upstream, worker: Worker) -> Upstream:
        """Sends the request over a connection and awaits the answer's head."""
        request = call.request
        body = request.body
        wish = call.wish
        if body and worker.renames and wish.model_at is not None:
            name = worker.renames.get(wish.model or "")
            if name is not None:
                body = renamed(body, wish.model_at, name)
        head = forwarded_head(
            request, body, self._lines(call, worker), self._dropped(wish, worker)
        )
        deadline = call.began + self._request_timeout if self._request_timeout else 0.0
        try:
            upstream.send(request, head, body, deadline=deadline)
            if body is None:
                request.stream_to(upstream)
            await upstream.answered()
        except UpstreamTimeout:
            self._failed(worker, "timeout")
            raise WorkerTimeout(
                "The worker did not begin its answer in time. The request was not "
                "tried elsewhere: it may take that long anywhere."
            ) from None
        except BadAnswer as error:
            self._failed(worker, "bad_response")
            _log.warning("worker %s: %s", worker.url, error.message)
            raise BadWorkerResponse("The worker's answer is not HTTP.") from None
        except BaseException:
            upstream.abort()
            raise
        self._meter.attempted(worker.id, upstream.status)
        return upstream

    def _lines(self, call: Call, worker: Worker) -> bytes:
        """What is added to the request's head."""
        lines = (
            self._worker_lines.of_request(worker)
            + call.request.client.forwarded_for
            + b"X-Request-Id: "
            + call.id
            + b"\r\n"
        )
        if call.wish.rank is not None and worker.dp_rank is None:
            lines += b"X-data-parallel-rank: %b\r\n" % call.wish.rank.encode("latin-1")
        return lines

    def _dropped(self, wish: Wish, worker: Worker) -> int:
        """Which of the client's credentials this worker must not see."""
        if worker.provider is not None and worker.provider != wish.provider:
            return CREDENTIAL_FIELDS
        return AUTHORIZATION_FIELD if self._worker_lines.has_key(worker) else 0

    # --- another worker, or none ------------------------------------------------------

    def _other(self, call: Call, slot: Slot, reason: RouterError | int) -> Slot | None:
        """A worker to try instead of `slot`, or None: this was the last attempt."""
        if call.request.body is None:
            return None
        retries = call.retries
        if retries is None:
            retries = call.retries = Retries(self._retry_rules, ())
        retries.tried += (slot,)
        if isinstance(reason, int):
            allowed, why = retries.after_status(reason), "status"
        else:
            connect = isinstance(reason, ConnectFailed)
            allowed = retries.after_failure(reason)
            why = "connect" if connect else "lost"
        other = self._chooser.now(call.wish, retries.tried) if allowed else None
        if other is not None:
            self._meter.retried(why)
        return other

    def _failed(self, worker: Worker, kind: str) -> None:
        self._meter.attempted(worker.id, 0)
        self._meter.upstream_failed(kind)

    # --- the answer -------------------------------------------------------------------

    async def _relay(self, call: Call, upstream: Upstream, slot: Slot) -> None:
        """Passes a worker's answer on, to its end."""
        worker: Worker = slot.owner
        if upstream.status == 404 and call.wish.model in worker.names:
            self._model_missing(slot)
        lines = (
            self._worker_lines.of_answer(worker) + b"X-Request-Id: " + call.id + b"\r\n"
        )
        await self.pass_on(call, upstream, lines, self._idle_limit)
        if upstream.reusable:
            self._connections.give_back(worker.base_url, upstream)
        if upstream.failure is not None:
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
