"""Bytes that come in pieces and are wanted whole.

Owns one allocation that grows by doubling and becomes the bytes object in the end, so
that a body is never held twice, and a body that drips in costs its own size and not an
object a piece. Knows nothing of what the bytes are.
"""

cimport cython

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
    _PyBytes_Resize,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.string cimport memcpy


@cython.final
cdef class Buffer:
    """Gathers bytes. `size` is how many there are now."""

    # `_bytes` is a bytes object that nobody else has seen yet, so that it may change:
    # a pointer, since a reference that Cython counts would be a second one.

    def __dealloc__(self):
        Py_XDECREF(self._bytes)

    def append(self, bytes data not None):
        """Adds `data` at the end."""
        self.add(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def pop(self):
        """All the bytes; the buffer is empty afterwards."""
        return self.take()

    cdef int add(self, const char* data, Py_ssize_t size) except -1:
        """Adds `size` bytes at the end. Raises MemoryError."""
        cdef Py_ssize_t needed = self.size + size
        cdef bytes fresh
        if size == 0:
            return 0
        if self._bytes == NULL:
            # What comes first is most often all there is.
            fresh = PyBytes_FromStringAndSize(NULL, size)
            Py_INCREF(fresh)
            self._bytes = <PyObject*> fresh
            fresh = None
            self._capacity = size
        elif needed > self._capacity:
            self._resize(max(needed, 2 * self._capacity))
        memcpy(PyBytes_AS_STRING(<object> self._bytes) + self.size, data, size)
        self.size = needed
        return 0

    cdef const char* data(self) noexcept:
        """Where the bytes are, until the next `add` or `take`; NULL: there are none."""
        return NULL if self._bytes == NULL else PyBytes_AS_STRING(<object> self._bytes)

    cdef bytes take(self):
        """All the bytes; the buffer is empty afterwards."""
        cdef bytes whole
        if self._bytes == NULL:
            return b""
        if self.size != self._capacity:
            self._resize(self.size)
        whole = <bytes> self._bytes
        Py_XDECREF(self._bytes)
        self._bytes = NULL
        self.size = 0
        self._capacity = 0
        return whole

    cdef int _resize(self, Py_ssize_t capacity) except -1:
        try:
            _PyBytes_Resize(&self._bytes, capacity)
        except MemoryError:
            # The bytes are gone with it.
            self.size = 0
            self._capacity = 0
            raise
        self._capacity = capacity
        return 0
