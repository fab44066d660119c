"""Header fields of HTTP/1.1: found, known by kind, copied on.

Owns the table of a head's fields and what the fields say together: framing and
persistence. No object is made for a field: the table holds offsets into the head's
bytes, and runs of fields are copied as runs. Knows nothing of start lines.

Anything two HTTP parsers could read differently is refused: RFC 9112, sections 5 and
6.1 to 6.3, and never the lenient reading that they allow.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from router.http1.errors import ProtocolError

cdef enum:
    # Most fields that Connection may name. Nobody needs more than a few.
    MAX_OPTIONS = 64

# tchar of RFC 9110, 5.6.2, and what may stand in a field's value: VCHAR, obs-text,
# space and tab.
cdef unsigned char LOWER[256]

cdef void _fill_tables() noexcept:
    cdef int c
    cdef bytes token = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
    for c in range(256):
        LOWER[c] = c + 32 if 65 <= c <= 90 else c
        VALUE[c] = c >= 32 and c != 127 or c == 9
        TOKEN[c] = LOWER[c] in token

_fill_tables()


cdef Py_ssize_t head_end(const char* data, Py_ssize_t size, Py_ssize_t seen) noexcept:
    """Length of the head with its blank line, or -1; `seen` bytes were searched."""
    cdef Py_ssize_t at = seen - 3 if seen > 3 else 0
    cdef const char* found
    while True:
        found = <const char*> memchr(data + at, c"\n", size - at)
        if found == NULL:
            return -1
        at = found - data
        if at >= 3 and memcmp(data + at - 3, b"\r\n\r", 3) == 0:
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
    """Whether `name`, in any case, is `lower`."""
    cdef Py_ssize_t i
    for i in range(size):
        if LOWER[<unsigned char> name[i]] != <unsigned char> lower[i]:
            return False
    return True


cdef bint is_space(char c) noexcept:
    return c == c" " or c == c"\t"


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
        if same_name(name, b"proxy-authorization", 19):
            return PROXY_AUTHORIZATION
    if size == 20:
        if same_name(name, b"x-data-parallel-rank", 20):
            return X_DATA_PARALLEL_RANK
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
        while is_space(p[at]):
            at += 1
        start = at
        while VALUE[p[at]]:
            at += 1
        # The head ends with CRLF, so that these two bytes are always there.
        if p[at] != c"\r" or p[at + 1] != c"\n":
            raise ProtocolError("a control character in a header value")
        stop = at
        while stop > start and is_space(p[stop - 1]):
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

    def __cinit__(self):
        self.raw = b""

    def __dealloc__(self):
        free(self.fields)

    cdef int _take(self, Py_ssize_t start) except -1:
        """Reads the fields, which start there: their table, framing and persistence."""
        cdef Field fields[MAX_FIELDS]
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(self.raw) - 2
        cdef int i, count = read_fields(<const unsigned char*> p, start, end, fields)
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
        return 0

    cdef int _framing(self) except -1:
        """Reads Content-Length and Transfer-Encoding: one of them, once, and plain."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef Field* field
        cdef int i, j, lengths = 0, codings = 0
        for i in range(self.count):
            field = &self.fields[i]
            if field.kind != CONTENT_LENGTH and field.kind != TRANSFER_ENCODING:
                continue
            if p[field.value + field.value_size] != c"\r":
                # "chunked" with a tab behind it is no chunked for llhttp.
                raise ProtocolError("space behind the value that frames its body")
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
            else:
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
        cdef int i, options = 0
        cdef const char* comma
        cdef unsigned int at, next_at, stop, end
        cdef bint close = False, keep = False
        for i in range(self.count):
            if self.fields[i].kind != CONNECTION:
                continue
            next_at = self.fields[i].value
            end = next_at + self.fields[i].value_size
            while next_at < end:
                at = next_at
                comma = <const char*> memchr(p + at, c",", end - at)
                stop = end if comma == NULL else <unsigned int> (comma - p)
                next_at = stop + 1
                while at < stop and is_space(p[at]):
                    at += 1
                while at < stop and is_space(p[stop - 1]):
                    stop -= 1
                if stop - at == 5 and same_name(p + at, b"close", 5):
                    close = True
                elif stop - at == 10 and same_name(p + at, b"keep-alive", 10):
                    keep = True
                elif stop - at == 7 and same_name(p + at, b"upgrade", 7):
                    self.upgrades = True
                elif stop > at:
                    options += 1
                    if options > MAX_OPTIONS:
                        # Each costs a look at every field.
                        raise ProtocolError("too many Connection options", 431)
                    self._make_hop_by_hop(p + at, stop - at)
        self.keep_alive = not close and (keep or self.minor == 1)
        return 0

    cdef void _make_hop_by_hop(self, const char* name, unsigned int size) noexcept:
        """Marks the fields of a name that Connection lists as not to be copied."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef const unsigned char* mine
        cdef int i
        cdef unsigned int j
        for i in range(self.count):
            if self.fields[i].name_size != size or self.fields[i].kind == CONNECTION:
                continue
            mine = <const unsigned char*> p + self.fields[i].name
            for j in range(size):
                if LOWER[mine[j]] != LOWER[<unsigned char> name[j]]:
                    break
            else:
                self.fields[i].hop_by_hop = True

    cpdef bytes value(self, int kind):
        """The first value of a known kind of field (see `Kind`), or None."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef int i
        if self.present & bit(kind):
            for i in range(self.count):
                if self.fields[i].kind == kind:
                    return p[self.fields[i].value:self.fields[i].value
                             + self.fields[i].value_size]
        return None

    cdef list _passed_on(self, int kind):
        """The values of this kind that are not hop-by-hop and not empty, or None."""
        cdef const char* p = PyBytes_AS_STRING(self.raw)
        cdef Field* field
        cdef int i
        if not self.present & bit(kind):
            return None
        values = []
        for i in range(self.count):
            field = &self.fields[i]
            if field.kind == kind and not field.hop_by_hop and field.value_size:
                values.append(p[field.value:field.value + field.value_size])
        return values

    def header(self, bytes name not None):
        """The first value of the field of this name (in lower case), or None."""
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
