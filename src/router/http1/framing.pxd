"""Where a body ends: what other compiled files may use."""

cimport cython

from router.http1.buffer cimport Buffer


@cython.final
cdef class Framing:
    cdef int state
    cdef long long remaining
    cdef Py_ssize_t line
    cdef readonly bint done
    cdef Py_ssize_t feed(
        self, const char* data, Py_ssize_t size, Buffer payload
    ) except -1
    cdef Py_ssize_t _chunked(
        self, const unsigned char* p, Py_ssize_t size, Buffer payload
    ) except -1
    cdef int _control(self, unsigned char c) except -1
    cdef int _size_line(self, unsigned char c) except -1
    cdef int _trailer(self, unsigned char c) except -1
    cdef bint at_chunk_boundary(self) noexcept
    cdef bint until_close(self) noexcept


cdef int hex_digit(unsigned char c) noexcept
cdef Framing body_of(long long length, bint chunked, bint until_close)
