"""The heads of HTTP/1.1 messages: read strictly, written in one pass.

Owns what a head says: start line, fields, framing, persistence. A head is kept as
its own bytes and a table of offsets; no object is made for a field, and the rewritten
head is one buffer into which runs of untouched fields are copied as runs. Knows
nothing of sockets, workers or policies.

Anything two HTTP parsers could read differently is refused: RFC 9112, sections 2.2,
3.2, 5 and 6.1 to 6.3, and never the lenient reading that they allow.
"""

cimport cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from router.http1.errors import ProtocolError

cdef enum:
    # Most fields a head may have; h11, which vLLM's server may use, has the same limit.
    MAX_FIELDS = 256

# tchar of RFC 9110, 5.6.2, and what may stand in a field's value: VCHAR, obs-text,
# space and tab.
cdef unsigned char TOKEN[256]
cdef unsigned char VALUE[256]
# What may not stand in a Host: the delimiters of what it is a part of.
cdef unsigned char NOT_IN_HOST[256]

cdef void _fill_tables() noexcept:
    cdef int c
    cdef bytes token = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
    for c in range(256):
        VALUE[c] = c >= 32 and c != 127 or c == 9
        TOKEN[c] = c in token or (65 <= c <= 90)
        NOT_IN_HOST[c] = c in b" \t,/@?#\\"

_fill_tables()

cdef unsigned long long bit(int kind) noexcept:
    return (<unsigned long long> 1) << kind

# Never copied to a worker: hop-by-hop, what the router writes itself, and what is
# meant for the router.
cdef unsigned long long NOT_TO_WORKER = (
    bit(HOST) | bit(CONNECTION) | bit(KEEP_ALIVE) | bit(PROXY_CONNECTION)
    | bit(PROXY_AUTHORIZATION) | bit(TE) | bit(TRAILER) | bit(TRANSFER_ENCODING)
    | bit(UPGRADE) | bit(CONTENT_LENGTH) | bit(EXPECT) | bit(X_REQUEST_ID)
    | bit(X_ROUTER_PEER) | bit(X_ROUTER_PROVIDER) | bit(X_DATA_PARALLEL_RANK)
)
# Never copied to a client.
cdef unsigned long long NOT_TO_CLIENT = (
    bit(CONNECTION) | bit(KEEP_ALIVE) | bit(PROXY_CONNECTION) | bit(UPGRADE)
    | bit(TRANSFER_ENCODING) | bit(CONTENT_LENGTH) | bit(X_REQUEST_ID)
    | bit(X_ROUTER_WORKER)
)

#: Sets of fields that a caller may leave out of a worker's head.
AUTHORIZATION_FIELD = bit(AUTHORIZATION)
CREDENTIAL_FIELDS = bit(AUTHORIZATION) | bit(X_API_KEY) | bit(COOKIE)


cdef Py_ssize_t head_end(const char* data, Py_ssize_t size, Py_ssize_t seen) noexcept:
    """Length of the head with its blank line, or -1; `seen` bytes were searched before."""
    cdef Py_ssize_t at = seen - 3 if seen > 3 else 0
    cdef const char* found
    while True:
        found = <const char*> memchr(data + at, c"\n", size - at)
        if found == NULL:
            return -1
        at = found - data
        if at >= 3 and data[at - 1] == c"\r" and data[at - 2] == c"\n" and data[at - 3] == c"\r":
            return at + 1
        at += 1


cdef bint has_bare_newline(const char* data, Py_ssize_t size, Py_ssize_t seen) noexcept:
    """Whether a line feed without its carriage return stands in an unfinished head."""
    cdef Py_ssize_t at = seen
    cdef const char* found
    while at < size:
        found = <const char*> memchr(data + at, c"\n", size - at)
        if found == NULL:
            return False
        at = found - data
        if at == 0 or data[at - 1] != c"\r":
            return True
        at += 1
    return False


cdef bint same_name(const char* name, const char* lower, Py_ssize_t size) noexcept:
    """Whether a field's name is this one; `lower` is of letters, digits and dashes."""
    cdef Py_ssize_t i
    for i in range(size):
        if (name[i] | 0x20) != lower[i]:
            return False
    return True


