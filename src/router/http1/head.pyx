"""The heads of HTTP/1.1 messages: read strictly, written in one pass.

Owns start lines, the rules of Host and of request targets, and what is copied to a
worker or to a client. Knows nothing of sockets, workers or policies.

Anything two HTTP parsers could read differently is refused: RFC 9112, sections 2.2,
3.2 and 4, and never the lenient reading that they allow.
"""

cimport cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.string cimport memchr, memcmp

from router.http1.fields cimport (
    TOKEN,
    VALUE,
    Head,
    Kind,
    bit,
    same_name,
)
from router.http1.writing cimport (
    FRAMING_SIZE,
    finished,
    new_draft,
    put,
    put_bytes,
    put_either,
    put_framing,
    put_id,
    put_line,
    put_upgrade,
    size_of,
)

from router.http1.errors import ProtocolError

# uri-host and port of RFC 3986, 3.2, but no comma: a list is what it is not.
cdef unsigned char HOST[256]

cdef void _fill_table() noexcept:
    cdef int c
    cdef bytes others = b"-._~%!$&'()*+;=:[]"
    for c in range(256):
        HOST[c] = c in others or c < 128 and chr(c).isalnum()

_fill_table()

cdef unsigned long long mask(tuple kinds):
    cdef unsigned long long bits = 0
    for kind in kinds:
        bits |= bit(kind)
    return bits

# Never copied to a worker: hop-by-hop, what the router writes itself, and what is
# meant for the router.
cdef unsigned long long NOT_TO_WORKER = mask((
    Kind.HOST, Kind.CONNECTION, Kind.KEEP_ALIVE, Kind.PROXY_CONNECTION,
    Kind.PROXY_AUTHORIZATION, Kind.TE, Kind.TRAILER, Kind.TRANSFER_ENCODING,
    Kind.UPGRADE, Kind.CONTENT_LENGTH, Kind.EXPECT, Kind.X_REQUEST_ID,
    Kind.X_ROUTER_PEER, Kind.X_ROUTER_PROVIDER, Kind.X_DATA_PARALLEL_RANK,
))
# Never copied to a client.
cdef unsigned long long NOT_TO_CLIENT = mask((
    Kind.CONNECTION, Kind.KEEP_ALIVE, Kind.PROXY_CONNECTION, Kind.UPGRADE,
    Kind.TRANSFER_ENCODING, Kind.CONTENT_LENGTH, Kind.X_REQUEST_ID,
    Kind.X_ROUTER_WORKER,
))

#: Sets of fields that a caller may leave out of a worker's head.
AUTHORIZATION_FIELD = mask((Kind.AUTHORIZATION,))
CREDENTIAL_FIELDS = mask((Kind.AUTHORIZATION, Kind.X_API_KEY, Kind.COOKIE))


