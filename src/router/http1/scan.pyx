"""Finds members of a JSON object without parsing it.

Owns one pass over the bytes: strings and brackets are found with memchr, which is as
fast as the C library's vector code, so that a prompt is stepped over, not read. Knows
nothing of what the members mean.

What is inside the members is not validated; the worker does that. What decides where
a member is (strings, brackets at the top, commas and colons between members) is held
strictly, so that text which looks like JSON inside a string changes nothing.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.string cimport memchr, memcmp

from router.http1.framing cimport hex_digit

cdef enum:
    QUOTE
    OPEN_BRACE
    CLOSE_BRACE
    OPEN_BRACKET
    CLOSE_BRACKET
    MARKS

cdef const char* MARK = b"\"{}[]"


cdef struct Text:
    const char* p
    Py_ssize_t end
    # Where each mark stands next, as far as that was looked up: each is searched for
    # once over the whole text, however many containers there are.
    Py_ssize_t next[MARKS]


cdef Py_ssize_t next_mark(Text* text, int mark, Py_ssize_t at) noexcept:
    """Where `mark` stands first at or after `at`; the end, if nowhere."""
    cdef const char* found
    if text.next[mark] < at:
        found = <const char*> memchr(text.p + at, MARK[mark], text.end - at)
        text.next[mark] = text.end if found == NULL else found - text.p
    return text.next[mark]


cdef Py_ssize_t skip_space(Text* text, Py_ssize_t at) noexcept:
    cdef char c
    while at < text.end:
        c = text.p[at]
        if c != c" " and c != c"\n" and c != c"\r" and c != c"\t":
            break
        at += 1
    return at


cdef Py_ssize_t skip_string(Text* text, Py_ssize_t at) noexcept:
    """Past the closing quote of the string that opens at `at`; -1 if it has none."""
    cdef const char* found
    cdef Py_ssize_t start = at + 1, stop, back
    at = start
    while at < text.end:
        found = <const char*> memchr(text.p + at, c"\"", text.end - at)
        if found == NULL:
            return -1
        stop = found - text.p
        back = stop
        while back > start and text.p[back - 1] == c"\\":
            back -= 1
        at = stop + 1
        if (stop - back) % 2 == 0:
            return at
    return -1


cdef Py_ssize_t skip_container(Text* text, Py_ssize_t at) noexcept:
    """Past the end of the object or array that opens at `at`; -1 if it has none."""
    cdef Py_ssize_t depth = 0, nearest, place
    cdef int mark, which
    while True:
        nearest = text.end
        which = MARKS
        for mark in range(MARKS):
            place = next_mark(text, mark, at)
            if place < nearest:
                nearest = place
                which = mark
        if which == MARKS:
            return -1
        if which == QUOTE:
            at = skip_string(text, nearest)
            if at < 0:
                return -1
            continue
        at = nearest + 1
        if which == OPEN_BRACE or which == OPEN_BRACKET:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return at


cdef Py_ssize_t skip_value(Text* text, Py_ssize_t at) noexcept:
    """Past the value that starts at `at`; -1 if there is none."""
    cdef Py_ssize_t start = at
    cdef char c
    if at >= text.end:
        return -1
    c = text.p[at]
    if c == c"\"":
        return skip_string(text, at)
    if c == c"{" or c == c"[":
        return skip_container(text, at)
    while at < text.end:
        c = text.p[at]
        if not (
            c"0" <= c <= c"9" or c"a" <= c <= c"z" or c"A" <= c <= c"Z"
            or c == c"-" or c == c"+" or c == c"."
        ):
            break
        at += 1
    return at if at > start else -1


def members(bytes body not None, tuple names not None, Py_ssize_t start=0, end=None):
    """Where members of the JSON object in `body` (or in body[start:end]) stand.

    For each of `names` (bytes, in ASCII) the (start, stop) of its value in `body`, or
    None where it is missing; of a name that stands twice the last one counts. Raises
    ValueError if this is not one JSON object.
    """
    cdef Place found[MOST_NAMES]
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    cdef Py_ssize_t stop = size if end is None else end
    if not 0 <= start <= stop <= size:
        raise ValueError("a range outside the body")
    if not all([type(name) is bytes for name in names]) or len(names) > MOST_NAMES:
        raise TypeError(f"names are bytes, {MOST_NAMES} at most")
    find_members(body, names, found, start, stop)
    return [
        (found[i].start, found[i].stop) if found[i].start >= 0 else None
        for i in range(len(names))
    ]


cdef int find_members(
    bytes body, tuple names, Place* found, Py_ssize_t start, Py_ssize_t end
) except -1:
    """As `members`, into `found`, which has a place for each name; `end` -1: all."""
    cdef Text text
    cdef Py_ssize_t at = start, stop, name_start
    cdef int i
    text.p = PyBytes_AS_STRING(body)
    text.end = PyBytes_GET_SIZE(body) if end < 0 else end
    for i in range(MARKS):
        text.next[i] = -1
    for i in range(<int> PyTuple_GET_SIZE(names)):
        found[i].start = -1
    if text.end - at >= 3 and memcmp(text.p + at, b"\xef\xbb\xbf", 3) == 0:
        at += 3
    at = skip_space(&text, at)
    if at >= text.end or text.p[at] != c"{":
        raise ValueError("it does not start with an object")
    at = skip_space(&text, at + 1)
    if at < text.end and text.p[at] == c"}":
        return _ended(&text, at + 1)
    while True:
        if at >= text.end or text.p[at] != c"\"":
            raise ValueError(f"a member's name is missing at byte {at}")
        name_start = at
        at = skip_string(&text, at)
        if at < 0:
            raise ValueError(f"the string at byte {name_start} does not end")
        i = _index(body, name_start, at, names)
        at = skip_space(&text, at)
        if at >= text.end or text.p[at] != c":":
            raise ValueError(f"a colon is missing at byte {at}")
        at = skip_space(&text, at + 1)
        stop = skip_value(&text, at)
        if stop < 0:
            raise ValueError(f"the value at byte {at} is missing or does not end")
        if i >= 0:
            found[i].start = at
            found[i].stop = stop
        at = skip_space(&text, stop)
        if at < text.end and text.p[at] == c",":
            at = skip_space(&text, at + 1)
        elif at < text.end and text.p[at] == c"}":
            return _ended(&text, at + 1)
        else:
            raise ValueError(f"a comma or the object's end is missing at byte {at}")


cdef int _ended(Text* text, Py_ssize_t at) except -1:
    """Holds that nothing follows the object."""
    at = skip_space(text, at)
    if at != text.end:
        raise ValueError(f"something follows the object at byte {at}")
    return 0


cdef int _index(bytes body, Py_ssize_t start, Py_ssize_t stop, tuple names) except -2:
    """Which of `names` the string in body[start:stop] (with its quotes) is, or -1."""
    cdef const char* p = PyBytes_AS_STRING(body) + start + 1
    cdef Py_ssize_t size = stop - start - 2
    cdef bint escaped = memchr(p, c"\\", size) != NULL
    cdef bytes name
    cdef int i
    for i in range(<int> PyTuple_GET_SIZE(names)):
        name = <bytes> names[i]
        if escaped:
            if same_text(p, size, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)):
                return i
        elif PyBytes_GET_SIZE(name) == size and memcmp(
            PyBytes_AS_STRING(name), p, size
        ) == 0:
            return i
    return -1


cdef bint same_text(
    const char* p, Py_ssize_t size, const char* name, Py_ssize_t name_size
) noexcept:
    """Whether a string's inside, with its escapes, is `name`, which is ASCII.

    It stops at the first difference: as cheap for a million of them as one look each.
    """
    cdef Py_ssize_t at = 0, i
    cdef int c
    for i in range(name_size):
        if at >= size:
            return False
        c = <unsigned char> p[at]
        at += 1
        if c == c"\\":
            c = unescaped(p, size, &at)
        if c != name[i]:
            return False
    return at == size


cdef int unescaped(const char* p, Py_ssize_t size, Py_ssize_t* at) noexcept:
    """The character of the escape whose backslash is before `at`, or -1."""
    cdef const char* letters = b"\"\\/bfnrt"
    cdef const char* meant = b"\"\\/\b\f\n\r\t"
    cdef const char* found
    cdef int c = p[at[0]], value = 0, digit, i
    at[0] += 1
    if c != c"u":
        found = <const char*> memchr(letters, c, 8)
        return -1 if found == NULL else meant[found - letters]
    if at[0] + 4 > size:
        return -1
    for i in range(4):
        digit = hex_digit(<unsigned char> p[at[0] + i])
        if digit < 0:
            return -1
        value = value * 16 + digit
    at[0] += 4
    return value
