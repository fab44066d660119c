"""One request and its body: held whole, or passed on as it comes.

Owns what becomes of a body: until the request's coroutine has decided, at most
MAX_WAITING bytes of it are taken in; then it is held, within a budget for all bodies
together, or streams to a worker. Knows nothing of how the bytes were framed.
"""

cimport cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from router.http1.buffer cimport Buffer
from router.http1.connection cimport Budget, Connection, now
from router.http1.framing cimport body_of
from router.http1.head cimport RequestHead
from router.http1.runner cimport Source, wait_for

from router.http1.errors import BodyOverBudget, ClientGone, ProtocolError

cdef enum:  # what becomes of a body
    UNDECIDED
    HOLD
    STREAM

cdef enum:  # what can be waited for
    WHOLE_BODY

cdef enum:
    # Bytes taken in before it is decided what becomes of a body.
    MAX_WAITING = 65536


@cython.final
cdef class Request(Source):
    """One request: its head, and its body whole or as a stream.

    `body` is the whole body once it is complete and held, else None. `complete` tells
    that the body's last byte came, `answered` that a byte of an answer went out;
    `received` and `sent` are bytes of body and answer so far. `began` is when the head
    came, `first_byte` when the answer's first byte went out (0: none did), both in
    monotonic seconds. `id`, once given, is told to the worker and to the client.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("a Request is made by the client's end")

    @property
    def keep_alive(self):
        """Whether the connection can serve another request after this one."""
        return self.head.keep_alive and self.complete and not self.last

    def read(self):
        """Awaitable: holds the body until it is whole, then it is in `body`.

        Raises ProtocolError (wrong chunks, too large), BodyOverBudget or BodyTimeout.
        """
        self.plan = HOLD
        self._continue()
        self.client.resume_reading()
        return wait_for(self, WHOLE_BODY)

    def stream_to(self, Connection sink not None):
        """Passes a body that is not complete on to `sink`, piece by piece.

        Chunked bodies go in new chunks. Raises what `read` raises, for bytes that came
        before; what comes later is raised where the coroutine waits.
        """
        if self.error is not None:
            raise self.error
        if self.complete:
            raise RuntimeError("a body that is complete is sent, not streamed")
        self.plan = STREAM
        self.sink = sink
        self._continue()
        self.client.resume_reading()
        sink.follow(self.client)
        self._pass_on(self.buffer.take())
        self.budget.give_back(self.held)
        self.held = 0

    def respond(self, bytes answer not None):
        """Sends a whole answer of the router's own, head and body."""
        self.answer_begins()
        self.persistent = self.keep_alive
        self.client.forward(answer)

    cdef int _continue(self) except -1:
        """Tells a client that waits for it to send the body (RFC 9110, 10.1.1)."""
        if not self.complete and self.received == 0 and self.head.expects_continue:
            if not self.answered and not self.client.closed:
                self.client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return 0

    # --- what the client's end calls ------------------------------------------------

    cdef Py_ssize_t take(self, bytes data, Py_ssize_t at) except -1:
        """Takes what of `data`, from `at` on, belongs to the body; how many bytes.

        Raises ProtocolError or BodyOverBudget; the body is broken then.
        """
        cdef const char* start = PyBytes_AS_STRING(data) + at
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data) - at
        cdef Py_ssize_t before = self.buffer.size
        cdef Py_ssize_t taken = self.framing.feed(start, size, self.buffer)
        cdef Py_ssize_t gained = self.buffer.size - before
        self.received += gained
        if self.received > self.max_body:
            raise ProtocolError(f"a body of more than {self.max_body} bytes", 413)
        if self.plan == STREAM:
            self._pass_on(self.buffer.take())
        else:
            if not self.budget.take(gained):
                raise BodyOverBudget
            self.held += gained
            if self.plan == UNDECIDED and self.held > MAX_WAITING:
                self.client.pause_reading()
        if self.framing.done:
            self._completed()
        return taken

    cdef int failed(self, object error) except -1:
        """The rest of the body will not come; the coroutine hears why."""
        self.error = error
        if self.runner is not None:
            if self.plan == STREAM:
                self.runner.stop(error)
            else:
                self.runner.resume()
        return 0

    cdef int leave(self) except -1:
        """The client is gone; the coroutine hears it where it waits."""
        if self.runner is not None:
            self.runner.stop(ClientGone())
        else:
            self.over()
        return 0

    cdef int over(self) except -1:
        """The request ended, one way or another."""
        self.budget.give_back(self.held)
        self.held = 0
        self.buffer = None
        if self.sink is not None:
            self.sink.unfollow(self.client)
            self.sink = None
        return 0

    # --- what the worker's end calls ------------------------------------------------

    cdef bytes passed_on(
        self,
        bytes lines,
        bytes body,
        bint together,
        unsigned long long drop,
        bytes target,
        bytes method,
    ):
        """The head as it goes to a worker, with `body` behind it if `together`.

        `body` None: it streams, framed as it came.
        """
        cdef long long length = self.head.content_length
        cdef bint whole = body is not None
        if whole:
            length = PyBytes_GET_SIZE(body) if self.framing is not None else -1
        return self.head.render(
            lines,
            self.id,
            self.forwarded_for,
            length,
            self.head.chunked and not whole,
            drop,
            target,
            method,
            b"http",
            self.head.upgrade,
            body if together else b"",
        )

    cdef int answer_begins(self) except -1:
        """From now on nobody else can answer."""
        self.answered = True
        self.first_byte = now()
        return 0

    cdef int let_go(self) except -1:
        """The body will not be sent again: an answer is on its way."""
        self.budget.give_back(self.held)
        self.held = 0
        self.body = None
        return 0

    # --- the body -------------------------------------------------------------------

    cdef int _pass_on(self, bytes piece) except -1:
        if piece:
            if self.head.chunked:
                piece = b"%x\r\n%b\r\n" % (PyBytes_GET_SIZE(piece), piece)
            self.sink.forward(piece)
        return 0

    cdef int _completed(self) except -1:
        self.complete = True
        if self.plan == STREAM:
            if self.head.chunked:
                self.sink.forward(b"0\r\n\r\n")
            self.sink.unfollow(self.client)
            self.sink = None
        else:
            self.body = self.buffer.take()
        return 0

    cdef bint ready(self, int what) noexcept:
        return self.complete or self.error is not None

    cdef int settle(self, int what) except -1:
        if self.error is not None:
            raise self.error
        return 0


cdef Request new_request(
    RequestHead head,
    Connection client,
    bytes forwarded_for,
    Budget budget,
    long long max_body,
):
    """A request whose body, if it has one, is still to come."""
    cdef Request request = Request.__new__(Request)
    request.head = head
    request.id = b""
    request.began = now()
    request.client = client
    request.forwarded_for = forwarded_for
    request.budget = budget
    request.max_body = max_body
    if head.chunked or head.content_length >= 0:
        request.framing = body_of(head.content_length, head.chunked, False)
    if request.framing is None or request.framing.done:
        request.body = b""
        request.complete = True
    else:
        request.buffer = Buffer()
    return request
