"""Compiles `upstream.py`: what it declares is a field or function of C."""

from router.http1.connection cimport Ticker
from router.http1.upstream cimport Upstream


cdef class Connections:
    cdef Ticker _ticker
    cdef double _connect_timeout
    cdef double _idle_timeout
    cdef Py_ssize_t _most_idle_each
    cdef Py_ssize_t _most_idle
    cdef dict _idle
    cdef Py_ssize_t _count
    cdef object _tls
    cdef object _sweeper
    cdef object _shortage
    cpdef Upstream take(self, str key)
    cpdef object give_back(self, str key, Upstream upstream)
    cpdef object let_go(self, str key, Upstream upstream)


cdef class LocalConnections(Connections):
    cdef object _hand_over
