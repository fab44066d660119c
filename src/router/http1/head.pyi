from enum import IntEnum
from typing import final

from typing_extensions import disjoint_base

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

AUTHORIZATION_FIELD: int
CREDENTIAL_FIELDS: int

class Kind(IntEnum):
    OTHER = 0
    HOST = 1
    CONNECTION = 2
    KEEP_ALIVE = 3
    PROXY_CONNECTION = 4
    PROXY_AUTHORIZATION = 5
    TE = 6
    TRAILER = 7
    TRANSFER_ENCODING = 8
    UPGRADE = 9
    CONTENT_LENGTH = 10
    EXPECT = 11
    AUTHORIZATION = 12
    X_API_KEY = 13
    COOKIE = 14
    X_REQUEST_ID = 15
    X_FORWARDED_FOR = 16
    X_FORWARDED_PROTO = 17
    X_FORWARDED_HOST = 18
    X_ROUTER_PEER = 19
    X_ROUTER_PROVIDER = 20
    X_ROUTER_WORKER = 21
    X_DATA_PARALLEL_RANK = 22
    CONTENT_TYPE = 23

@disjoint_base
class Head:
    @property
    def minor(self) -> int: ...
    @property
    def content_length(self) -> int: ...
    @property
    def chunked(self) -> bool: ...
    @property
    def keep_alive(self) -> bool: ...
    def header(self, name: bytes) -> bytes | None: ...
    def first(self, names: tuple[bytes, ...]) -> bytes | None: ...
    def value(self, kind: int) -> bytes | None: ...
    def pairs(self) -> list[tuple[bytes, bytes]]: ...

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
        *,
        length: int = -1,
        chunked: bool = False,
        drop: int = 0,
        proto: bytes = b"http",
        upgrade: bytes | None = None,
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
        *,
        keep_alive: bool = True,
        say_keep_alive: bool = False,
        chunked: bool = False,
        upgrade: bytes | None = None,
    ) -> bytes: ...

def parse_request(raw: bytes) -> RequestHead: ...
def parse_response(raw: bytes) -> ResponseHead: ...
