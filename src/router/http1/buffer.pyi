"""Bytes that come in pieces and are wanted whole."""

from typing import final

@final
class Buffer:
    @property
    def size(self) -> int: ...
    def append(self, data: bytes) -> None: ...
    def pop(self) -> bytes: ...
