"""Where a body ends: what other compiled files may use."""

cimport cython


@cython.final
cdef class Framing:
    cdef int state
    cdef long long remaining
    cdef Py_ssize_t line
    cdef readonly bint done
    cdef Py_ssize_t feed(self, bytes data, Py_ssize_t start, list payload) except -1
    cdef Py_ssize_t _chunked(
        self, const unsigned char* p, Py_ssize_t size, list payload
    ) except -1
    cdef int _control(self, unsigned char c) except -1
    cdef bint at_chunk_boundary(self) noexcept
    cdef bint until_close(self) noexcept


cdef Framing no_body()
cdef Framing body_of(long long length, bint chunked, bint until_close)
