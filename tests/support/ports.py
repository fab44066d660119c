"""Free ports of the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. Whoever wants it should take it soon."""
    return free_run(1, host)


def free_run(count: int, host: str = "127.0.0.1") -> int:
    """The first of `count` ports in a row that are free now."""
    for _ in range(100):
        with ExitStack() as probes:
            first = 0
            try:
                for place in range(count):
                    probe = probes.enter_context(socket.socket())
                    probe.bind((host, first + place if first else 0))
                    first = first or probe.getsockname()[1]
            except (OSError, OverflowError):
                continue
            return first
    raise OSError(f"no {count} free ports in a row")
