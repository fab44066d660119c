"""What a request asks for: model, session, provider, rank, out of head and body.

Owns where these may stand and which place wins. It takes bytes and gives a Wish; it
knows neither workers nor policies, and it never changes a byte: where the model stands
in the body is told, so that an alias can be replaced there and nowhere else. Compiled,
since every request passes through it.
"""

cimport cython

import contextlib
import json

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr

from router.http1.fields cimport Kind, same_name
from router.http1.head cimport RequestHead
from router.http1.request cimport Request
from router.http1.scan cimport MOST_NAMES, Place, find_members

from router.errors import BadRequest, InvalidJSON
from router.proxy import places
from router.proxy.places import Where

cdef enum Media:
    JSON
    FORM
    ANYTHING

cdef tuple MODEL_ONLY = (b"model",)
cdef tuple MODEL_AND_SESSION = (
    b"model",
    b"session_params",
    b"session_id",
    b"user",
    b"user_id",
)
#: A body that is neither JSON nor a form is held, so that it can be sent again, up to
#: this size; a larger one streams.
SMALL_BODY = 65_536

# Where most models are named.
cdef object IN_JSON = Where.JSON


@cython.final
cdef class Wish:
    """What a request asks of the fleet.

    `model` is the model's name (None: the request names none), `model_at` where the
    name's value stands, quotes included, in what `model_in` says. `session` stays with
    one worker (None: nothing does). `provider` and `rank`, as the client wrote them,
    limit the workers to theirs (None: any). `has_body` tells whether there is a body
    that could have named a model.
    """

    def __cinit__(self):
        self.model_in = IN_JSON
        self.has_body = True


cpdef bint wants_body(RequestHead head) except -1:
    """Whether the body must be seen to route it, or is small enough to be held."""
    if media_of(head.value(Kind.CONTENT_TYPE)) != ANYTHING:
        return True
    return 0 <= head.content_length <= SMALL_BODY


cpdef Wish read_wish(Request request, tuple session_headers):
    """What the request asks for; a body that is not held is not looked at.

    `session_headers`, in lower case: the first that is present and not empty wins over
    the body's fields; an empty tuple: sessions are not looked for. Raises InvalidJSON
    for a body that claims to be JSON and is not one object, BadRequest for a model
    that is no string.
    """
    cdef RequestHead head = request.head
    cdef bytes body = request.body
    cdef Wish wish = Wish.__new__(Wish)
    cdef bytes value = head.value(Kind.X_ROUTER_PROVIDER)
    cdef Media media
    if value:
        wish.provider = value.decode("latin-1")
    value = head.value(Kind.X_DATA_PARALLEL_RANK)
    if value:
        wish.rank = value.decode("latin-1")
    if session_headers:
        wish.session = head.first(session_headers)
    wish.has_body = body is None or PyBytes_GET_SIZE(body) > 0
    if body:
        value = head.value(Kind.CONTENT_TYPE)
        media = media_of(value)
        if media == JSON:
            read_json(wish, body, bool(session_headers))
            return wish
        if media == FORM:
            places.read_form(wish, value, body)
            return wish
        if body.startswith(b"{"):
            # It does not claim to be JSON; if it is, the better for the client.
            with contextlib.suppress(InvalidJSON):
                read_json(wish, body, bool(session_headers))
    if wish.model is None:
        query = head.query
        if query:
            places.read_query(wish, query)
    return wish


cdef Media media_of(bytes kind) noexcept:
    """What a Content-Type says; a sequence of JSON values is another type."""
    cdef const char* p
    cdef const char* parameters
    cdef Py_ssize_t size
    if kind is None:
        return ANYTHING
    p = PyBytes_AS_STRING(kind)
    size = PyBytes_GET_SIZE(kind)
    if size >= 19 and same_name(p, b"multipart/form-data", 19):
        return FORM
    parameters = <const char*> memchr(p, c";", size)
    if parameters != NULL:
        size = parameters - p
    while size > 0 and (p[size - 1] == c" " or p[size - 1] == c"\t"):
        size -= 1
    if size == 16 and same_name(p, b"application/json", 16):
        return JSON
    if size > 5 and same_name(p + size - 5, b"+json", 5):
        return JSON
    return ANYTHING


cdef int read_json(Wish wish, bytes body, bint sessions) except -1:
    cdef Place found[MOST_NAMES]
    cdef bint look = sessions and wish.session is None
    cdef str model
    try:
        find_members(body, MODEL_AND_SESSION if look else MODEL_ONLY, found, 0, -1)
    except ValueError as error:
        raise InvalidJSON(f"The body is not a JSON object: {error}.") from None
    if found[0].start >= 0:
        model = text(body, found[0])
        if model:
            wish.model = model
            wish.model_at = (found[0].start, found[0].stop)
        elif model is None and body[found[0].start:found[0].stop] != b"null":
            raise BadRequest("`model` must be a string.", param="model")
    if look:
        wish.session = session_of(body, found)
    return 0


cdef bytes session_of(bytes body, Place* found):
    """The first session field that is a string with something in it."""
    cdef const char* p = PyBytes_AS_STRING(body)
    cdef Place inner
    cdef str session = None
    cdef int i
    if found[1].start >= 0 and p[found[1].start] == c"{":
        # What is not an object after all is the worker's to refuse.
        with contextlib.suppress(ValueError):
            find_members(body, (b"session_id",), &inner, found[1].start, found[1].stop)
            if inner.start >= 0:
                session = text(body, inner)
    for i in range(2, <int> PyTuple_GET_SIZE(MODEL_AND_SESSION)):
        if not session and found[i].start >= 0:
            session = text(body, found[i])
    return session.encode("utf-8", "surrogatepass") if session else None


cdef str text(bytes body, Place at):
    """The string that stands there, or None for a value of another kind."""
    cdef const char* p = PyBytes_AS_STRING(body) + at.start
    cdef Py_ssize_t size = at.stop - at.start
    if p[0] != c"\"":
        return None
    try:
        if memchr(p, c"\\", size) == NULL:
            return PyUnicode_DecodeUTF8(p + 1, size - 2, NULL)
        return str(json.loads(p[:size]))
    except ValueError as error:
        raise InvalidJSON(f"A string of the body is malformed: {error}.") from None
