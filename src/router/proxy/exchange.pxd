"""Compiles `exchange.py`: what it declares is a field or function of C."""

from router.http1.request cimport Request
from router.http1.upstream cimport Upstream
from router.proxy.call cimport Call
from router.proxy.choice cimport Chooser
from router.proxy.lines cimport RequestIds, Said, WorkerLines
from router.proxy.upstream cimport Connections
from router.proxy.wish cimport Wish, read_wish, wants_body


cdef class Exchange:
    cdef readonly Py_ssize_t in_flight
    cdef Chooser _chooser
    cdef Connections _connections
    cdef object _meter
    cdef RequestIds _ids
    cdef WorkerLines _worker_lines
    cdef object _retry_rules
    cdef object _retry_statuses
    cdef tuple _session_headers
    cdef double _request_timeout
    cdef double _idle_limit
    cdef object _refused
    cdef object _model_missing
    cdef object _finished
    cdef object _keys
    cdef object _bad_answers
    cdef Upstream _send(self, Call call, object slot)
    cdef int _write(self, Call call, object worker, Upstream upstream) except -1
    cdef bytes _said(self, Call call, object slot)
    cdef int _let_go(self, Call call, object slot) except -1
