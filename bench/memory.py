"""Whether memory stays flat: a router's RSS before and after 100,000 requests.

    make build
    .venv/bin/python -m bench.memory

Plain answers, large bodies and streams take turns, before the rig's mock fleet; what
is reached in the first two turns is the warm-up. Exits 1 where it grew by 5 MB or
more. Needs gcc and wrk, as the rig does.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.rig import processes
from bench.rig.__main__ import build_mock
from bench.rig.measure import measure
from bench.rig.running import Running
from bench.rig.scenarios import Row

REQUESTS = 100_000
MOST_MB = 5.0
ROWS = (
    Row("300 B", 64, 3, "size=300"),
    Row("64 KB", 64, 2, "size=65536"),
    Row("streams", 64, 2, "size=300 stream=1"),
    Row("sessions", 512, 2, "size=300 keys=1000", key=True),
)
#: Turns at most: on a machine so slow the answer is that it is too slow.
MOST_TURNS = 30


def main() -> int:
    """Prints RSS after each turn; the exit code."""
    build_mock()
    with (
        tempfile.TemporaryDirectory() as directory,
        Running(
            "fleetrouter", "rr", 16, 1, directory=Path(directory), health_s=10
        ) as system,
    ):
        system.preflight()
        for _ in range(2):
            _turn(system)
        start, requests = processes.rss_mb(system.family()), 0
        print(f"after the warm-up: {start:.1f} MB")
        for _ in range(MOST_TURNS):
            requests += _turn(system)
            now = processes.rss_mb(system.family())
            print(f"after {requests:,} requests: {now:.1f} MB")
            if requests >= REQUESTS:
                print(f"growth: {now - start:.1f} MB (at most {MOST_MB:g})")
                return int(now - start >= MOST_MB)
    print(f"only {requests:,} requests in {MOST_TURNS} turns")
    return 1


def _turn(system: Running) -> int:
    """A run of each kind; how many requests were answered."""
    answered = 0
    for row in ROWS:
        figures = measure(system, row)
        if figures["errors"]:
            raise SystemExit(f"{row.label}: {figures['errors']} errors")
        answered += figures["requests"]
    return answered


if __name__ == "__main__":
    sys.exit(main())
