"""The ends of heads: what other compiled files may use."""

cdef Py_ssize_t write_framing(char* out, long long length, bint chunked) noexcept
cdef Py_ssize_t write_decimal(char* out, long long number) noexcept
cdef bytes shrunk(bytes head, Py_ssize_t size)
