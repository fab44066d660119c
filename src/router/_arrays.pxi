# Included by _core.pyx first.
#
# Owns the doors between numpy's arrays and the pointers that the structs hold.

cdef int32_t *_int32(array) except NULL:
    cdef int32_t[::1] view = array
    return &view[0]


cdef uint64_t *_uint64(array) except NULL:
    cdef uint64_t[::1] view = array
    return &view[0]
