"""Listening sockets: one per data process on each address.

Owns how they are bound. The system spreads connections over the sockets of a port
(SO_REUSEPORT). They are made, and kept, by the control process: a connection that waits
in one of them outlives the process that would have taken it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence


def bind(host: str, port: int, count: int, backlog: int) -> list[list[socket.socket]]:
    """`count` lists of sockets that listen at `host`, one for each of its addresses.

    `port` 0: any free one, the same for all. Raises OSError for an address that is
    taken.
    """
    infos = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    lists: list[list[socket.socket]] = [[] for _ in range(count)]
    try:
        for family, kind, proto, _, address in dict.fromkeys(infos):
            # Sockets that share a port would share it with another router, too: a
            # first one that does not finds out whether there is one.
            with _bound(family, kind, proto, (address[0], port, *address[2:])) as first:
                port = first.getsockname()[1]
            place = (address[0], port, *address[2:])
            for sockets in lists:
                sockets.append(_bound(family, kind, proto, place, shared=True))
        for sockets in lists:
            for listener in sockets:
                listener.listen(backlog)
    except BaseException:
        close(lists)
        raise
    return lists


def close(lists: Sequence[Sequence[socket.socket]]) -> None:
    """Closes them here; those who inherited them go on. Again: nothing."""
    for sockets in lists:
        for listener in sockets:
            listener.close()


def _bound(
    family: int,
    kind: int,
    proto: int,
    address: tuple[object, ...],
    *,
    shared: bool = False,
) -> socket.socket:
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener
