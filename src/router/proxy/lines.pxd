"""Compiles `lines.py`: what it declares is a field or function of C."""

from router.http1.head cimport RequestHead


cdef class RequestIds:
    cdef tuple _headers
    cdef bytes _prefix
    cdef unsigned long long _count
    cpdef bytes of(self, RequestHead head)
    cpdef bytes new(self)


cdef class Said:
    cdef readonly bytes request
    cdef readonly bytes answer
    cdef readonly unsigned long long drop


cdef class WorkerLines:
    cdef str _api_key
    cdef bint _client_keys
    cdef dict _kept
    cpdef Said of(self, object worker)
    cdef Said _make(self, object worker)
