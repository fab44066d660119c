"""Where a body ends: Content-Length, chunks, or the end of the connection.

Owns the state table of the chunked coding (RFC 9112, 7.1). Knows nothing of sockets:
bytes are fed in pieces of any size, and it tells how many of them belong to the body.
The same table serves both directions: answers are only followed, so that their
bytes go out as they came; bodies of requests are taken out of their chunks.

    state         on                  goes to
    SIZE_START    hex digit           SIZE
    SIZE          hex digit           SIZE
                  ;                   EXTENSION
                  CR                  SIZE_LF
    EXTENSION     CR                  SIZE_LF          (extensions are dropped)
    SIZE_LF       LF                  DATA, or TRAILER_START after a size of 0
    DATA          the chunk's bytes   DATA_CR
    DATA_CR       CR                  DATA_LF
    DATA_LF       LF                  SIZE_START
    TRAILER_START CR                  LAST_LF
                  token               TRAILER_NAME
    TRAILER_NAME  :                   TRAILER
    TRAILER       CR                  TRAILER_LF
    TRAILER_LF    LF                  TRAILER_START
    LAST_LF       LF                  DONE
"""

cimport cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from router.http1.buffer cimport Buffer
from router.http1.fields cimport TOKEN

from router.http1.errors import ProtocolError

cdef enum:
    LENGTH
    UNTIL_CLOSE
    SIZE_START
    SIZE
    EXTENSION
    SIZE_LF
    DATA
    DATA_CR
    DATA_LF
    TRAILER_START
    TRAILER_NAME
    TRAILER
    TRAILER_LF
    LAST_LF
    DONE
    # Most digits of a chunk's size: it stays below 2**60.
    MAX_DIGITS = 15
    # Longest chunk-size line with its extensions, and longest trailer section.
    MAX_LINE = 4096
    MAX_TRAILERS = 65536


@cython.final
cdef class Framing:
    """Follows one body. `done` tells that its last byte was fed."""

    def __init__(self, long long length=-1, bint chunked=False):
        """A body of `length` bytes, in chunks, or (neither) up to the end."""
        if length >= 0 and chunked:
            raise ValueError("a body has a length or is chunked, not both")
        self.state = SIZE_START if chunked else UNTIL_CLOSE if length < 0 else LENGTH
        self.remaining = max(length, 0)
        self.done = length == 0

    def consume(self, bytes data not None, Buffer payload=None):
        """Feeds `data`; how many of its bytes belong to the body.

        What is inside the chunks is added to `payload`, if there is one. Raises
        ProtocolError for wrong chunks.
        """
        return self.feed(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), payload)

    cdef bint at_chunk_boundary(self) noexcept:
        return self.state == SIZE_START

    cdef bint until_close(self) noexcept:
        return self.state == UNTIL_CLOSE

    cdef Py_ssize_t feed(
        self, const char* data, Py_ssize_t size, Buffer payload
    ) except -1:
        """Feeds `size` bytes; how many of them belong to the body."""
        cdef Py_ssize_t taken
        if self.state == LENGTH:
            taken = <Py_ssize_t> min(self.remaining, <long long> size)
            self.remaining -= taken
            self.done = self.remaining == 0
        elif self.state == UNTIL_CLOSE:
            taken = size
        else:
            return self._chunked(<const unsigned char*> data, size, payload)
        if payload is not None:
            payload.add(data, taken)
        return taken

    cdef Py_ssize_t _chunked(
        self, const unsigned char* p, Py_ssize_t size, Buffer payload
    ) except -1:
        cdef Py_ssize_t at = 0, taken
        while at < size and self.state != DONE:
            if self.state == DATA:
                taken = <Py_ssize_t> min(self.remaining, <long long> (size - at))
                if payload is not None:
                    payload.add(<const char*> p + at, taken)
                self.remaining -= taken
                at += taken
                if self.remaining == 0:
                    self.state = DATA_CR
            else:
                self._control(p[at])
                at += 1
        self.done = self.state == DONE
        return at

    cdef int _control(self, unsigned char c) except -1:
        """One step of the table, for every byte that is not a chunk's data."""
        if self.state <= EXTENSION:
            return self._size_line(c)
        if TRAILER_START <= self.state <= TRAILER:
            return self._trailer(c)
        if self.state == DATA_CR:
            if c != c"\r":
                raise ProtocolError("a chunk that is longer than its size")
            self.state = DATA_LF
            return 0
        if c != c"\n":
            raise ProtocolError("a carriage return without its line feed")
        if self.state == SIZE_LF:
            self.state = DATA if self.remaining else TRAILER_START
            self.line = 0
        elif self.state == DATA_LF:
            self.state = SIZE_START
        elif self.state == TRAILER_LF:
            self.state = TRAILER_START
            self.line += 1
        else:
            self.state = DONE
        return 0

    cdef int _size_line(self, unsigned char c) except -1:
        """A chunk's size and its extensions, up to the carriage return."""
        cdef int digit = -1 if self.state == EXTENSION else hex_digit(c)
        if self.state == SIZE_START:
            if digit < 0:
                raise ProtocolError("a chunk size that is not a hexadecimal number")
            self.state = SIZE
            self.line = 0
            self.remaining = 0
        self.line += 1
        if digit >= 0:
            if self.line > MAX_DIGITS:
                raise ProtocolError("a chunk size that is too large")
            self.remaining = self.remaining * 16 + digit
        elif c == c"\r":
            self.state = SIZE_LF
        elif self.state == SIZE:
            if c != c";":
                raise ProtocolError("a chunk size that is not a hexadecimal number")
            self.state = EXTENSION
        elif is_control(c):
            raise ProtocolError("a control character in a chunk extension")
        elif self.line > MAX_LINE:
            raise ProtocolError("chunk extensions that are too large")
        return 0

    cdef int _trailer(self, unsigned char c) except -1:
        """A trailer field, or the empty line that ends the body."""
        self.line += 1
        if self.line > MAX_TRAILERS:
            raise ProtocolError("trailers that are too large")
        if self.state == TRAILER:
            if c == c"\r":
                self.state = TRAILER_LF
            elif is_control(c):
                raise ProtocolError("a control character in a trailer")
        elif self.state == TRAILER_START and c == c"\r":
            self.state = LAST_LF
        elif self.state == TRAILER_NAME and c == c":":
            self.state = TRAILER
        elif TOKEN[c]:
            self.state = TRAILER_NAME
        else:
            raise ProtocolError("a trailer that does not start with a name")
        return 0


cdef bint is_control(unsigned char c) noexcept:
    return (c < 32 and c != c"\t") or c == 127


cdef int hex_digit(unsigned char c) noexcept:
    if c"0" <= c <= c"9":
        return c - c"0"
    if c"a" <= c | 0x20 <= c"f":
        return (c | 0x20) - c"a" + 10
    return -1


cdef Framing body_of(long long length, bint chunked, bint until_close):
    """The framing that a head declares; without one it is `until_close` or no body."""
    if chunked:
        return Framing(-1, True)
    if length < 0 and not until_close:
        return Framing(0)
    return Framing(length)
