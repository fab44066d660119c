"""The heads of HTTP/1.1 messages: read strictly, written in one pass."""

from typing import final

from router.http1.fields import Head

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

AUTHORIZATION_FIELD: int
CREDENTIAL_FIELDS: int

@final
class RequestHead(Head):
    @property
    def method(self) -> bytes: ...
    @property
    def target(self) -> bytes: ...
    @property
    def path(self) -> bytes: ...
    @property
    def query(self) -> bytes | None: ...
    @property
    def expects_continue(self) -> bool: ...
    @property
    def upgrade(self) -> bytes | None: ...
    def host(self) -> bytes | None: ...
    def render(
        self,
        lines: bytes,
        id: bytes = b"",
        forwarded_for: bytes = b"",
        length: int = -1,
        chunked: bool = False,
        drop: int = 0,
        target: bytes | None = None,
        method: bytes | None = None,
        proto: bytes = b"http",
        upgrade: bytes | None = None,
        body: bytes = b"",
    ) -> bytes: ...

@final
class ResponseHead(Head):
    @property
    def status(self) -> int: ...
    @property
    def reason(self) -> bytes: ...
    @property
    def upgrade(self) -> bytes | None: ...
    def render(
        self,
        lines: bytes,
        id: bytes = b"",
        keep_alive: bool = True,
        say_keep_alive: bool = False,
        chunked: bool = False,
        upgrade: bytes | None = None,
        body: bytes = b"",
    ) -> bytes: ...

def parse_request(raw: bytes) -> RequestHead: ...
def parse_response(raw: bytes) -> ResponseHead: ...
