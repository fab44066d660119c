"""One answer as it comes: its head, and where its body ends.

Owns the bytes of an answer until its head is whole, and which bytes behind it are its
body. Knows nothing of connections: it is given bytes and tells what they are.
"""

cimport cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from router.http1.buffer cimport Buffer
from router.http1.fields cimport Kind, has_bare_newline, head_end
from router.http1.framing cimport body_of
from router.http1.head cimport RequestHead, parse_response

from router.http1.errors import ProtocolError

cdef enum:
    MAX_HEAD = 65536


@cython.final
cdef class Answer:
    """The answer to one request at a time; used again after `clear`."""

    def __cinit__(self):
        self.rest = b""

    cdef int clear(self) except -1:
        """Forgets the answer."""
        self.head = None
        self.framing = None
        self.rest = b""
        self.at = 0
        self.seen = 0
        self.unchunk = False
        return 0

    cdef bint add(self, bytes data, RequestHead request) except -1:
        """Takes bytes up to the end of the head; whether it is whole now.

        Interim answers (1xx) are passed over. Raises ProtocolError.
        """
        cdef const char* p
        cdef Py_ssize_t end, size
        self.keep(data)
        while True:
            p = PyBytes_AS_STRING(self.rest) + self.at
            size = PyBytes_GET_SIZE(self.rest) - self.at
            end = head_end(p, size, self.seen)
            if end > MAX_HEAD or (end < 0 and size > MAX_HEAD):
                raise ProtocolError(f"a head of more than {MAX_HEAD} bytes")
            if end < 0:
                if has_bare_newline(p, size, self.seen):
                    raise ProtocolError("a line that ends without a carriage return")
                self.seen = size
                return False
            self.seen = 0
            self.head = parse_response(p[:end])
            self.at += end
            if self.head.status >= 200 or self.head.status == 101:
                break
        self._frame(request)
        return True

    cdef int _frame(self, RequestHead request) except -1:
        """How the body ends (RFC 9112, 6.3)."""
        if self.head.status == 101 and request.upgrade is None:
            raise ProtocolError("a change of protocols that nobody asked for")
        if self.head.status in (101, 204, 304) or request.raw.startswith(b"HEAD "):
            self.framing = body_of(0, False, False)
        else:
            self.framing = body_of(self.head.content_length, self.head.chunked, True)
        return 0

    cdef Py_ssize_t keep(self, bytes data) except -1:
        """Puts bytes behind those that were not passed on; how many there are."""
        if self.at < PyBytes_GET_SIZE(self.rest):
            self.rest = self.rest[self.at:] + data
        else:
            self.rest = data
        self.at = 0
        return PyBytes_GET_SIZE(self.rest)

    cdef bint to_the_end(self) noexcept:
        """Whether it goes out up to the end of the connection."""
        return self.framing.until_close() or self.unchunk

    cdef bytes last_words(self, bytes event):
        """`event` as it can stand behind a stream that broke off, or None."""
        cdef bytes kind = (self.head.value(Kind.CONTENT_TYPE) or b"").lower()
        if not kind.startswith(b"text/event-stream"):
            return None
        if self.head.header(b"content-encoding") is not None:
            return None
        if self.to_the_end():
            return event
        if self.framing.at_chunk_boundary():
            return b"%x\r\n%b\r\n" % (PyBytes_GET_SIZE(event), event)
        return None

    cdef bytes part(self, bytes data, Py_ssize_t start):
        """What of `data`, from `start` on, goes to the client; its body ends at `at`.

        Raises ProtocolError for wrong chunks.
        """
        cdef Buffer payload = Buffer() if self.unchunk else None
        cdef const char* p = PyBytes_AS_STRING(data) + start
        self.at = start + self.framing.feed(p, PyBytes_GET_SIZE(data) - start, payload)
        if payload is not None:
            return payload.take()
        if start == 0 and self.at == PyBytes_GET_SIZE(data):
            return data
        return data[start:self.at]
