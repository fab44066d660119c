"""Header fields of HTTP/1.1: found, known by kind, copied on."""

from enum import IntEnum

from typing_extensions import disjoint_base

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

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