@cython.final
cdef class RequestHead(Head):
    """The head of a request.

    `method`, `target` (origin-form, whatever form came), `path` and `query` (None when
    there is no question mark) are bytes.
    """

    @property
    def method(self):
        return self.raw[:self.method_size]

    @property
    def target(self):
        return self.raw[self.target:self.target + self.target_size]

    @property
    def path(self):
        cdef const char* p = PyBytes_AS_STRING(self.raw) + self.target
        cdef const char* mark = <const char*> memchr(p, c"?", self.target_size)
        return p[:self.target_size] if mark == NULL else p[:mark - p]

    @property
    def query(self):
        cdef const char* p = PyBytes_AS_STRING(self.raw) + self.target
        cdef const char* mark = <const char*> memchr(p, c"?", self.target_size)
        return None if mark == NULL else p[mark - p + 1:self.target_size]

    @property
    def expects_continue(self):
        """Whether the client waits for a 100 before it sends the body."""
        cdef bytes value = self.value(Kind.EXPECT)
        if value is None or self.minor == 0:
            return False
        return value.lower() == b"100-continue"

    @property
    def upgrade(self):
        """`websocket` if the client asks for one, without a body, else None.

        No other change of protocol is taken part in: through h2c (RFC 9113, 3.1),
        requests would come that nobody here has seen.
        """
        cdef bytes value = self.value(Kind.UPGRADE)
        if value is None or value.lower() != b"websocket" or not self.upgrades:
            return None
        return None if self.minor == 0 or self.has_body() else value

    cdef int _start_line(self, Py_ssize_t size) except -1:
        """Reads method, target and version; returns where the fields start."""
        cdef const unsigned char* p = <const unsigned char*> PyBytes_AS_STRING(self.raw)
        cdef Py_ssize_t at = 0, start
        while TOKEN[p[at]]:
            at += 1
        if at == 0 or p[at] != c" ":
            raise ProtocolError("a request line that does not start with a method")
        self.method_size = <unsigned int> at
        at += 1
        start = at
        while 32 < p[at] < 127 and p[at] != c"#":
            at += 1
        self.target = <unsigned int> start
        self.target_size = <unsigned int> (at - start)
        if at == start or p[at] != c" ":
            raise ProtocolError("a request target with bytes that are not allowed")
        if size < at + 11 or memcmp(p + at, b" HTTP/1.", 8) != 0 or (
            p[at + 8] != c"1" and p[at + 8] != c"0"
        ) or p[at + 9] != c"\r" or p[at + 10] != c"\n":
            raise ProtocolError("a request line that does not end with HTTP/1.1")
        self.minor = p[at + 8] - c"0"
        self._form(p)
        return <int> (at + 11)

    cdef int _form(self, const unsigned char* p) except -1:
        """Brings the target to origin-form (RFC 9112, 3.2), keeping its authority."""
        cdef unsigned int at = self.target, end = self.target + self.target_size
        if self.method_size == 7 and memcmp(p, b"CONNECT", 7) == 0:
            # Its answer is framed like no other (RFC 9112, 6.3).
            raise ProtocolError("CONNECT as its method")
        if p[at] == c"/":
            return 0
        if self.target_size == 1 and p[at] == c"*" and self.raw.startswith(b"OPTIONS "):
            return 0
        if self.target_size > 7 and same_name(<const char*> p + at, b"http://", 7):
            at += 7
        elif self.target_size > 8 and same_name(<const char*> p + at, b"https://", 8):
            at += 8
        else:
            raise ProtocolError("a request target that is neither a path nor a URL")
        self.authority = at
        while at < end and p[at] != c"/" and p[at] != c"?":
            at += 1
        self.authority_size = at - self.authority
        if self.authority_size == 0 or p[at] != c"/":
            raise ProtocolError("a request URL without a host or a path")
        self.target = at
        self.target_size = end - at
        return 0

    cdef int _host(self) except -1:
        """Holds RFC 9112, 3.2: exactly one Host in 1.1, at most one in 1.0."""
        cdef int i, hosts = 0
        self._authority(self.authority, self.authority_size)
        for i in range(self.count):
            if self.fields[i].kind == Kind.HOST:
                hosts += 1
                self._authority(self.fields[i].value, self.fields[i].value_size)
        if hosts > 1 or (hosts == 0 and self.minor == 1):
            raise ProtocolError("two Host headers" if hosts else "no Host header")
        return 0

    cdef int _authority(self, unsigned int at, unsigned int size) except -1:
        cdef const unsigned char* p = <const unsigned char*> PyBytes_AS_STRING(self.raw)
        cdef unsigned int i
        for i in range(at, at + size):
            if not HOST[p[i]]:
                raise ProtocolError("a host that is not a name and a port")
        return 0

    cdef bint has_body(self) noexcept:
        return self.chunked or self.content_length > 0

    cpdef bytes host(self):
        """The authority that the client asked for, or None."""
        if self.authority_size:
            return self.raw[self.authority:self.authority + self.authority_size]
        return self.value(Kind.HOST)

    cpdef bytes render(
        self,
        bytes lines,
        bytes id=b"",
        bytes forwarded_for=b"",
        long long length=-1,
        bint chunked=False,
        unsigned long long drop=0,
        bytes target=None,
        bytes method=None,
        bytes proto=b"http",
        bytes upgrade=None,
        bytes body=b"",
    ):
        """The head as it goes to a worker, with `body` behind it.

        `lines` are ready lines, each with its CRLF, the worker's Host among them; `id`
        is the X-Request-Id (empty: none). `forwarded_for` is a ready X-Forwarded-For
        line; what proxies before us said is put in front of it. X-Forwarded-Proto and
        X-Forwarded-Host are added where none of them did. `length` is the body's (-1:
        none is framed), `chunked` frames it in chunks. `drop` leaves out further
        fields (see CREDENTIAL_FIELDS), `target` and `method` take the place of the
        client's.
        """
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef bytes before = self._forwarded(forwarded_for)
        cdef bint says_proto = self._says(Kind.X_FORWARDED_PROTO)
        cdef bytes host = None if self._says(Kind.X_FORWARDED_HOST) else self.host()
        cdef PyObject* draft = new_draft(
            160 + FRAMING_SIZE + size_of(self.raw) + size_of(lines) + size_of(id)
            + size_of(before) + size_of(proto) + size_of(host) + size_of(upgrade)
            + size_of(target) + size_of(method) + size_of(body)
        )
        cdef char* out = PyBytes_AS_STRING(<object> draft)
        if forwarded_for:
            drop |= bit(Kind.X_FORWARDED_FOR)
        out = put_either(out, method, p, self.method_size)
        out = put(out, b" ", 1)
        out = put_either(out, target, p + self.target, self.target_size)
        out = put(out, b" HTTP/1.1\r\n", 11)
        out = put_bytes(out, lines)
        out = put_id(out, id)
        out = put_bytes(out, before)
        if not says_proto:
            out = put_line(out, b"X-Forwarded-Proto: ", 19, proto)
        if host:
            out = put_line(out, b"X-Forwarded-Host: ", 18, host)
        if upgrade is not None:
            out = put_upgrade(out, upgrade)
        out += self._copy_fields(out, NOT_TO_WORKER | drop)
        out = put_framing(out, length, chunked)
        return finished(draft, put_bytes(out, body))

    cdef bint _says(self, int kind) except -1:
        """Whether there is a field of this kind that goes on, with something in it."""
        return bool(self.present & bit(kind)) and bool(self._passed_on(kind))

    cdef bytes _forwarded(self, bytes line):
        """X-Forwarded-For: what came in it, then our own `line`'s value."""
        cdef list before = self._passed_on(Kind.X_FORWARDED_FOR) if line else None
        if not before:
            return line
        before.append(line[len(b"X-Forwarded-For: "):])
        return b"X-Forwarded-For: " + b", ".join(before)


