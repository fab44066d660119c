"""How long GET /liveness takes, asked 50 times a second from a process of its own.

    python -m bench.streams.liveness PORT SECONDS

Prints milliseconds as a JSON list. Each question has a connection of its own, so that
all processes of the router are asked.
"""

from __future__ import annotations

import json
import sys
import time

from bench.rig.http import get

_PAUSE = 0.02


def main() -> None:
    """Asks, and prints."""
    port, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    times = list[float]()
    while (begin := time.monotonic()) < end:
        if get(port, "/liveness", 30).status != 200:
            raise SystemExit("/liveness is not 200")
        times.append((time.monotonic() - begin) * 1e3)
        time.sleep(_PAUSE)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
