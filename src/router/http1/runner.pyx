"""Runs a request's coroutine inside the callbacks it waits for.

Owns the stepping of one coroutine: it is resumed in the very call in which the bytes
it waited for arrived, with no Task, no Future and no trip through the loop. Ordinary
futures and tasks may be awaited too. Knows nothing of HTTP.

What a coroutine waits for is a `Wait` on a `Source`. A wait looks at its source again
each time it is resumed, so that a resumption that came too early, or while the
coroutine was running, does no harm and none is lost.
"""

cimport cython

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF


cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object iter, object arg, PyObject** result) noexcept
    PyObject* PyErr_Occurred()


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
    """Awaitable: ends when its source is ready."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if not self.source.ready(self.what):
            return None
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
        if not self._running and self._future is None:
            self._step(None)
        return 0

    cdef int stop(self, object reason) except -1:
        """Raises `reason` where the coroutine waits."""
        if not self._running:
            self._future = None
            self._step(reason)
        return 0

    cdef int _step(self, object reason) except -1:
        cdef PyObject* result = NULL
        cdef PySendResult state
        if self._coroutine is None:
            return 0
        self._running = True
        try:
            if reason is not None:
                yielded = self._coroutine.throw(reason)
            else:
                state = PyIter_Send(self._coroutine, None, &result)
                if state == PYGEN_ERROR:
                    raise_current()
                if state == PYGEN_RETURN:
                    Py_XDECREF(result)
                    return self._end(None)
                yielded = <object> result
                Py_XDECREF(result)
        except StopIteration:
            return self._end(None)
        except BaseException as error:
            # Whatever it is, the owner of the coroutine is the one to hear of it.
            return self._end(error)
        finally:
            self._running = False
        if yielded is not None:
            self._await_future(yielded)
        return 0

    def _await_future(self, future):
        """Waits for an asyncio future, as a Task would."""
        future._asyncio_future_blocking = False
        self._future = future
        future.add_done_callback(self._future_done)

    def _future_done(self, future):
        if future is self._future:
            self._future = None
            self._step(None)

    cdef int _end(self, object reason) except -1:
        finished = self._finished
        self._coroutine = None
        self._finished = None
        finished(reason)
        return 0


cdef int raise_current() except -1:
    """Lets the error that C code has set go on as an exception."""
    return -1
