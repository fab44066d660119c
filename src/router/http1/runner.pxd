"""Coroutines without tasks: what other compiled files may use."""

cimport cython


@cython.final
cdef class Runner:
    cdef object _coroutine
    cdef object _finished
    cdef object _awaited
    cdef object _reason
    cdef bint _running
    cdef int resume(self) except -1
    cdef int stop(self, object reason) except -1
    cdef int _step(self, object reason) except -1
    cdef int _send(self, object reason) except -1
    cdef int _await(self, object yielded) except -1


cdef class Source:
    cdef bint ready(self, int what) noexcept
    cdef int settle(self, int what) except -1


@cython.final
cdef class Wait:
    cdef Source source
    cdef int what


cdef Wait wait_for(Source source, int what)
