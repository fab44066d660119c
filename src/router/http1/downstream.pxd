"""The client's end: what other compiled files may use."""

cimport cython

from router.http1.connection cimport Budget, Connection
from router.http1.head cimport RequestHead
from router.http1.request cimport Request


@cython.final
cdef class Downstream(Connection):
    cdef object _serve
    cdef object _refuse
    cdef Budget budget
    cdef double head_timeout
    cdef double idle_timeout
    cdef double write_timeout
    cdef long long max_body
    cdef int state
    cdef bint advancing
    cdef bint draining
    cdef bytes pending
    cdef Py_ssize_t at
    cdef Py_ssize_t seen
    cdef bint head_began
    cdef bint line_skipped
    cdef Py_ssize_t untaken
    cdef double linger_until
    cdef Request request
    cdef readonly str peer
    cdef bytes forwarded_for
    cdef int _watch(self) except -1
    cdef int _advance(self) except -1
    cdef bint _read_head(self) except -1
    cdef int _read_body(self) except -1
    cdef int _begin(self, RequestHead head) except -1
    cdef int _body_failed(self, object error) except -1
    cdef int _leave(self) except -1
    cdef int _not_read(self) except -1
    cdef int _turn_away(self, int status, str message) except -1
    cdef int _finish(self, bint sending) except -1
    cdef int _linger(self) except -1
    cdef int _next_request(self) except -1
