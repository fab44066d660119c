"""The worker's end: what other compiled files may use."""

cimport cython

from router.http1.answer cimport Answer
from router.http1.connection cimport Connection
from router.http1.request cimport Request
from router.http1.runner cimport Runner, Wait


@cython.final
cdef class Upstream(Connection):
    cdef int state
    cdef int loss
    cdef Runner runner
    cdef Request request
    cdef Connection client
    cdef Answer answer
    cdef bint keeps
    cdef bint ended
    cdef double idle_limit
    # The answer's status code; 0 as long as there is none.
    cdef readonly int status
    cdef readonly bint reused
    cdef readonly bint silent
    cdef readonly bint reusable
    cdef readonly str failure
    cdef readonly double idle_since
    cpdef object send(
        self,
        Request request,
        bytes lines,
        bytes body=*,
        double deadline=*,
        unsigned long long drop=*,
        bytes target=*,
        bytes method=*,
    )
    cpdef Wait answered(self)
    cpdef object relay(self, bytes lines, double idle_limit=*)
    cpdef Wait finished(self)
    cpdef object park(self)
    cdef int _begin(self, int state) except -1
    cdef int _join(self, bytes lines) except -1
    cdef int _relay_rest(self, bytes lines, bint old_client) except -1
    cdef int _complete(self, bint clean) except -1
    cdef int _fail(self, int loss, str failure) except -1
    cdef int _ended(self, object error) except -1
