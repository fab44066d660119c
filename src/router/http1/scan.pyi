"""Finds members of a JSON object without parsing it."""

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

def members(
    body: bytes, names: tuple[bytes, ...], start: int = 0, end: int | None = None
) -> list[tuple[int, int] | None]: ...