cdef int kind_of(const char* name, Py_ssize_t size) noexcept:
    """The kind of a field by its name. One switch on the size leaves few to compare."""
    if size == 2:
        return TE if same_name(name, b"te", 2) else OTHER
    if size == 4:
        return HOST if same_name(name, b"host", 4) else OTHER
    if size == 6:
        if same_name(name, b"expect", 6):
            return EXPECT
        return COOKIE if same_name(name, b"cookie", 6) else OTHER
    if size == 7:
        if same_name(name, b"upgrade", 7):
            return UPGRADE
        return TRAILER if same_name(name, b"trailer", 7) else OTHER
    if size == 9:
        return X_API_KEY if same_name(name, b"x-api-key", 9) else OTHER
    if size == 10:
        if same_name(name, b"connection", 10):
            return CONNECTION
        return KEEP_ALIVE if same_name(name, b"keep-alive", 10) else OTHER
    if size == 12:
        if same_name(name, b"content-type", 12):
            return CONTENT_TYPE
        return X_REQUEST_ID if same_name(name, b"x-request-id", 12) else OTHER
    if size == 13:
        if same_name(name, b"authorization", 13):
            return AUTHORIZATION
        return X_ROUTER_PEER if same_name(name, b"x-router-peer", 13) else OTHER
    if size == 14:
        return CONTENT_LENGTH if same_name(name, b"content-length", 14) else OTHER
    if size == 15:
        if same_name(name, b"x-forwarded-for", 15):
            return X_FORWARDED_FOR
        return X_ROUTER_WORKER if same_name(name, b"x-router-worker", 15) else OTHER
    if size == 16:
        if same_name(name, b"x-forwarded-host", 16):
            return X_FORWARDED_HOST
        return PROXY_CONNECTION if same_name(name, b"proxy-connection", 16) else OTHER
    if size == 17:
        if same_name(name, b"transfer-encoding", 17):
            return TRANSFER_ENCODING
        if same_name(name, b"x-forwarded-proto", 17):
            return X_FORWARDED_PROTO
        return X_ROUTER_PROVIDER if same_name(name, b"x-router-provider", 17) else OTHER
    if size == 19:
        return PROXY_AUTHORIZATION if same_name(name, b"proxy-authorization", 19) else OTHER
    if size == 20:
        return X_DATA_PARALLEL_RANK if same_name(name, b"x-data-parallel-rank", 20) else OTHER
    return OTHER


cdef int read_fields(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t end, Field* out
) except -1:
    """Reads the fields in [at, end), each ended by CRLF, into `out`; how many."""
    cdef int count = 0
    cdef Py_ssize_t start, stop
    while at < end:
        if count == MAX_FIELDS:
            raise ProtocolError(f"more than {MAX_FIELDS} header fields", 431)
        start = at
        while TOKEN[p[at]]:
            at += 1
        if p[at] != c":" or at == start:
            if p[start] == c" " or p[start] == c"\t":
                raise ProtocolError("a header line that is folded")
            raise ProtocolError("a header name that is not a token followed by a colon")
        out[count].name = <unsigned int> start
        out[count].name_size = <unsigned int> (at - start)
        out[count].hop_by_hop = False
        out[count].kind = kind_of(<const char*> p + start, at - start)
        at += 1
        while p[at] == c" " or p[at] == c"\t":
            at += 1
        start = at
        while VALUE[p[at]]:
            at += 1
        # The head ends with CRLF, so that these two bytes are always there.
        if p[at] != c"\r" or p[at + 1] != c"\n":
            raise ProtocolError("a control character in a header value")
        stop = at
        while stop > start and (p[stop - 1] == c" " or p[stop - 1] == c"\t"):
            stop -= 1
        out[count].value = <unsigned int> start
        out[count].value_size = <unsigned int> (stop - start)
        at += 2
        count += 1
    return count


