"""What both ends have in common: what other compiled files may use."""

cimport cython

from router.http1.runner cimport Source

cdef double now() noexcept


@cython.final
cdef class Ticker:
    cdef readonly set connections
    cdef object _loop
    cdef object _handle
    cdef double _interval


@cython.final
cdef class Budget:
    cdef public long long limit
    cdef readonly long long held
    cdef bint take(self, long long size) noexcept
    cdef void give_back(self, long long size) noexcept


cdef class Connection(Source):
    cdef Ticker ticker
    cdef readonly object transport
    cdef double deadline
    # The socket, if bytes may go there as they are; else -1.
    cdef int fd
    cdef int waiting
    cdef readonly bint closed
    cdef bint writing_paused
    cdef bint reading_paused
    # Whose bytes are sent here; it is not read while this end cannot keep up.
    cdef Connection source
    cdef int expired(self) except -1
    cdef int unheard(self) except -1
    cdef bint peer_left(self) except -1
    cdef int write(self, bytes data) except -1
    cdef int hand_over(self, tuple pieces) except -1
    cdef int forward(self, bytes data) except -1
    cdef Py_ssize_t unsent(self) except -1
    cdef int reset(self) except -1
    cdef int close(self) except -1
    cdef int pause_reading(self) except -1
    cdef int resume_reading(self) except -1
    cdef int follow(self, Connection source) except -1
    cdef int unfollow(self, Connection source) except -1
    cdef int join(self, Connection source) except -1
