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

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from router.http1.connection cimport Connection, Ticker, now
from router.http1.framing cimport body_of
from router.http1.fields cimport has_bare_newline, head_end
from router.http1.head cimport parse_response
from router.http1.request cimport Request
from router.http1.runner cimport wait_for

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
    NOT_LOST
    TIMED_OUT
    CLOSED
    NOT_HTTP

cdef enum:
    # Largest head of an answer, and most bytes held behind it before it is relayed.
    MAX_HEAD = 65536
    # Head and first bytes of the body go out in one piece up to this size.
    ONE_PIECE = 65536


@cython.final
cdef class Upstream(Connection):
    """One connection to a worker.

    `head` is the answer's head, `failure` says what ended it too early (None if
    nothing did), `silent` that no byte of an answer came, `reused` that an earlier
    request went over this connection, `reusable` that another one may.
    """

    def __init__(self, Ticker ticker not None):
        Connection.__init__(self, ticker)
        self.rest = b""
        self.state = IDLE

    # --- what the coroutine of a request calls -----------------------------------

    def send(
        self,
        Request request not None,
        bytes head not None,
        bytes body=None,
        *,
        double deadline=0.0,
    ):
        """Sends a request: head and, where it is held, body.

        The answer's head must be there by `deadline` (monotonic seconds, 0: never).
        """
        self.request = request
        self.runner = request.runner
        self.head = None
        self.failure = None
        self.loss = NOT_LOST
        self.silent = True
        self.reusable = False
        self.state = WAITING
        self.deadline = deadline
        self.head_only = request.head.raw.startswith(b"HEAD ")
        if not body:
            self.transport.write(head)
        elif PyBytes_GET_SIZE(body) < 16384:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def answered(self):
        """Awaitable: ends when the answer's head is there.

        Raises UpstreamLost, UpstreamTimeout, or BadAnswer for what is not HTTP.
        """
        return wait_for(self, ANSWER)

    @property
    def status(self):
        """The answer's status code."""
        return self.head.status

    def relay(self, bytes lines not None, *, double idle_limit):
        """Passes the answer on to the client, with `lines` added to its head.

        From here on the bytes go on by themselves; await `finished`. No gap between
        two pieces may be longer than `idle_limit` seconds (0: no limit).
        """
        cdef Request request = self.request
        cdef bint old_client = request.head.minor == 0
        cdef bint keep_alive
        self.settle(ANSWER)
        self.idle_limit = idle_limit
        self.client = request.client
        self.unchunk = old_client and self.head.chunked
        keep_alive = (
            request.keep_alive and not self.framing.until_close() and not self.unchunk
        )
        request.answered = True
        request.persistent = keep_alive
        self.state = RELAYING
        self._relay_rest(
            self.head.render(
                lines,
                keep_alive=keep_alive,
                say_keep_alive=old_client,
                chunked=self.head.chunked and not self.unchunk,
            )
        )

    def tunnel(self, bytes lines not None):
        """Passes the 101 on and joins both connections; await `finished`."""
        cdef Request request = self.request
        cdef Connection client = request.client
        request.answered = True
        self.client = client
        self.state = TUNNEL
        self.deadline = 0
        client.join(self)
        client.forward(
            self.head.render(lines, upgrade=self.head.upgrade or b"websocket")
            + self.rest[self.at:]
        )

    def finished(self):
        """Awaitable: ends with the answer, or when `failure` says why it broke off."""
        return wait_for(self, END)

    def end_with(self, bytes event not None):
        """Ends an answer that was cut short, so that no client takes it for whole.

        An event stream gets `event` (an SSE event) as its last words, where they can
        stand between two chunks. The connection then ends without the final chunk.
        """
        cdef bytes kind = self.head.header(b"content-type") or b""
        if kind.startswith(b"text/event-stream") and not self.client.closed:
            if not self.head.chunked or self.unchunk:
                self.client.forward(event)
            elif self.framing.at_chunk_boundary():
                self.client.forward(b"%x\r\n%b\r\n" % (PyBytes_GET_SIZE(event), event))

    def park(self):
        """Makes the connection ready for another request."""
        self.request = None
        self.runner = None
        self.client = None
        self.framing = None
        self.head = None
        self.rest = b""
        self.at = 0
        self.seen = 0
        self.state = IDLE
        self.resume_reading()
        self.deadline = 0
        self.reused = True
        self.idle_since = now()

    @property
    def idle(self):
        """Whether the connection is open and nothing is asked of it."""
        return self.state == IDLE and not self.closed

    # --- what the loop calls --------------------------------------------------------

    def data_received(self, bytes data not None):
        cdef bytes part
        if self.state == RELAYING:
            if self.idle_limit:
                self.deadline = now() + self.idle_limit
            try:
                part = self._body_part(data, 0)
            except ProtocolError as error:
                self._fail(NOT_HTTP, f"the worker sent {error.message}")
                return
            if part:
                self.client.forward(part)
            if self.framing.done:
                self._complete(self.at == PyBytes_GET_SIZE(data))
        elif self.state == WAITING:
            self.silent = False
            self.rest = self.rest + data if self.rest else data
            try:
                self._read_head()
            except ProtocolError as error:
                self._fail(NOT_HTTP, f"the worker sent {error.message}")
        elif self.state == TUNNEL:
            self.client.forward(data)
        elif self.state == ANSWERED:
            self.rest = self.rest[self.at:] + data
            self.at = 0
            if PyBytes_GET_SIZE(self.rest) > MAX_HEAD:
                self.pause_reading()
        else:
            self.reusable = False
            self.abort()
            self._fail(NOT_HTTP, "the worker sent bytes that nobody asked for")

    def eof_received(self):
        self._ended(None)
        return False

    def connection_lost(self, error):
        self.closed = True
        self.deadline = 0
        self.ticker.connections.discard(self)
        self._ended(error)

    def pause_writing(self):
        self.writing_paused = True
        if self.request is not None and (
            self.state == TUNNEL or not self.request.complete
        ):
            self.request.client.pause_reading()

    def resume_writing(self):
        self.writing_paused = False
        if self.request is not None and (
            self.state == TUNNEL or not self.request.complete
        ):
            self.request.client.resume_reading()

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

    # --- reading --------------------------------------------------------------------

    cdef int _read_head(self) except -1:
        """Reads the answer's head, past interim ones, and lets the coroutine decide."""
        cdef const char* p
        cdef Py_ssize_t end, size
        while True:
            p = PyBytes_AS_STRING(self.rest)
            size = PyBytes_GET_SIZE(self.rest)
            end = head_end(p, size, self.seen)
            if end > MAX_HEAD or (end < 0 and size > MAX_HEAD):
                raise ProtocolError(f"a head of more than {MAX_HEAD} bytes")
            if end < 0:
                if has_bare_newline(p, size, self.seen):
                    raise ProtocolError("a line that ends without a carriage return")
                self.seen = size
                return 0
            self.seen = 0
            self.head = parse_response(self.rest[:end])
            if self.head.status >= 200 or self.head.status == 101:
                break
            self.rest = self.rest[end:]
        self.at = end
        if self.head_only or self.head.status in (204, 304):
            self.framing = body_of(0, False, False)
        else:
            self.framing = body_of(self.head.content_length, self.head.chunked, True)
        self.state = ANSWERED
        self.deadline = 0
        self.runner.resume()
        return 0

    cdef bytes _body_part(self, bytes data, Py_ssize_t start):
        """What of `data`, from `start` on, goes to the client, up to `at`."""
        cdef list payload
        if self.unchunk:
            payload = []
            self.at = start + self.framing.feed(data, start, payload)
            return b"".join(payload)
        self.at = start + self.framing.feed(data, start, None)
        if start == 0 and self.at == PyBytes_GET_SIZE(data):
            return data
        return data[start:self.at]

    cdef int _relay_rest(self, bytes head) except -1:
        """Sends the head, with what came of the body behind it."""
        cdef bytes data = self.rest
        cdef bytes part = b""
        self.rest = b""
        if self.idle_limit:
            self.deadline = now() + self.idle_limit
        try:
            if not self.framing.done and self.at < PyBytes_GET_SIZE(data):
                part = self._body_part(data, self.at)
        except ProtocolError as error:
            self.client.forward(head)
            self._fail(NOT_HTTP, f"the worker sent {error.message}")
            return 0
        if PyBytes_GET_SIZE(part) <= ONE_PIECE:
            self.client.forward(head + part)
        else:
            self.client.forward(head)
            self.client.forward(part)
        self.client.follow(self)
        if self.framing.done:
            self._complete(self.at == PyBytes_GET_SIZE(data))
        elif self.ended:
            self._ended(None)
        else:
            self.resume_reading()
        return 0

    cdef int _complete(self, bint clean) except -1:
        """The answer is whole; `clean` says that nothing came behind it."""
        self.state = OVER
        self.deadline = 0
        self.reusable = (
            clean
            and not self.closed
            and not self.ended
            and self.head.keep_alive
            and self.request.complete
            and not self.framing.until_close()
        )
        self.client.follow(None)
        self.runner.resume()
        return 0

    cdef int _fail(self, int loss, str failure) except -1:
        """The connection is of no more use; whoever waits on it hears why."""
        if self.state == OVER or self.state == LOST:
            return 0
        self.state = LOST
        self.loss = loss
        self.failure = failure
        self.deadline = 0
        if self.client is not None:
            self.client.follow(None)
            self.request.persistent = False
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
        if self.state == RELAYING and error is None and self.framing.until_close():
            return self._complete(False)
        if self.state == TUNNEL:
            self.state = OVER
            self.client.transport.close()
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
            raise UpstreamLost(self.failure, silent=self.silent)
        raise BadAnswer(self.failure)
