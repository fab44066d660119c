"""How heads are written: into one piece of memory, from front to back."""

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]