@cython.final
cdef class ResponseHead(Head):
    """The head of an answer. `status` is its code."""

    @property
    def reason(self):
        """The reason phrase, bytes; may be empty."""
        return self.raw[13:13 + self.reason_size]

    @property
    def upgrade(self):
        """The protocol that a 101 changes to, or None."""
        return self.value(Kind.UPGRADE)

    cdef int _start_line(self, Py_ssize_t size) except -1:
        """Reads version, status and reason; returns where the fields start."""
        cdef const unsigned char* p = <const unsigned char*> PyBytes_AS_STRING(self.raw)
        cdef Py_ssize_t at = 12
        cdef int i
        if size < 16 or memcmp(p, b"HTTP/1.", 7) != 0 or p[8] != c" " or (
            p[7] != c"1" and p[7] != c"0"
        ):
            raise ProtocolError("a status line that is not HTTP/1.1 or HTTP/1.0")
        self.minor = p[7] - c"0"
        for i in range(9, 12):
            if not c"0" <= p[i] <= c"9":
                raise ProtocolError("a status that is not three digits")
            self.status = self.status * 10 + (p[i] - c"0")
        if self.status < 100 or (p[12] != c" " and p[12] != c"\r"):
            raise ProtocolError("a status that is not three digits")
        while VALUE[p[at]]:
            at += 1
        if p[at] != c"\r" or p[at + 1] != c"\n":
            raise ProtocolError("a control character in the status line")
        self.reason_size = <unsigned int> (at - 13) if at > 13 else 0
        return <int> (at + 2)

    cpdef bytes render(
        self,
        bytes lines,
        bytes id=b"",
        bint keep_alive=True,
        bint say_keep_alive=False,
        bint chunked=False,
        bytes upgrade=None,
        bytes body=b"",
    ):
        """The head as it goes to a client, with `body` behind it.

        `lines` are ready lines, each with its CRLF; `id` is the X-Request-Id (empty:
        none). Content-Length stays as the worker gave it; `chunked` says that the body
        goes out in chunks. `keep_alive` False tells the client that the connection
        ends after this answer; `say_keep_alive` tells an HTTP/1.0 client that it does
        not.
        """
        # RFC 9112, 6.1 and 6.2.
        cdef bint bare = self.status == 204 or self.status < 200
        cdef PyObject* draft = new_draft(
            160 + FRAMING_SIZE + size_of(self.raw) + size_of(lines) + size_of(id)
            + size_of(upgrade) + size_of(body)
        )
        cdef char* out
        # The worker's own status and reason, under our version.
        out = put(PyBytes_AS_STRING(<object> draft), b"HTTP/1.1 ", 9)
        out = put(out, PyBytes_AS_STRING(self.raw) + 9, 3)
        out = put(out, b" ", 1)
        out = put(out, PyBytes_AS_STRING(self.raw) + 13, self.reason_size)
        out = put(out, b"\r\n", 2)
        out += self._copy_fields(out, NOT_TO_CLIENT)
        out = put_bytes(out, lines)
        out = put_id(out, id)
        if upgrade is not None:
            out = put_upgrade(out, upgrade)
        elif not keep_alive:
            out = put(out, b"Connection: close\r\n", 19)
        elif say_keep_alive:
            out = put(out, b"Connection: keep-alive\r\n", 24)
        out = put_framing(
            out, -1 if bare else self.content_length, chunked and not bare
        )
        return finished(draft, put_bytes(out, body))


