# Included by _core.pyx first.
#
# Owns the arrays behind a Table and the doors between them and its pointers.

cdef int32_t *_int32(array) except NULL:
    cdef int32_t[::1] view = array
    return &view[0]


cdef uint64_t *_uint64(array) except NULL:
    cdef uint64_t[::1] view = array
    return &view[0]


cdef dict _columns(int32_t capacity):
    # What a Table of so many slots needs, by the names it has there.
    return {
        "load": np.zeros(capacity, np.int32),
        "others": np.zeros(capacity, np.int32),
        "generation": np.zeros(capacity, np.int32),
        "place": np.full(capacity, -1, np.int32),
        "scratch": np.zeros(capacity, np.int32),
        "identity": np.zeros(capacity, np.uint64),
        "available": np.zeros(capacity // 64, np.uint64),
        "excluded": np.zeros(capacity // 64, np.uint64),
    }