cdef class Head:
    """What requests and answers have in common. Made by the two `parse_` functions.

    `minor` is the HTTP/1 minor version, `content_length` the body's length in bytes
    (-1: not given), `chunked` whether it is framed in chunks, `keep_alive` whether
    the sender will go on using the connection.
    """

    def __dealloc__(self):
        free(self.fields)

    cdef void _take(self, Field* fields, int count) except *:
        """Keeps the table and what it says of framing and persistence."""
        cdef int i
        self.fields = <Field*> malloc(max(count, 1) * sizeof(Field))
        if self.fields == NULL:
            raise MemoryError
        memcpy(self.fields, fields, count * sizeof(Field))
        self.count = count
        for i in range(count):
            self.present |= bit(fields[i].kind)
        self.content_length = -1
        self.keep_alive = self.minor == 1
        if self.present & (bit(CONTENT_LENGTH) | bit(TRANSFER_ENCODING)):
            self._framing()
        if self.present & bit(CONNECTION):
            self._connection()

    cdef int _framing(self) except -1:
        """Reads Content-Length and Transfer-Encoding: one of them, once, and plain."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef Field* field
        cdef int i, j, lengths = 0, codings = 0
        for i in range(self.count):
            field = &self.fields[i]
            if field.kind == CONTENT_LENGTH:
                lengths += 1
                if not 1 <= field.value_size <= 18:
                    raise ProtocolError("a Content-Length that is not a number")
                self.content_length = 0
                for j in range(field.value_size):
                    if not c"0" <= p[field.value + j] <= c"9":
                        raise ProtocolError("a Content-Length that is not a number")
                    self.content_length = (
                        self.content_length * 10 + (p[field.value + j] - c"0")
                    )
            elif field.kind == TRANSFER_ENCODING:
                codings += 1
                if field.value_size != 7 or not same_name(
                    p + field.value, b"chunked", 7
                ):
                    raise ProtocolError("a Transfer-Encoding other than chunked")
                self.chunked = True
        if lengths > 1:
            raise ProtocolError("two Content-Length headers")
        if codings > 1:
            raise ProtocolError("two Transfer-Encoding headers")
        if lengths and codings:
            raise ProtocolError("Content-Length beside Transfer-Encoding")
        if codings and self.minor == 0:
            raise ProtocolError("Transfer-Encoding in HTTP/1.0")
        return 0

    cdef int _connection(self) except -1:
        """Reads Connection: persistence, and the fields it declares hop-by-hop."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef int i
        cdef unsigned int at, stop, end
        cdef bint close = False, keep = False
        for i in range(self.count):
            if self.fields[i].kind != CONNECTION:
                continue
            at = self.fields[i].value
            end = at + self.fields[i].value_size
            while at < end:
                stop = at
                while stop < end and p[stop] != c"," and p[stop] != c" " and p[stop] != c"\t":
                    stop += 1
                if stop - at == 5 and same_name(p + at, b"close", 5):
                    close = True
                elif stop - at == 10 and same_name(p + at, b"keep-alive", 10):
                    keep = True
                elif stop > at:
                    self._make_hop_by_hop(p + at, stop - at)
                at = stop + 1
        self.keep_alive = not close and (keep or self.minor == 1)
        return 0

    cdef void _make_hop_by_hop(self, const char* name, unsigned int size) noexcept:
        """Marks the fields of this name, which Connection lists, as not to be copied."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef int i
        cdef unsigned int j
        for i in range(self.count):
            if self.fields[i].name_size != size or self.fields[i].kind == CONNECTION:
                continue
            for j in range(size):
                if (p[self.fields[i].name + j] | 0x20) != (name[j] | 0x20):
                    break
            else:
                self.fields[i].hop_by_hop = True

    cdef bytes _value(self, int kind):
        """The first value of this kind, or None."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef int i
        if self.present & bit(kind):
            for i in range(self.count):
                if self.fields[i].kind == kind:
                    return p[self.fields[i].value:self.fields[i].value
                             + self.fields[i].value_size]
        return None

    def header(self, bytes name not None):
        """The first value of the field of this name, or None. `name` is in lower case."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef const char* wanted = PyBytes_AS_STRING(name)
        cdef unsigned int size = <unsigned int> PyBytes_GET_SIZE(name)
        cdef Field* field
        cdef int i
        for i in range(self.count):
            field = &self.fields[i]
            if field.name_size == size and same_name(p + field.name, wanted, size):
                return p[field.value:field.value + field.value_size]
        return None

    def first(self, tuple names not None):
        """The first value that is not empty of the fields named, by order of `names`.

        None if there is none. Names are bytes in lower case.
        """
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef Field* field
        cdef Py_ssize_t best = PyTuple_GET_SIZE(names), i
        cdef bytes name
        cdef int at, found = -1
        for at in range(self.count):
            field = &self.fields[at]
            for i in range(best):
                name = <bytes> names[i]
                if (
                    PyBytes_GET_SIZE(name) == field.name_size
                    and field.value_size
                    and same_name(
                        p + field.name, PyBytes_AS_STRING(name), field.name_size
                    )
                ):
                    best = i
                    found = at
                    break
        if found < 0:
            return None
        field = &self.fields[found]
        return p[field.value:field.value + field.value_size]

    def value(self, int kind):
        """The first value of a known kind of field (see `Kind`), or None."""
        return self._value(kind)

    def pairs(self):
        """All fields as (name, value) pairs of bytes, as they came."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef Field f
        cdef int i
        found = []
        for i in range(self.count):
            f = self.fields[i]
            found.append(
                (p[f.name:f.name + f.name_size], p[f.value:f.value + f.value_size])
            )
        return found

    cdef Py_ssize_t _copy_fields(self, char* out, unsigned long long drop) noexcept:
        """Copies the fields not in `drop`, runs as runs, to `out`; bytes written."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef Field* field
        cdef Py_ssize_t written = 0, start = -1, stop = 0
        cdef int i
        for i in range(self.count):
            field = &self.fields[i]
            if field.hop_by_hop or drop & bit(field.kind):
                if start >= 0:
                    memcpy(out + written, p + start, field.name - start)
                    written += field.name - start
                    start = -1
            elif start < 0:
                start = field.name
        if start >= 0:
            # Up to the blank line, the last two bytes.
            stop = PyBytes_GET_SIZE(self.raw) - 2
            memcpy(out + written, p + start, stop - start)
            written += stop - start
        return written


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
        cdef bytes value = self._value(EXPECT)
        return value is not None and value.lower() == b"100-continue" and self.minor == 1

    @property
    def upgrade(self):
        """The protocol that the client wants to change to, or None."""
        cdef bytes value
        if not self.present & bit(UPGRADE) or self.minor == 0:
            return None
        value = self._value(CONNECTION)
        if value is None or b"upgrade" not in value.lower():
            return None
        return self._value(UPGRADE)

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
        while 32 < p[at] < 127:
            at += 1
        self.target = <unsigned int> start
        self.target_size = <unsigned int> (at - start)
        if at == start or p[at] != c" ":
            raise ProtocolError("a request target with bytes that are not allowed")
        if size < at + 11 or memcmp(p + at, b" HTTP/1.", 8) != 0 or (
            p[at + 8] != c"1" and p[at + 8] != c"0"
        ) or p[at + 9] != c"\r" or p[at + 10] != c"\n":
            raise ProtocolError("a request line without HTTP/1.1 or HTTP/1.0 at its end")
        self.minor = p[at + 8] - c"0"
        self._form(p)
        return <int> (at + 11)

    cdef int _form(self, const unsigned char* p) except -1:
        """Brings the target to origin-form (RFC 9112, 3.2), keeping its authority."""
        cdef unsigned int at = self.target, end = self.target + self.target_size
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
        """Holds the rule of RFC 9112, 3.2: exactly one Host in 1.1, at most one in 1.0."""
        cdef const unsigned char* p = <const unsigned char*> PyBytes_AS_STRING(self.raw)
        cdef int i, hosts = 0
        cdef unsigned int j
        for i in range(self.count):
            if self.fields[i].kind != HOST:
                continue
            hosts += 1
            for j in range(self.fields[i].value_size):
                if NOT_IN_HOST[p[self.fields[i].value + j]]:
                    raise ProtocolError("a Host that is not a name and a port")
        if hosts > 1 or (hosts == 0 and self.minor == 1):
            raise ProtocolError("two Host headers" if hosts else "no Host header")
        return 0

    cpdef bytes host(self):
        """The authority that the client asked for, or None."""
        if self.authority_size:
            return self.raw[self.authority:self.authority + self.authority_size]
        return self._value(HOST)

    def render(
        self,
        bytes lines not None,
        *,
        long long length=-1,
        bint chunked=False,
        unsigned long long drop=0,
        bytes proto not None=b"http",
        bytes upgrade=None,
    ):
        """The head as it goes to a worker.

        `lines` are ready lines, each with its CRLF, the worker's Host among them.
        `length` is the body's (-1: none is framed), `chunked` frames it in chunks,
        `drop` leaves out further fields (see CREDENTIAL_FIELDS). X-Forwarded-Proto and
        X-Forwarded-Host are added where no proxy before us did.
        """
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef bytes extra = lines
        cdef bytes host
        cdef bytes head
        cdef char* out
        cdef Py_ssize_t at
        if not self.present & bit(X_FORWARDED_PROTO):
            extra += b"X-Forwarded-Proto: " + proto + b"\r\n"
        if not self.present & bit(X_FORWARDED_HOST):
            host = self.host()
            if host:
                extra += b"X-Forwarded-Host: " + host + b"\r\n"
        if upgrade is not None:
            extra += b"Connection: upgrade\r\nUpgrade: " + upgrade + b"\r\n"
        head = PyBytes_FromStringAndSize(
            NULL, PyBytes_GET_SIZE(self.raw) + PyBytes_GET_SIZE(extra) + 64
        )
        out = PyBytes_AS_STRING(head)
        memcpy(out, p, self.method_size + 1)
        at = self.method_size + 1
        memcpy(out + at, p + self.target, self.target_size)
        at += self.target_size
        memcpy(out + at, b" HTTP/1.1\r\n", 11)
        at += 11
        memcpy(out + at, PyBytes_AS_STRING(extra), PyBytes_GET_SIZE(extra))
        at += PyBytes_GET_SIZE(extra)
        at += self._copy_fields(out + at, NOT_TO_WORKER | drop)
        at += _write_framing(out + at, length, chunked)
        return shrunk(head, at)


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
        return self._value(UPGRADE)

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

    def render(
        self,
        bytes lines not None,
        *,
        bint keep_alive=True,
        bint say_keep_alive=False,
        bint chunked=False,
        bytes upgrade=None,
    ):
        """The head as it goes to a client.

        `lines` are ready lines, each with its CRLF. Content-Length stays as the worker
        gave it; `chunked` says that the body goes out in chunks. `keep_alive` False
        tells the client that the connection ends after this answer; `say_keep_alive`
        tells an HTTP/1.0 client that it does not.
        """
        cdef bytes extra = lines
        cdef bytes head
        cdef char* out
        cdef Py_ssize_t at
        cdef int written
        if upgrade is not None:
            extra += b"Connection: upgrade\r\nUpgrade: " + upgrade + b"\r\n"
        elif not keep_alive:
            extra += b"Connection: close\r\n"
        elif say_keep_alive:
            extra += b"Connection: keep-alive\r\n"
        head = PyBytes_FromStringAndSize(
            NULL, PyBytes_GET_SIZE(self.raw) + PyBytes_GET_SIZE(extra) + 96
        )
        out = PyBytes_AS_STRING(head)
        written = snprintf(out, 16, b"HTTP/1.1 %03d ", self.status)
        at = written
        memcpy(out + at, PyBytes_AS_STRING(self.raw) + 13, self.reason_size)
        at += self.reason_size
        memcpy(out + at, b"\r\n", 2)
        at += 2
        at += self._copy_fields(out + at, NOT_TO_CLIENT)
        memcpy(out + at, PyBytes_AS_STRING(extra), PyBytes_GET_SIZE(extra))
        at += PyBytes_GET_SIZE(extra)
        at += _write_framing(
            out + at,
            -1 if self.status == 204 or self.status < 200 else self.content_length,
            chunked,
        )
        return shrunk(head, at)


cdef Py_ssize_t _write_framing(char* out, long long length, bint chunked) noexcept:
    """Writes the framing field, if any, and the blank line; bytes written."""
    cdef Py_ssize_t at = 0
    if chunked:
        memcpy(out, b"Transfer-Encoding: chunked\r\n", 28)
        at = 28
    elif length >= 0:
        at = snprintf(out, 48, b"Content-Length: %lld\r\n", length)
    memcpy(out + at, b"\r\n", 2)
    return at + 2


cdef bytes shrunk(bytes head, Py_ssize_t size):
    """The first `size` bytes."""
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(head), size)


cpdef RequestHead parse_request(bytes raw):
    """Reads the head of a request: `raw` ends with the blank line.

    Raises ProtocolError for anything malformed or ambiguous.
    """
    cdef Field fields[MAX_FIELDS]
    cdef RequestHead head = RequestHead.__new__(RequestHead)
    cdef Py_ssize_t size = checked_size(raw)
    cdef int at, count
    head.raw = raw
    at = head._start_line(size)
    count = read_fields(<const unsigned char*> PyBytes_AS_STRING(raw), at, size - 2, fields)
    head._take(fields, count)
    head._host()
    return head


cpdef ResponseHead parse_response(bytes raw):
    """Reads the head of an answer: `raw` ends with the blank line.

    Raises ProtocolError for anything malformed or ambiguous.
    """
    cdef Field fields[MAX_FIELDS]
    cdef ResponseHead head = ResponseHead.__new__(ResponseHead)
    cdef Py_ssize_t size = checked_size(raw)
    cdef int at, count
    head.raw = raw
    at = head._start_line(size)
    count = read_fields(<const unsigned char*> PyBytes_AS_STRING(raw), at, size - 2, fields)
    head._take(fields, count)
    return head


cdef Py_ssize_t checked_size(bytes raw) except -1:
    """The size of a head, once it is sure that the scans below cannot run past it."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw)
    if not raw.endswith(b"\r\n\r\n"):
        raise ProtocolError("a head that does not end with a blank line")
    if size > (1 << 20):
        raise ProtocolError("a head that is too large", 431)
    return size
