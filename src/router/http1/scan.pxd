"""Members of a JSON object: what other compiled files may use."""

cdef enum:
    # Most names that are looked for in one pass.
    MOST_NAMES = 16

cdef struct Place:
    # -1: it is missing.
    Py_ssize_t start
    Py_ssize_t stop

cdef int find_members(
    bytes body, tuple names, Place* found, Py_ssize_t start, Py_ssize_t end
) except -1
