"""The worker's end of an HTTP/1.1 connection.

Owns what a worker answers to one request at a time, and the relaying of it: once the
coroutine of the request has said `relay`, bytes go from this transport to the
client's with no Python in between, as they came; only where the body ends is watched.
Knows nothing of pools, retries or who the worker is.

    state       meaning                                    left by
    IDLE        nothing is asked; any byte or end is fatal  send
    WAITING     a request was sent, no whole head yet       head, loss, deadline
    ANSWERED    the head is there, nothing was passed on    relay, tunnel, close
    RELAYING    the body goes to the client                 its end, a loss, silence
    TUNNEL      bytes of another protocol, both ways        either end's close
    OVER        the answer is complete                      reuse (IDLE), close
    LOST        the connection is of no more use            -
"""

cimport cython

from cpython.bytes cimport PyBytes_GET_SIZE

from router.http1.answer cimport Answer
from router.http1.connection cimport Connection, Ticker, now
from router.http1.request cimport Request
from router.http1.runner cimport Wait, wait_for

from router.http1.errors import BadAnswer, ProtocolError, UpstreamLost, UpstreamTimeout

cdef enum:
    IDLE
    WAITING
    ANSWERED
    RELAYING
    TUNNEL
    OVER
    LOST

cdef enum:  # what can be waited for
    ANSWER
    END

cdef enum:  # why a connection was lost
    TIMED_OUT
    CLOSED
    NOT_HTTP

cdef enum:
    # Most bytes held behind an answer's head before it is relayed.
    MAX_WAITING = 65536
    # A head and what follows it are written as one piece up to this size: to copy
    # them together is cheaper then than to hand over two.
    ONE_PIECE = 16384


