"""Compiles `exposition.py`: what it declares is a field or function of C."""


cimport cython


cdef class Histogram:
    cdef public list counts
    cdef public double total

    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef object observe(self, double seconds)
