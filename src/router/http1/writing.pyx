"""What is written at the end of every head: framing and the blank line.

Owns the spelling of Content-Length and Transfer-Encoding, which are never copied, and
the cutting of a head to its size. Knows nothing of what the heads say.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy


cdef Py_ssize_t write_framing(char* out, long long length, bint chunked) noexcept:
    """Writes the framing field, if any, and the blank line; bytes written."""
    cdef Py_ssize_t at = 0
    if chunked:
        memcpy(out, b"Transfer-Encoding: chunked\r\n", 28)
        at = 28
    elif length >= 0:
        memcpy(out, b"Content-Length: ", 16)
        at = 16 + write_decimal(out + 16, length)
        memcpy(out + at, b"\r\n", 2)
        at += 2
    memcpy(out + at, b"\r\n", 2)
    return at + 2


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


cdef bytes shrunk(bytes head, Py_ssize_t size):
    """The first `size` bytes."""
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(head), size)
