"""The heads of requests and answers: what other compiled files may use."""

cimport cython

from router.http1.fields cimport Head


@cython.final
cdef class RequestHead(Head):
    cdef unsigned int method_size
    cdef unsigned int target
    cdef unsigned int target_size
    cdef unsigned int authority
    cdef unsigned int authority_size
    cdef int _start_line(self, Py_ssize_t size) except -1
    cdef int _form(self, const unsigned char* p) except -1
    cdef int _host(self) except -1
    cdef int _authority(self, unsigned int at, unsigned int size) except -1
    cdef bytes _forwarded(self, bytes line)
    cdef bint _says(self, int kind) except -1
    cdef bint has_body(self) noexcept
    cpdef bytes host(self)
    cpdef bytes render(
        self,
        bytes lines,
        bytes id=*,
        bytes forwarded_for=*,
        long long length=*,
        bint chunked=*,
        unsigned long long drop=*,
        bytes target=*,
        bytes method=*,
        bytes proto=*,
        bytes upgrade=*,
        bytes body=*,
    )


@cython.final
cdef class ResponseHead(Head):
    cdef readonly int status
    cdef unsigned int reason_size
    cdef int _start_line(self, Py_ssize_t size) except -1
    cpdef bytes render(
        self,
        bytes lines,
        bytes id=*,
        bint keep_alive=*,
        bint say_keep_alive=*,
        bint chunked=*,
        bytes upgrade=*,
        bytes body=*,
    )


cdef object too_large(const char* data, Py_ssize_t most)
cpdef RequestHead parse_request(bytes raw)
cpdef ResponseHead parse_response(bytes raw)
