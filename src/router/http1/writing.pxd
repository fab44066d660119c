"""How heads are written: what other compiled files may use."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.string cimport memcpy

cdef enum:
    # Most bytes that `put_framing` writes.
    FRAMING_SIZE = 48

cdef PyObject* new_draft(Py_ssize_t size) except NULL
cdef bytes finished(PyObject* draft, const char* end)
cdef char* put_either(
    char* out, bytes instead, const char* own, Py_ssize_t size
) noexcept
cdef char* put_line(char* out, const char* name, Py_ssize_t size, bytes value) noexcept
cdef char* put_id(char* out, bytes id) noexcept
cdef char* put_upgrade(char* out, bytes protocol) noexcept
cdef char* put_framing(char* out, long long length, bint chunked) noexcept

cdef inline char* put(char* out, const char* data, Py_ssize_t size) noexcept:
    """Copies `size` bytes to `out`; where the next ones go."""
    memcpy(out, data, size)
    return out + size

cdef inline char* put_bytes(char* out, bytes data) noexcept:
    return put(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

cdef inline Py_ssize_t size_of(bytes part) noexcept:
    return 0 if part is None else PyBytes_GET_SIZE(part)
