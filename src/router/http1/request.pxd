"""One request: what other compiled files may use."""

cimport cython

from router.http1.buffer cimport Buffer
from router.http1.connection cimport Budget, Connection
from router.http1.framing cimport Framing
from router.http1.head cimport RequestHead
from router.http1.runner cimport Runner, Source


@cython.final
cdef class Request(Source):
    cdef readonly RequestHead head
    cdef public bytes id
    # Monotonic seconds: when its head came, and when the answer's first byte went out
    # (0: none did).
    cdef readonly double began
    cdef readonly double first_byte
    cdef readonly Connection client
    cdef readonly Runner runner
    cdef readonly bytes body
    cdef readonly bint complete
    cdef readonly bint answered
    cdef readonly long long received
    cdef readonly long long sent
    # The line that tells the worker who the client is.
    cdef bytes forwarded_for
    # Whether the connection ends with this request, and whether it goes on after it.
    cdef bint last
    cdef bint persistent
    cdef Framing framing
    cdef Budget budget
    cdef long long max_body
    cdef Buffer buffer
    cdef long long held
    cdef Connection sink
    cdef int plan
    cdef object error
    cdef Py_ssize_t take(self, bytes data, Py_ssize_t at) except -1
    cdef int _pass_on(self, bytes piece) except -1
    cdef int _completed(self) except -1
    cdef int failed(self, object error) except -1
    cdef int leave(self) except -1
    cdef int over(self) except -1
    cdef bytes passed_on(
        self,
        bytes lines,
        bytes body,
        bint together,
        unsigned long long drop,
        bytes target,
        bytes method,
    )
    cdef int answer_begins(self) except -1
    cdef int let_go(self) except -1
    cdef int _continue(self) except -1


cdef Request new_request(
    RequestHead head,
    Connection client,
    bytes forwarded_for,
    Budget budget,
    long long max_body,
)
