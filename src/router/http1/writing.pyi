"""What is written at the end of every head: framing and the blank line."""

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]
