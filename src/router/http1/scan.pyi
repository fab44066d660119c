"""Finds members of a JSON object without parsing it."""

def members(
    body: bytes, names: tuple[bytes, ...], start: int = 0, end: int | None = None
) -> list[tuple[int, int] | None]: ...