@cython.final
cdef class Upstream(Connection):
    """One connection to a worker.

    `status` is the answer's code (0 as long as there is none), `failure` says what
    ended it too early (None if nothing did), `silent` that no byte of it came,
    `reused` that an earlier request went over this connection, `reusable` that another
    one may.
    """

    def __init__(self, Ticker ticker not None):
        Connection.__init__(self, ticker)
        self.answer = Answer()
        self.state = IDLE
        self.silent = True

    @property
    def head(self):
        """The answer's head, or None as long as it is not whole."""
        return self.answer.head

    # --- what the coroutine of a request calls -----------------------------------

    cpdef object send(
        self,
        Request request,
        bytes lines,
        bytes body=None,
        double deadline=0.0,
        unsigned long long drop=0,
        bytes target=None,
        bytes method=None,
    ):
        """Sends a request, with `lines` added to its head.

        `body` is what is sent with it; None: it streams, framed as the client did.
        `drop` leaves out fields of the client, `target` and `method` take the place of
        its own: see `RequestHead.render`. The answer's head must be there by `deadline`
        (monotonic seconds, 0: never).
        """
        cdef bint together = body is not None and PyBytes_GET_SIZE(body) <= ONE_PIECE
        cdef bytes head
        if self.state == LOST:
            # It ended before it was used; `answered` says so.
            self.loss = CLOSED
            return
        if self.state != IDLE or request.runner is None:
            raise RuntimeError("the connection or the request is not ready")
        self.request = request
        self.runner = request.runner
        self.state = WAITING
        self.deadline = deadline
        head = request.passed_on(lines, body, together, drop, target, method)
        if body is None:
            self.write(head)
            request.stream_to(self)
        elif together:
            self.write(head)
        else:
            self.hand_over((head, body))

    cpdef Wait answered(self):
        """Awaitable: ends when the answer's head is there.

        Raises UpstreamLost, UpstreamTimeout, or BadAnswer for what is not HTTP.
        """
        return wait_for(self, ANSWER)

    cpdef object relay(self, bytes lines, double idle_limit=0.0):
        """Passes the answer on to the client, with `lines` added to its head.

        From here on the bytes go on by themselves; await `finished`. No gap between
        two pieces may be longer than `idle_limit` seconds (0: no limit). A 101 joins
        both connections.
        """
        cdef Answer answer = self.answer
        cdef bint old_client
        if answer.head is not None and answer.head.status == 101:
            self._join(lines)
            return
        self._begin(RELAYING)
        old_client = self.request.head.minor == 0
        answer.unchunk = old_client and answer.head.chunked
        self.idle_limit = idle_limit
        self.keeps = (
            self.request.keep_alive
            and not answer.framing.until_close()
            and not answer.unchunk
        )
        self._relay_rest(lines, old_client)

    cpdef Wait finished(self):
        """Awaitable: ends with the answer, or when `failure` says why it broke off."""
        return wait_for(self, END)

    def end_with(self, bytes event not None):
        """Ends an answer that was cut short, so that no client takes it for whole.

        An event stream gets `event` (an SSE event) as its last words, where they can
        stand between two chunks; a blank line ends what was begun before. The
        connection then ends without the final chunk, or short of its Content-Length,
        and where neither would tell, with a reset.
        """
        if self.client is None:
            raise RuntimeError("there is no answer to end")
        cdef bytes words = self.answer.last_words(b"\n\n" + event)
        if words is not None:
            self.client.forward(words)
        elif self.answer.to_the_end():
            self.client.reset()

    def abort(self):
        """Closes at once; what was not sent yet is dropped."""
        self.state = LOST
        self.reusable = False
        self.deadline = 0
        if self.client is not None:
            self.client.unfollow(self)
        if self.source is not None:
            self.unfollow(self.source)
        Connection.abort(self)

    cpdef object park(self):
        """Makes the connection ready for another request."""
        self.request = None
        self.runner = None
        self.client = None
        self.answer.clear()
        self.status = 0
        self.silent = True
        self.reusable = False
        self.state = IDLE
        self.resume_reading()
        self.reused = True
        self.idle_since = now()

    @property
    def idle(self):
        """Whether the connection is open and nothing is asked of it."""
        return self.state == IDLE and not self.closed

    # --- what the loop calls --------------------------------------------------------

    def data_received(self, bytes data not None):
        cdef bytes part
        try:
            if self.state == RELAYING:
                if self.idle_limit:
                    self.deadline = now() + self.idle_limit
                part = self.answer.part(data, 0)
            elif self.state == WAITING:
                self.silent = False
                if not self.answer.add(data, self.request.head):
                    return
        except ProtocolError as error:
            self._fail(NOT_HTTP, f"the worker sent {error.message}")
            return
        if self.state == RELAYING:
            if part:
                self.client.forward(part)
            if self.answer.framing.done:
                self._complete(self.answer.at == PyBytes_GET_SIZE(data))
        elif self.state == WAITING:
            self.state = ANSWERED
            self.status = self.answer.head.status
            self.deadline = 0
            self.runner.resume()
        elif self.state == TUNNEL:
            self.client.forward(data)
        elif self.state == ANSWERED:
            if self.answer.keep(data) > MAX_WAITING:
                self.pause_reading()
        else:
            # Nobody asked for anything.
            self.abort()

    def eof_received(self):
        self.closed = True
        self._ended(None)
        return False

    def connection_lost(self, error):
        self.closed = True
        self.deadline = 0
        self.ticker.connections.discard(self)
        self._ended(error)

    cdef int pause_reading(self) except -1:
        Connection.pause_reading(self)
        # The client is the slow one now; its own deadline runs.
        self.deadline = 0
        return 0

    cdef int resume_reading(self) except -1:
        Connection.resume_reading(self)
        if self.state == RELAYING and self.idle_limit:
            self.deadline = now() + self.idle_limit
        return 0

    cdef int expired(self) except -1:
        self._fail(TIMED_OUT, "the worker fell silent")
        return 0

    # --- answering ------------------------------------------------------------------

    cdef int _begin(self, int state) except -1:
        """From now on what comes goes to the client, at the client's pace."""
        self.settle(ANSWER)
        if self.state != ANSWERED:
            raise RuntimeError("there is no answer to pass on")
        self.state = state
        self.client = self.request.client
        self.request.answer_begins()
        if self.request.complete:
            # Nobody else will be asked.
            self.request.let_go()
        self.resume_reading()
        self.client.follow(self)
        return 0

    cdef int _join(self, bytes lines) except -1:
        """Passes the 101 on and joins both connections."""
        cdef Answer answer = self.answer
        self._begin(TUNNEL)
        self.client.join(self)
        self.client.forward(
            answer.head.render(
                lines,
                self.request.id,
                True,
                False,
                False,
                answer.head.upgrade or b"websocket",
                answer.rest[answer.at:],
            )
        )
        if self.ended:
            self._ended(None)
        return 0

    cdef int _relay_rest(self, bytes lines, bint old_client) except -1:
        """Sends the head, with what came of the body behind it."""
        cdef Answer answer = self.answer
        cdef bytes data = answer.rest
        cdef bytes part = b""
        cdef str wrong = None
        cdef bint together
        answer.rest = b""
        if self.idle_limit and not self.reading_paused:
            self.deadline = now() + self.idle_limit
        try:
            if not answer.framing.done and answer.at < PyBytes_GET_SIZE(data):
                part = answer.part(data, answer.at)
        except ProtocolError as error:
            wrong = error.message
        together = PyBytes_GET_SIZE(part) <= ONE_PIECE
        self.client.forward(
            answer.head.render(
                lines,
                self.request.id,
                self.keeps,
                old_client,
                answer.head.chunked and not answer.unchunk,
                None,
                part if together else b"",
            )
        )
        if not together:
            self.client.forward(part)
        if wrong is not None:
            self._fail(NOT_HTTP, f"the worker sent {wrong}")
        elif answer.framing.done:
            self._complete(answer.at == PyBytes_GET_SIZE(data))
        elif self.ended:
            self._ended(None)
        return 0

    cdef int _complete(self, bint clean) except -1:
        """The answer is whole; `clean` says that nothing came behind it."""
        self.state = OVER
        self.deadline = 0
        self.reusable = (
            clean
            and not self.closed
            and not self.ended
            and self.answer.head.keep_alive
            and self.request.complete
            and not self.answer.framing.until_close()
        )
        self.request.persistent = self.keeps
        self.client.unfollow(self)
        self.runner.resume()
        return 0

    cdef int _fail(self, int loss, str failure) except -1:
        """The connection is of no more use; whoever waits on it hears why."""
        if self.state == OVER or self.state == LOST:
            return 0
        self.loss = loss
        self.failure = failure
        self.abort()
        if self.runner is not None:
            self.runner.resume()
        return 0

    cdef int _ended(self, object error) except -1:
        """The worker closed its side, cleanly or (`error`) not."""
        self.ended = True
        if self.state == ANSWERED and error is None:
            # What came is still there to be relayed.
            return 0
        if self.state == RELAYING and error is None:
            if self.answer.framing.until_close():
                return self._complete(False)
        if self.state == TUNNEL:
            self.state = OVER
            self.client.close()
            self.runner.resume()
            return 0
        return self._fail(CLOSED, "the worker closed the connection")

    cdef bint ready(self, int what) noexcept:
        if what == ANSWER:
            return self.state != WAITING
        return self.state == OVER or self.state == LOST

    cdef int settle(self, int what) except -1:
        if what == END or self.state != LOST:
            return 0
        if self.loss == TIMED_OUT:
            raise UpstreamTimeout(self.failure)
        if self.loss == CLOSED:
            raise UpstreamLost(
                self.failure or "the connection had ended", silent=self.silent
            )
        raise BadAnswer(self.failure)
