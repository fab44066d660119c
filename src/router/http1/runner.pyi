"""Runs a request's coroutine inside the callbacks it waits for."""

from collections.abc import Callable, Coroutine, Generator
from typing import final

from typing_extensions import disjoint_base

#: C functions that the other compiled files use.
__pyx_capi__: dict[str, object]

@disjoint_base
class Source: ...

@final
class Wait:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def __await__(self) -> Generator[Wait]: ...
    def __iter__(self) -> Wait: ...
    def __next__(self) -> Wait: ...

@final
class Runner:
    def __init__(
        self,
        coroutine: Coroutine[None, None, None],
        finished: Callable[[BaseException | None], None],
    ) -> None: ...
    def start(self) -> None: ...
