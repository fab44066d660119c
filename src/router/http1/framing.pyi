"""Where a body ends: Content-Length, chunks, or the end of the connection."""

from typing import final

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

@final
class Framing:
    def __init__(self, length: int = -1, chunked: bool = False) -> None: ...
    @property
    def done(self) -> bool: ...
    def consume(self, data: bytes, payload: list[bytes] | None = None) -> int: ...
