"""Compiles `metrics.py`: what it declares is a field or function of C."""

from router.observe.exposition cimport Histogram


cdef class WorkerSeries:
    cdef readonly str labels
    cdef readonly list answers


cdef class Metrics:
    cdef public long long aborts
    cdef public long long resends
    cdef public long long held
    cdef public long long hold_timeouts
    cdef public long long hold_rejections
    cdef public long long process_restarts
    cdef readonly Histogram duration
    cdef readonly Histogram first_byte
    cdef readonly dict retries
    cdef readonly dict upstream_errors
    cdef object _gather
    cdef list _gauges
    cdef object _load_of
    cdef dict _models
    cdef object _process
    cdef object _registry
    cdef str _version
    cdef dict _workers
