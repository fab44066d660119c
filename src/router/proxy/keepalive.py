"""Noticing peers that are gone without a word: machines that lost power or network.

Owns the settings of TCP keep-alive. A request may wait for its answer for half an
hour, and a tunnel for ever: what nobody sends on cannot fail by itself.
"""

from __future__ import annotations

import socket
from typing import Protocol

#: Seconds without a byte until the system asks whether the peer is there.
_IDLE = 60
#: Seconds between two such questions, and how many go unanswered until it is not.
_INTERVAL = 15
_COUNT = 4

# macOS has another name for the first one.
_OPTIONS = (
    (getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None)), _IDLE),
    (getattr(socket, "TCP_KEEPINTVL", None), _INTERVAL),
    (getattr(socket, "TCP_KEEPCNT", None), _COUNT),
)


class Socket(Protocol):
    """What a transport shows of its socket."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def watch(tcp: Socket) -> None:
    """A peer that is gone ends the connection in two minutes.

    What is accepted from a listening socket is watched as that one is.
    """
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _OPTIONS:
        if option is not None:
            tcp.setsockopt(socket.IPPROTO_TCP, option, value)
