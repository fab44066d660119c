"""Compiles `server.py`: what it declares is a field or function of C."""

from router.http1.connection cimport Budget, Ticker
from router.http1.request cimport Request
from router.proxy.lines cimport RequestIds


cdef class Server:
    cdef Ticker _ticker
    cdef object _exchange
    cdef object _admin
    cdef object _is_admin
    cdef RequestIds _ids
    cdef object _limits
    cdef object _refused
    cdef list _servers
    cdef readonly Budget budget
    cdef readonly bint draining
