"""Compiles `choice.py`: what it declares is a field or function of C."""

from router.proxy.wish cimport Wish


cdef class Chooser:
    cdef object _index
    cdef object _slots
    cdef object _policy
    cdef object _hold
    cdef object _meter
    cpdef object now(self, Wish wish, tuple tried)
    cpdef object release(self, object slot)

cdef object _pool(object snapshot, Wish wish)
