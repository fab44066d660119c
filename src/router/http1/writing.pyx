"""How heads are written: into one piece of memory, from front to back.

Owns that memory while it is written, and the spelling of the fields that are never
copied. Knows nothing of what heads say.

A draft is a bytes object that nobody else has seen yet, so that it may change: a
pointer, since a reference that Cython counts would be a second one.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF

cdef extern from "Python.h":
    PyObject* PyBytes_FromStringAndSize(const char* data, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject** pointer, Py_ssize_t size) except -1


cdef PyObject* new_draft(Py_ssize_t size) except NULL:
    """Memory for `size` bytes. It must become bytes by `finished`."""
    return PyBytes_FromStringAndSize(NULL, size)


cdef bytes finished(PyObject* draft, const char* end):
    """What was written, up to `end`; the draft is gone with it."""
    cdef bytes whole
    _PyBytes_Resize(&draft, end - PyBytes_AS_STRING(<object> draft))
    whole = <bytes> draft
    Py_XDECREF(draft)
    return whole


cdef char* put_either(
    char* out, bytes instead, const char* own, Py_ssize_t size
) noexcept:
    """Writes `instead`, or what stands at `own` if there is none."""
    return put(out, own, size) if instead is None else put_bytes(out, instead)


cdef char* put_line(char* out, const char* name, Py_ssize_t size, bytes value) noexcept:
    """Writes a field; `name` has its colon and space."""
    return put(put_bytes(put(out, name, size), value), b"\r\n", 2)


cdef char* put_id(char* out, bytes id) noexcept:
    """Writes who a request is, if it was given a name."""
    return put_line(out, b"X-Request-Id: ", 14, id) if id else out


cdef char* put_upgrade(char* out, bytes protocol) noexcept:
    out = put(out, b"Connection: upgrade\r\n", 21)
    return put_line(out, b"Upgrade: ", 9, protocol)


cdef char* put_framing(char* out, long long length, bint chunked) noexcept:
    """Writes the framing field, if any, and the blank line; where they end."""
    if chunked:
        out = put(out, b"Transfer-Encoding: chunked\r\n", 28)
    elif length >= 0:
        out = put(out, b"Content-Length: ", 16)
        out += write_decimal(out, length)
        out = put(out, b"\r\n", 2)
    return put(out, b"\r\n", 2)


cdef Py_ssize_t write_decimal(char* out, long long number) noexcept:
    """Writes a number that is not negative; bytes written, 19 at most."""
    cdef char digits[20]
    cdef Py_ssize_t count = 0, i
    while True:
        digits[count] = <char> (c"0" + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    for i in range(count):
        out[i] = digits[count - 1 - i]
    return count
