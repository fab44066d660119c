"""Compiles `call.py`: what it declares is a field of C, to those who cimport it."""

from router.http1.request cimport Request
from router.http1.upstream cimport Upstream
from router.proxy.wish cimport Wish


cdef class Call:
    cdef readonly Request request
    cdef public double deadline
    cdef public Wish wish
    cdef public int status
    cdef public object worker
    cdef public Upstream upstream
    cdef public int attempts
    cdef public object retries
