"""Addresses of host names, remembered for a short while.

Owns the look-ups in flight: one a name, however many probes wait for it, so that a
name server that is slow is not asked hundreds of times a second.
"""

from __future__ import annotations

import asyncio
import socket

#: Seconds an answer is good for: short, since names move.
REMEMBER_SECS = 10.0
#: Names remembered at most.
MOST_NAMES = 20_000


class Names:
    """Look-ups of the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._asking: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Addresses to connect to, best first. Raises OSError for an unknown name."""
        if _is_address(host):
            return [host]
        known = self._known.get(host)
        if known is not None and known[0] > self._loop.time():
            return known[1]
        asking = self._asking.get(host)
        if asking is None:
            asking = self._loop.create_task(self._ask(host, port))
            self._asking[host] = asking
            asking.add_done_callback(lambda done: self._asked(host, done))
        # Who gives up waiting does not end the look-up for the others.
        return await asyncio.shield(asking)

    async def _ask(self, host: str, port: int) -> list[str]:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if len(self._known) >= MOST_NAMES:
            self._known.clear()
        self._known[host] = (self._loop.time() + REMEMBER_SECS, addresses)
        return addresses

    def _asked(self, host: str, asking: asyncio.Future[list[str]]) -> None:
        del self._asking[host]
        if not asking.cancelled():
            asking.exception()  # seen, also when nobody waits any more


def _is_address(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        return False
    return True
