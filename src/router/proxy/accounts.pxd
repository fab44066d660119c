"""Compiles `accounts.py`: what it declares is a field or function of C."""

from router.proxy.call cimport Call


cdef class Accounts:
    cdef object _meter
    cdef object _access
    cpdef object served(self, Call call)
