"""What can be wrong on an HTTP/1.1 connection.

Owns the errors of the two ends. Knows nothing of the router's own error tree: the
proxy translates these, once.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer sent what is not HTTP/1.1, or what two parsers could read differently.

    `status` is what a server should answer: 400, 413, 414 or 431.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class BadAnswer(ProtocolError):
    """A worker's answer is not HTTP/1.1."""


class ClientGone(Exception):
    """The client closed its connection: nobody is there to answer."""


class BodyOverBudget(Exception):
    """The bodies held at once, all together, are over the budget."""


class BodyTimeout(Exception):
    """The client stopped sending in the middle of a body."""


class UpstreamLost(Exception):
    """The connection to a worker ended before a whole answer head came.

    `silent` tells that not one byte of an answer was seen.
    """

    def __init__(self, message: str, *, silent: bool) -> None:
        super().__init__(message)
        self.silent = silent


class UpstreamTimeout(Exception):
    """The worker's answer did not begin before the deadline."""
