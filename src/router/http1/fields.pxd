"""Header fields: what other compiled files may use."""

cdef enum:
    # Most fields a head may have; h11, which vLLM's server may use, has the same limit.
    MAX_FIELDS = 256

cdef struct Field:
    unsigned int name
    unsigned int name_size
    unsigned int value
    unsigned int value_size
    int kind
    bint hop_by_hop

cpdef enum Kind:
    OTHER = 0
    HOST
    CONNECTION
    KEEP_ALIVE
    PROXY_CONNECTION
    PROXY_AUTHORIZATION
    TE
    TRAILER
    TRANSFER_ENCODING
    UPGRADE
    CONTENT_LENGTH
    EXPECT
    AUTHORIZATION
    X_API_KEY
    COOKIE
    X_REQUEST_ID
    X_FORWARDED_FOR
    X_FORWARDED_PROTO
    X_FORWARDED_HOST
    X_ROUTER_PEER
    X_ROUTER_PROVIDER
    X_ROUTER_WORKER
    X_DATA_PARALLEL_RANK
    CONTENT_TYPE


cdef class Head:
    cdef bytes raw
    cdef Field* fields
    cdef int count
    cdef unsigned long long present
    cdef readonly int minor
    cdef readonly long long content_length
    cdef readonly bint chunked
    cdef readonly bint keep_alive
    cdef bint upgrades
    cdef int _take(self, Py_ssize_t start) except -1
    cpdef bytes value(self, int kind)
    cdef list _passed_on(self, int kind)
    cdef int _framing(self) except -1
    cdef int _connection(self) except -1
    cdef void _make_hop_by_hop(self, const char* name, unsigned int size) noexcept
    cdef Py_ssize_t _copy_fields(self, char* out, unsigned long long drop) noexcept

# Bytes of a name or a method, and bytes that may stand in a value.
cdef unsigned char TOKEN[256]
cdef unsigned char VALUE[256]

cdef inline unsigned long long bit(int kind) noexcept:
    return (<unsigned long long> 1) << kind

cdef bint same_name(const char* name, const char* lower, Py_ssize_t size) noexcept
cdef Py_ssize_t head_end(const char* data, Py_ssize_t size, Py_ssize_t seen) noexcept
cdef bint has_bare_newline(
    const char* data, Py_ssize_t size, Py_ssize_t seen
) noexcept