cpdef RequestHead parse_request(bytes raw):
    """Reads the head of a request: `raw` ends with the blank line.

    Raises ProtocolError for anything malformed or ambiguous.
    """
    cdef RequestHead head = RequestHead.__new__(RequestHead)
    cdef Py_ssize_t size = checked_size(raw)
    head.raw = raw
    head._take(head._start_line(size))
    head._host()
    return head


cpdef ResponseHead parse_response(bytes raw):
    """Reads the head of an answer: `raw` ends with the blank line.

    Raises ProtocolError for anything malformed or ambiguous.
    """
    cdef ResponseHead head = ResponseHead.__new__(ResponseHead)
    cdef Py_ssize_t size = checked_size(raw)
    head.raw = raw
    head._take(head._start_line(size))
    return head


cdef object too_large(const char* data, Py_ssize_t most):
    """The error for a head of more than `most` bytes, or a first line of so many."""
    cdef bint line = memchr(data, c"\n", most) == NULL
    what = f"a request {'line' if line else 'head'} of more than {most} bytes"
    return ProtocolError(what, 414 if line else 431)


cdef Py_ssize_t checked_size(bytes raw) except -1:
    """The size of a head, once it is sure that the scans below cannot run past it."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw)
    if not raw.endswith(b"\r\n\r\n"):
        raise ProtocolError("a head that does not end with a blank line")
    if size > (1 << 20):
        raise ProtocolError("a head that is too large", 431)
    return size
