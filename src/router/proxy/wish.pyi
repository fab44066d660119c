"""What a request asks for: model, session, provider, rank, out of head and body."""

from typing import final

from router.http1.head import RequestHead
from router.http1.request import Request
from router.proxy.places import Where

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

SMALL_BODY: int

@final
class Wish:
    model: str | None
    model_at: tuple[int, int] | None
    model_in: Where
    session: bytes | None
    provider: str | None
    rank: str | None
    has_body: bool

def wants_body(head: RequestHead) -> bool: ...
def read_wish(request: Request, session_headers: tuple[bytes, ...]) -> Wish: ...
