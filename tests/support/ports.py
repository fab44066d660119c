"""Free ports of the loopback interface."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# Below what Linux (32768 up) and macOS (49152 up) give to outgoing connections: there a
# port is often still held by a closed connection, or is taken before it is used.
PORTS = range(10_000, 20_000)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. Whoever wants it should take it soon."""
    return free_run(1, host)


def free_run(count: int, host: str = "127.0.0.1") -> int:
    """The first of `count` ports in a row that are free now."""
    for _ in range(100):
        first = random.choice(PORTS)
        with ExitStack() as probes:
            try:
                for port in range(first, first + count):
                    probes.enter_context(socket.socket()).bind((host, port))
            except OSError:
                continue
            return first
    raise OSError(f"no {count} free ports in a row")
