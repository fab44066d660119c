"""The mock fleet: engines in as few processes as their descriptors allow.

Owns the processes of mockd and their addresses. One process has the ports from
`BASE_PORT` on at 127.0.0.1, the next one those at 127.0.0.2, and so on, so that a fleet
of 10,000 fits into few ports. Knows nothing of routers.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.rig import processes
from bench.rig.http import get
from bench.rig.processes import LOAD_CPU

HERE = Path(__file__).resolve().parent
#: The mock's first worker, the router, the router's metrics.
BASE_PORT, PORT, METRICS_PORT = (
    int(port) for port in os.environ.get("BENCH_PORTS", "21000,28080,28090").split(",")
)
#: Engines of one process at most.
MOST = 2500
#: Seconds until the engines of a process listen.
_PATIENCE = 20.0


class Engines:
    """A fleet of `workers` engines that serve `models` models in equal blocks."""

    def __init__(self, workers: int, models: int, at_least: int = 1) -> None:
        """`at_least`: processes, where connections need more of them than engines."""
        self._models = models
        count = max(at_least, math.ceil(workers / MOST))
        edges = [workers * k // count for k in range(count + 1)]
        self._blocks = [range(*edge) for edge in pairwise(edges)]
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def addresses(self) -> list[str]:
        """HOST:PORT of each engine, those of a model together."""
        return [
            f"{_host(number)}:{BASE_PORT + place}"
            for number, block in enumerate(self._blocks)
            for place in range(len(block))
        ]

    def start(self, directory: Path) -> None:
        """Returns once all listen; logs go to `directory`. Raises OSError."""
        for number, block in enumerate(self._blocks):
            argv = [str(HERE / "mockd"), "-a", _host(number), "-b", str(BASE_PORT)]
            argv += ["-n", str(len(block)), "-m", str(self._models)]
            argv += ["-f", str(block.start), "-t", str(self._blocks[-1].stop)]
            with (directory / f"mock-{number}.log").open("wb") as log:
                self._started.append(processes.spawn(argv, LOAD_CPU, log))
        end = time.time() + _PATIENCE
        for number in range(len(self._blocks)):
            while not self._listens(number):
                if time.time() > end:
                    raise OSError("the mock engines do not listen")
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends them."""
        for process in self._started:
            processes.stop(process)

    def pids(self) -> list[int]:
        """Their processes."""
        return [process.pid for process in self._started]

    def failure(self) -> str | None:
        """What became of those that ended by themselves."""
        codes = [code for p in self._started if (code := p.poll()) is not None]
        return f"mock exited with {codes[0]}" if codes else None

    def set(self, *, chunks: int, gap_us: int, delay_us: int) -> None:
        """How they answer: chunks of a stream, gap between two, first byte's delay."""
        self._ask(f"/__set?chunks={chunks}&gap_us={gap_us}&delay_us={delay_us}")

    def reset(self) -> None:
        """Counts from zero."""
        self._ask("/__reset")

    def stats(self) -> dict[str, Any]:
        """What they have counted, all together."""
        return summed([answer.json() for answer in self._ask("/__stats")])

    def _ask(self, path: str) -> list[Any]:
        hosts = map(_host, range(len(self._blocks)))
        return [get(BASE_PORT, path, host=host) for host in hosts]

    def _listens(self, number: int) -> bool:
        try:
            return get(BASE_PORT, "/health", host=_host(number)).status == 200
        except OSError:
            return False


def summed(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """Numbers added up, lists joined, counts by name added up by name."""
    whole = dict[str, Any]()
    for name, first in stats[0].items():
        values = [each[name] for each in stats]
        if isinstance(first, dict):
            whole[name] = dict(sum(map(Counter, values), Counter[str]()))
        elif isinstance(first, list):
            whole[name] = [item for value in values for item in value]
        else:
            whole[name] = sum(values)
    return whole


def _host(number: int) -> str:
    return f"127.0.0.{number + 1}"
