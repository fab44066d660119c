"""What the two ends of the proxy have in common.

Owns the transport, its flow control and one deadline a connection; one tick a loop
looks at the deadlines of all of them, so that a request sets no timer. Knows nothing
of HTTP.
"""

cimport cython

import asyncio
import socket
import struct

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from posix.ioctl cimport ioctl
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef extern from "sys/ioctl.h":
    unsigned long TIOCOUTQ

cdef extern from "sys/socket.h":
    int MSG_DONTWAIT
    ssize_t send(int fd, const void* data, size_t size, int flags) noexcept

cdef extern from *:
    """
    #include <poll.h>
    #ifdef POLLRDHUP
    #define PEER_LEFT (POLLRDHUP | POLLHUP | POLLERR)
    #else
    #define PEER_LEFT (POLLHUP | POLLERR)
    #endif
    #include <sys/socket.h>
    #ifdef MSG_NOSIGNAL
    #define NO_SIGNAL MSG_NOSIGNAL
    #else
    #define NO_SIGNAL 0
    #endif
    """
    # The peer sends no more, though there may be bytes to read before its end.
    const short PEER_LEFT
    # A peer that is gone is an error, no signal; where there is no such flag, Python
    # ignores the signal.
    const int NO_SIGNAL
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* watched, unsigned long count, int timeout) noexcept


cdef enum:  # bytes that the transport was given to send
    NOTHING
    THIS_TURN
    FLUSHED  # or the transport counts them

# SO_LINGER with no time: closing sends a reset.
cdef bytes NO_LINGER = struct.pack("ii", 1, 0)


cdef double now() noexcept:
    """Seconds of the monotonic clock, the one of `time.monotonic`."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <double> t.tv_sec + <double> t.tv_nsec * 1e-9


def monotonic():
    """Seconds of the clock that deadlines are on, as a float."""
    return now()


@cython.final
cdef class Ticker:
    """Looks each `interval` seconds at every connection's deadline, and at those that
    are not read, so that a peer that left is noticed."""

    def __init__(self, double interval=0.25):
        self.connections = set()
        self._interval = interval

    def __len__(self):
        """How many connections are open."""
        return len(self.connections)

    def start(self):
        """Starts ticking on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(self._interval, self._tick)

    def stop(self):
        """Stops ticking."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self):
        cdef Connection connection
        cdef double time = now()
        self._handle = self._loop.call_later(self._interval, self._tick)
        for connection in list(self.connections):
            if connection.deadline and connection.deadline <= time:
                connection.deadline = 0
                connection.expired()
            elif connection.reading_paused and not connection.closed:
                connection.unheard()


@cython.final
cdef class Budget:
    """Bytes of bodies that may be held at once, all requests together."""

    def __init__(self, long long limit):
        self.limit = limit

    cdef bint take(self, long long size) noexcept:
        """Counts `size` bytes more; False and unchanged where that is too much."""
        if self.held + size > self.limit:
            return False
        self.held += size
        return True

    cdef void give_back(self, long long size) noexcept:
        self.held -= size


cdef class Connection(Source):
    """One end: an asyncio protocol on an ordinary transport.

    `closed` tells that nothing more will be sent or is expected, be it that the peer
    left or that we have closed; `connection_lost` may be still to come.
    """

    def __init__(self, Ticker ticker not None):
        self.ticker = ticker

    def connection_made(self, transport):
        self.transport = transport
        self.fd = -1
        if transport.get_extra_info("sslcontext") is None:
            socket_ = transport.get_extra_info("socket")
            if socket_ is not None:
                self.fd = socket_.fileno()
        self.ticker.connections.add(self)

    def pause_writing(self):
        self.writing_paused = True
        if self.source is not None:
            self.source.pause_reading()

    def resume_writing(self):
        self.writing_paused = False
        if self.source is not None:
            self.source.resume_reading()

    def abort(self):
        """Closes at once; what was not sent yet is dropped."""
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    cdef Py_ssize_t unsent(self) except -1:
        """Bytes written that the peer has not taken, in our buffer and the system's.

        The system takes some hundred KiB more once that much has gone: by our buffer
        alone a slow peer would seem to take nothing for long.
        """
        cdef int queued = 0
        socket_ = self.transport.get_extra_info("socket")
        if socket_ is None or ioctl(socket_.fileno(), TIOCOUTQ, &queued) != 0:
            queued = 0
        return self.transport.get_write_buffer_size() + queued

    cdef int reset(self) except -1:
        """Closes so that the peer cannot take it for an end in order."""
        socket_ = self.transport.get_extra_info("socket")
        if socket_ is not None:
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.abort()
        return 0

    cdef int close(self) except -1:
        """Closes once what was written is sent."""
        if not self.closed:
            self.closed = True
            self.transport.close()
        return 0

    cdef int expired(self) except -1:
        """The deadline is over."""
        self.abort()
        return 0

    cdef int unheard(self) except -1:
        """Called now and then while this is not read: the loop tells no end then."""
        return 0

    cdef bint peer_left(self) except -1:
        """Whether the peer has ended its side, bytes before it still unread or not."""
        cdef pollfd watched
        watched.fd = self.transport.get_extra_info("socket").fileno()
        watched.events = PEER_LEFT
        watched.revents = 0
        return poll(&watched, 1, 0) > 0

    cdef int forward(self, bytes data) except -1:
        """Sends bytes that came from the other end."""
        if not self.closed:
            self.write(data)
        return 0

    cdef int write(self, bytes data) except -1:
        """Sends bytes, straight to the socket as long as none wait before them.

        What the system does not take at once, and every error, is the transport's,
        which is told to close before the socket's number can be another's.
        """
        cdef ssize_t sent = -1
        if self.waiting == FLUSHED and self.transport.get_write_buffer_size() == 0:
            self.waiting = NOTHING
        if self.fd >= 0 and self.waiting == NOTHING and not self.transport.is_closing():
            sent = send(
                self.fd,
                PyBytes_AS_STRING(data),
                PyBytes_GET_SIZE(data),
                MSG_DONTWAIT | NO_SIGNAL,
            )
            if sent == PyBytes_GET_SIZE(data):
                return 0
        return self.hand_over((data if sent <= 0 else data[sent:],))

    cdef int hand_over(self, tuple pieces) except -1:
        """Leaves it to the transport to send bytes, now or when it can.

        uvloop does so at the end of the loop's turn, and does not count them until
        then: before the next turn nothing may be sent past it.
        """
        if self.fd >= 0 and self.waiting != THIS_TURN:
            self.waiting = THIS_TURN
            asyncio.get_running_loop().call_soon(self._turn_is_over)
        self.transport.writelines(pieces)
        return 0

    def _turn_is_over(self):
        self.waiting = FLUSHED

    cdef int pause_reading(self) except -1:
        if not self.reading_paused and not self.closed:
            self.reading_paused = True
            self.transport.pause_reading()
        return 0

    cdef int resume_reading(self) except -1:
        if self.reading_paused and not self.closed:
            self.reading_paused = False
            self.transport.resume_reading()
        return 0

    cdef int follow(self, Connection source) except -1:
        """From now on what is sent here comes from `source`, at this end's pace."""
        self.source = source
        if self.writing_paused:
            source.pause_reading()
        return 0

    cdef int unfollow(self, Connection source) except -1:
        """Nothing more comes from `source`, which goes at its own pace again."""
        if self.source is source:
            self.source = None
            if self.writing_paused:
                source.resume_reading()
        return 0

    cdef int join(self, Connection source) except -1:
        """From now on bytes that come here go to `source` as they are: a tunnel."""
        return 0
