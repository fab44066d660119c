"""One answer as it comes: what other compiled files may use."""

cimport cython

from router.http1.framing cimport Framing
from router.http1.head cimport RequestHead, ResponseHead


@cython.final
cdef class Answer:
    cdef ResponseHead head
    cdef Framing framing
    # What came and was not passed on, and how much of it is done with.
    cdef bytes rest
    cdef Py_ssize_t at
    cdef Py_ssize_t seen
    cdef bint unchunk
    cdef int clear(self) except -1
    cdef bint add(self, bytes data, RequestHead request) except -1
    cdef int _frame(self, RequestHead request) except -1
    cdef Py_ssize_t keep(self, bytes data) except -1
    cdef bint to_the_end(self) noexcept
    cdef bytes last_words(self, bytes event)
    cdef bytes part(self, bytes data, Py_ssize_t start)
