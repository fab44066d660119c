"""The client's end of an HTTP/1.1 connection."""

from collections.abc import Callable, Coroutine
from typing import final

from router.http1.connection import Budget, Connection, Ticker
from router.http1.request import Request

@final
class Downstream(Connection):
    def __init__(
        self,
        serve: Callable[[Request], Coroutine[None, None, None]],
        refuse: Callable[[str, int, str], bytes],
        ticker: Ticker,
        budget: Budget,
        *,
        head_timeout: float,
        idle_timeout: float,
        write_timeout: float,
        max_body: int,
    ) -> None: ...
    @property
    def peer(self) -> str: ...
    @property
    def busy(self) -> bool: ...
    def drain(self) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool: ...
    def connection_lost(self, error: BaseException | None) -> None: ...
