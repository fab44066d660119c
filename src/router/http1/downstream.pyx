"""The client's end of an HTTP/1.1 connection.

Owns what a client sends, in order: heads, bodies, pipelined requests; and the life of
the connection around them. Each request runs one coroutine, `serve(request)`, which
decides whether the body is held whole or streams, and answers. Knows nothing of
workers: an answer that is relayed comes through `Connection.forward`.

    state       what comes next from the client                     ends with
    HEAD        a request's head                                    BODY or ANSWERING
    BODY        the request's body; its coroutine runs already      ANSWERING
    ANSWERING   nothing; further bytes wait (pipelining)            HEAD, LINGERING
    BROKEN      bytes that no longer count; the coroutine runs on   LINGERING
    LINGERING   bytes thrown away, so that the client can read the  the client's close,
                answer it got before it stopped sending             or the deadline
    TUNNEL      bytes of another protocol, both ways                either end's close
"""

cimport cython

import asyncio

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from router.http1.connection cimport Budget, Connection, Ticker, now
from router.http1.fields cimport has_bare_newline, head_end
from router.http1.head cimport RequestHead, parse_request, too_large
from router.http1.request cimport Request, new_request
from router.http1.runner cimport Runner

from router.http1.errors import BodyOverBudget, BodyTimeout, ClientGone, ProtocolError

cdef enum:
    HEAD
    BODY
    ANSWERING
    BROKEN
    LINGERING
    TUNNEL

cdef enum:
    # Largest head, start line included; nginx takes 32 KiB, h11 64.
    MAX_HEAD = 65536
    # Bytes that may wait behind a request that is being answered. Past it the socket
    # is not read.
    MAX_WAITING = 65536

# How long a connection that was refused may stay silent, and go on sending, before it
# is closed.
cdef double LINGER_SECONDS = 3.0
cdef double LINGER_IN_ALL = 30.0


