"""One request and its body: held whole, or passed on as it comes.

Owns what becomes of a body: until the request's coroutine has decided, at most
MAX_WAITING bytes of it are taken in; then it is held, within a budget for all bodies
together, or streams to a worker. Knows nothing of how the bytes were framed.
"""

cimport cython

from cpython.bytes cimport PyBytes_GET_SIZE

from router.http1.connection cimport Budget, Connection
from router.http1.framing cimport body_of
from router.http1.head cimport RequestHead
from router.http1.runner cimport Source, wait_for

from router.http1.errors import BodyOverBudget, ProtocolError

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

    `body` is the whole body once `read` ended, else None. `complete` tells that the
    body's last byte came, `answered` that a byte of an answer went out; `received`
    and `sent` are bytes of body and answer so far.
    """

    @property
    def has_body(self):
        """Whether a body was announced, be it empty in the end."""
        return self.framing is not None

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
        """Passes the body on to `sink` piece by piece, chunked bodies in new chunks."""
        cdef bytes piece
        self.plan = STREAM
        self.sink = sink
        for piece in self.pieces:
            self._pass_on(piece)
        self.pieces = []
        if self.complete:
            self.completed()
        self._continue()
        self.client.resume_reading()

    def respond(self, bytes answer not None):
        """Sends a whole answer of the router's own, head and body."""
        self.answered = True
        self.persistent = self.keep_alive
        self.client.forward(answer)

    cdef int _continue(self) except -1:
        """Tells a client that waits for it to send the body (RFC 9110, 10.1.1)."""
        if not self.complete and self.received == 0 and self.head.expects_continue:
            if not self.answered and not self.client.closed:
                self.client.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return 0

    cdef int arrived(self, list pieces) except -1:
        """Takes what came of the body."""
        cdef bytes piece
        for piece in pieces:
            self.received += PyBytes_GET_SIZE(piece)
            if self.received > self.max_body:
                raise ProtocolError(
                    f"a body of more than {self.max_body} bytes", 413
                )
            if self.plan == STREAM:
                self._pass_on(piece)
            else:
                self._hold(piece)
        return 0

    cdef int _hold(self, bytes piece) except -1:
        if not self.budget.take(PyBytes_GET_SIZE(piece)):
            raise BodyOverBudget
        self.held += PyBytes_GET_SIZE(piece)
        self.pieces.append(piece)
        if self.plan == UNDECIDED and self.held > MAX_WAITING:
            self.client.pause_reading()
        return 0

    cdef int _pass_on(self, bytes piece) except -1:
        if self.head.chunked:
            piece = b"%x\r\n%b\r\n" % (PyBytes_GET_SIZE(piece), piece)
        self.sink.forward(piece)
        return 0

    cdef int completed(self) except -1:
        """The body's last byte came."""
        self.complete = True
        if self.plan != STREAM:
            if len(self.pieces) == 1:
                self.body = <bytes> self.pieces[0]
            else:
                self.body = b"".join(self.pieces)
            self.pieces = None
        elif self.head.chunked:
            self.sink.forward(b"0\r\n\r\n")
        return 0

    cdef int failed(self, object error) except -1:
        """The rest of the body will not come; the coroutine hears why."""
        self.error = error
        if self.runner is not None:
            if self.plan == STREAM:
                self.runner.stop(error)
            else:
                self.runner.resume()
        return 0

    cdef int over(self) except -1:
        """Nobody needs the body any more."""
        self.budget.give_back(self.held)
        self.held = 0
        return 0

    cdef bint ready(self, int what) noexcept:
        return self.complete or self.error is not None

    cdef int settle(self, int what) except -1:
        if self.error is not None:
            raise self.error
        return 0


cdef Request new_request(
    RequestHead head, Connection client, Budget budget, long long max_body
):
    """A request whose body, if it has one, is still to come."""
    cdef Request request = Request.__new__(Request)
    request.head = head
    request.client = client
    request.budget = budget
    request.max_body = max_body
    if head.chunked or head.content_length >= 0:
        request.framing = body_of(head.content_length, head.chunked, False)
    if request.framing is None or request.framing.done:
        request.body = b""
        request.complete = True
    else:
        request.pieces = []
    return request
