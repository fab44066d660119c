"""Bytes that come in pieces: what other compiled files may use."""

cimport cython
from cpython.object cimport PyObject


@cython.final
cdef class Buffer:
    cdef PyObject* _bytes
    cdef Py_ssize_t _capacity
    cdef readonly Py_ssize_t size
    cdef int add(self, const char* data, Py_ssize_t size) except -1
    cdef const char* data(self) noexcept
    cdef bytes take(self)
    cdef int _resize(self, Py_ssize_t capacity) except -1
