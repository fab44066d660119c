"""Runs a request's coroutine inside the callbacks it waits for.

Owns the stepping of one coroutine: it is resumed in the very call in which the bytes
it waited for arrived, with no Task, no Future and no trip through the loop. Ordinary
futures and tasks may be awaited too. Knows nothing of HTTP.

What a coroutine waits for is a `Wait` on a `Source`. A wait looks at its source again
each time it is resumed, so that a resumption that came too early, or while the
coroutine was running, does no harm and none is lost.
"""

cimport cython

import asyncio

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF


cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object iter, object arg, PyObject** result) noexcept


cdef class Source:
    """Something that a coroutine can wait for; subclasses say when it is there."""

    cdef bint ready(self, int what) noexcept:
        """Whether `what` came, or never will."""
        return True

    cdef int settle(self, int what) except -1:
        """Raises what the waiting coroutine must hear, once `what` is ready."""
        return 0


@cython.final
cdef class Wait:
    """Awaitable: ends when its source is ready. Made by the sources."""

    def __init__(self, *args, **kwargs):
        raise TypeError("a Wait is made by what can be waited for")

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if not self.source.ready(self.what):
            return self
        self.source.settle(self.what)
        raise StopIteration


cdef Wait wait_for(Source source, int what):
    cdef Wait wait = Wait.__new__(Wait)
    wait.source = source
    wait.what = what
    return wait


@cython.final
cdef class Runner:
    """Runs `coroutine`; calls `finished(error or None)` when it ended."""

    def __init__(self, coroutine, finished):
        self._coroutine = coroutine
        self._finished = finished

    def start(self):
        """Runs the coroutine up to its first wait."""
        self._step(None)

    cdef int resume(self) except -1:
        """Runs on, unless the coroutine is running or waits for a future."""
        if not self._running and self._awaited is None:
            self._step(None)
        return 0

    cdef int stop(self, object reason) except -1:
        """Raises `reason` where the coroutine waits, or at its next wait."""
        if self._running:
            self._reason = reason
        else:
            self._awaited = None
            self._step(reason)
        return 0

    cdef int _step(self, object reason) except -1:
        """Runs the coroutine until it waits for what is not there yet."""
        cdef object finished
        while self._coroutine is not None:
            self._running = True
            try:
                over = self._send(reason)
                error = None
            except BaseException as problem:
                # Whatever it is, the owner of the coroutine is the one to hear of it.
                over = True
                error = problem
            self._running = False
            if over:
                finished = self._finished
                self._coroutine = None
                self._finished = None
                self._reason = None
                finished(error)
                return 0
            reason = self._reason
            if reason is None:
                return 0
            self._reason = None
            self._awaited = None
        return 0

    cdef int _send(self, object reason) except -1:
        """One step; whether it was the last one."""
        cdef PyObject* result = NULL
        cdef PySendResult state
        if reason is not None:
            try:
                self._await(self._coroutine.throw(reason))
            except StopIteration:
                return True
            return False
        state = PyIter_Send(self._coroutine, None, &result)
        if state == PYGEN_ERROR:
            raise_current()
        yielded = <object> result
        Py_XDECREF(result)
        if state == PYGEN_RETURN:
            return True
        self._await(yielded)
        return False

    cdef int _await(self, object yielded) except -1:
        """Sees to it that the coroutine goes on once what it waits for is there."""
        if type(yielded) is Wait:
            return 0
        if yielded is None:
            # Like asyncio.sleep(0): the loop gets its turn.
            yielded = asyncio.get_running_loop().create_future()
            yielded.set_result(None)
        # As a Task does it.
        yielded._asyncio_future_blocking = False
        self._awaited = yielded
        yielded.add_done_callback(self._future_done)
        return 0

    def _future_done(self, future):
        if future is self._awaited:
            self._awaited = None
            self._step(None)


cdef int raise_current() except -1:
    """Lets the error that C code has set go on as an exception."""
    return -1
