"""Where a body ends: Content-Length, chunks, or the end of the connection."""

from typing import final

from router.http1.buffer import Buffer

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

@final
class Framing:
    def __init__(self, length: int = -1, chunked: bool = False) -> None: ...
    @property
    def done(self) -> bool: ...
    def consume(self, data: bytes, payload: Buffer | None = None) -> int: ...