@cython.final
cdef class Downstream(Connection):
    """One client's connection.

    `serve(request)` makes the coroutine of a request; `refuse(peer, status, message)`
    gives the bytes of the answer to what is not a request. Times are in seconds:
    `head_timeout` for a head, and between two pieces of a body; `idle_timeout` between
    requests; `write_timeout` for a client that does not read. `max_body` is in bytes.
    """

    def __init__(
        self,
        serve,
        refuse,
        Ticker ticker not None,
        Budget budget not None,
        *,
        double head_timeout,
        double idle_timeout,
        double write_timeout,
        long long max_body,
    ):
        Connection.__init__(self, ticker)
        self._serve = serve
        self._refuse = refuse
        self.budget = budget
        self.head_timeout = head_timeout
        self.idle_timeout = idle_timeout
        self.write_timeout = write_timeout
        self.max_body = max_body
        self.pending = b""
        self.state = HEAD

    @property
    def busy(self):
        """Whether a request is being served."""
        return self.request is not None

    def drain(self):
        """Closes as soon as no request is being served or on its way."""
        self.draining = True
        if self.request is not None:
            self.request.last = True
        elif self.state == HEAD and not self.closed:
            if self.at == PyBytes_GET_SIZE(self.pending):
                self._finish(False)

    # --- what the loop calls -------------------------------------------------------

    def connection_made(self, transport):
        Connection.connection_made(self, transport)
        address = transport.get_extra_info("peername")
        self.peer = address[0] if address else "unix"
        self.forwarded_for = b"X-Forwarded-For: %b\r\n" % self.peer.encode()
        self.deadline = now() + self.head_timeout

    def data_received(self, bytes data not None):
        if self.state == TUNNEL:
            if self.source is not None:
                self.source.forward(data)
            return
        if self.state == LINGERING:
            self._watch()
            return
        if self.state == BROKEN or self.closed:
            return
        if self.at == PyBytes_GET_SIZE(self.pending):
            self.pending = data
        else:
            self.pending = self.pending[self.at:] + data
        self.at = 0
        self._advance()

    def eof_received(self):
        """A client that stops sending has left: that is how an abort looks."""
        self._leave()
        # The loop closes the transport once what was written is sent.
        self._watch()
        return False

    def connection_lost(self, error):
        self._leave()
        self.deadline = 0
        self.ticker.connections.discard(self)

    def pause_writing(self):
        Connection.pause_writing(self)
        self.untaken = self.unsent()
        self._watch()

    def resume_writing(self):
        Connection.resume_writing(self)
        self._watch()
        if self.request is None and self.state == ANSWERING and not self.closed:
            self._next_request()

    cdef int pause_reading(self) except -1:
        Connection.pause_reading(self)
        # It is not the client's fault that nothing comes.
        self._watch()
        return 0

    cdef int resume_reading(self) except -1:
        if self.reading_paused:
            Connection.resume_reading(self)
            self._watch()
        return 0

    # --- deadlines -------------------------------------------------------------------

    cdef int _watch(self) except -1:
        """Sets the deadline to what is due next, from now on."""
        if self.writing_paused or self.closed:
            self.deadline = now() + self.write_timeout
            if self.state == LINGERING and not self.writing_paused:
                self.deadline = min(now() + LINGER_SECONDS, self.linger_until)
        elif self.state == HEAD:
            self.deadline = now() + (
                self.head_timeout if self.head_began else self.idle_timeout
            )
        elif self.state == BODY and not self.reading_paused:
            self.deadline = now() + self.head_timeout
        else:
            self.deadline = 0
        return 0

    cdef int expired(self) except -1:
        if self.writing_paused or self.closed:
            self._not_read()
        elif self.state == HEAD:
            if self.at < PyBytes_GET_SIZE(self.pending):
                self._turn_away(408, "a request head that was not whole in time")
            else:
                self._finish(False)
        elif self.state == BODY:
            self._body_failed(BodyTimeout())
        return 0

    cdef int unheard(self) except -1:
        # Its request may wait for long, and a worker be busy with it.
        if self.peer_left():
            self.abort()
        return 0

    cdef int _not_read(self) except -1:
        """Gives up a client that takes nothing of what was written."""
        cdef Py_ssize_t untaken = self.unsent()
        if untaken == 0 or untaken == self.untaken:
            self.abort()
            return 0
        self.untaken = untaken
        self.deadline = now() + self.write_timeout
        return 0

    # --- reading -------------------------------------------------------------------

    cdef int _advance(self) except -1:
        """Takes what stands in the buffer, as far as it goes."""
        if self.advancing:
            return 0
        self.advancing = True
        try:
            while not self.closed and self.at < PyBytes_GET_SIZE(self.pending):
                if self.state == HEAD:
                    if not self._read_head():
                        break
                elif self.state == BODY:
                    self._read_body()
                else:
                    break
        finally:
            self.advancing = False
        if self.at == PyBytes_GET_SIZE(self.pending):
            # An answer may take long; what came with its request need not stay.
            self.pending = b""
            self.at = 0
        elif self.state == ANSWERING and (
            PyBytes_GET_SIZE(self.pending) - self.at > MAX_WAITING
        ):
            self.pause_reading()
        return 0

    cdef bint _read_head(self) except -1:
        """Reads one head and starts its request; False when it is not all there."""
        cdef const char* p = PyBytes_AS_STRING(self.pending) + self.at
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.pending) - self.at
        cdef Py_ssize_t end
        if not self.head_began:
            self.head_began = True
            self._watch()
        # One empty line before a request is let pass (RFC 9112, 2.2).
        if p[0] == c"\r" and not self.line_skipped:
            if size == 1:
                return False
            if p[1] == c"\n":
                self.line_skipped = True
                self.at += 2
                return True
        end = head_end(p, size, self.seen)
        if end < 0 and size <= MAX_HEAD:
            if has_bare_newline(p, size, self.seen):
                self._turn_away(400, "a line that ends without a carriage return")
            else:
                self.seen = size
            return False
        self.seen = 0
        self.head_began = False
        self.line_skipped = False
        try:
            if end < 0 or end > MAX_HEAD:
                raise too_large(p, MAX_HEAD)
            head = parse_request(p[:end])
            if head.content_length > self.max_body:
                raise ProtocolError(f"a body of more than {self.max_body} bytes", 413)
        except ProtocolError as error:
            self._turn_away(error.status, error.message)
            return False
        self.at += end
        self._begin(head)
        return True

    cdef int _begin(self, RequestHead head) except -1:
        """Starts the coroutine of a request, with what came of its body."""
        cdef Request request = new_request(
            head, self, self.forwarded_for, self.budget, self.max_body
        )
        request.last = self.draining
        self.request = request
        self.state = ANSWERING if request.complete else BODY
        self._watch()
        if self.state == BODY and self.at < PyBytes_GET_SIZE(self.pending):
            self._read_body()
        request.runner = Runner(self._serve(request), self._served)
        request.runner.start()
        return 0

    cdef int _read_body(self) except -1:
        """Feeds what is in the buffer to the request's body."""
        cdef Request request = self.request
        try:
            self.at += request.take(self.pending, self.at)
        except (ProtocolError, BodyOverBudget) as error:
            self._body_failed(error)
            return 0
        if request.complete:
            self.state = ANSWERING
        self._watch()
        if request.complete and request.runner is not None:
            request.runner.resume()
        return 0

    cdef int _body_failed(self, object error) except -1:
        """The rest of the body will not be read; the coroutine hears why."""
        self.state = BROKEN
        self._watch()
        self.request.failed(error)
        return 0

    cdef int _leave(self) except -1:
        """The client is gone."""
        self.closed = True
        if self.request is not None:
            self.request.leave()
        return 0

    # --- answering -------------------------------------------------------------------

    cdef int forward(self, bytes data) except -1:
        """Sends bytes of an answer."""
        if self.request is not None:
            self.request.sent += PyBytes_GET_SIZE(data)
        if not self.closed:
            self.write(data)
        return 0

    def _served(self, error):
        """The request's coroutine ended."""
        cdef Request request = self.request
        self.request = None
        request.over()
        if not self.closed:
            if not request.persistent:
                # A client that meant to go on may be sending already.
                self._finish(not request.complete or request.head.keep_alive)
            elif not self.writing_paused:
                self._next_request()
            else:
                self.state = ANSWERING
        if error is not None and not isinstance(error, ClientGone):
            # It is nobody's fault in whose callback the coroutine happened to end.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request's coroutine failed", "exception": error}
            )

    cdef int _next_request(self) except -1:
        """The connection is ready for another request."""
        if self.draining:
            return self._finish(False)
        self.state = HEAD
        self.resume_reading()
        self._watch()
        return self._advance()

    cdef int _turn_away(self, int status, str message) except -1:
        """Answers what is not a request, and closes."""
        self.forward(self._refuse(self.peer, status, message))
        return self._linger()

    cdef int _finish(self, bint sending) except -1:
        """Ends the connection; `sending` says that the client may still do so."""
        if sending or self.at < PyBytes_GET_SIZE(self.pending):
            return self._linger()
        return self.close()

    cdef int close(self) except -1:
        Connection.close(self)
        # A client that does not read must not keep the connection for ever.
        return self._watch()

    cdef int _linger(self) except -1:
        """Ends our side; the client's bytes are dropped until it has our answer.

        Closing with bytes unread is a reset, which may overtake it (RFC 9112, 9.6).
        """
        self.state = LINGERING
        self.pending = b""
        self.at = 0
        self.resume_reading()
        self.closed = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.linger_until = now() + LINGER_IN_ALL
        return self._watch()

    # --- what the worker's end asks for ----------------------------------------------

    cdef int join(self, Connection source) except -1:
        cdef bytes early = self.pending[self.at:]
        self.state = TUNNEL
        self.pending = b""
        self.at = 0
        self.resume_reading()
        self.follow(source)
        self._watch()
        source.follow(self)
        if early:
            source.forward(early)
        return 0
