"""What a request asks for: what other compiled files may use."""

cimport cython

from router.http1.head cimport RequestHead
from router.http1.request cimport Request


@cython.final
cdef class Wish:
    cdef public str model
    cdef public tuple model_at
    cdef public object model_in
    cdef public bytes session
    cdef public str provider
    cdef public str rank
    cdef public bint has_body

cpdef bint wants_body(RequestHead head) except -1
cpdef Wish read_wish(Request request, tuple session_headers)
