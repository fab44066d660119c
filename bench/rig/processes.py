"""Processes of the rig: start and stop them, and read what CPU and memory they used.

Knows /proc and nothing of routers. CPU per request is the CPU time of a router's whole
process tree over the measured window, so children and threads count.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

#: The router has a core of its own; engines and load share the other.
ROUTER_CPU, LOAD_CPU = 0, 1
#: Longest time, in seconds, that the machine lock is held at once.
HOLD_S = 14.0

_TICK = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def tree(root: int) -> list[int]:
    """The process `root` and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def cpu_of(pids: Sequence[int]) -> tuple[float, float]:
    """(all, in the kernel) CPU seconds of these processes.

    Every thread counts, and children that were reaped. The total is exact; the split
    is by clock ticks.
    """
    total = kernel = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            user, system, child_user, child_system = map(int, _stat(pid)[11:15])
            total += user + system + child_user + child_system
            kernel += system + child_system
    return total / _TICK, kernel / _TICK


def cpu_by_process(pids: Sequence[int]) -> dict[int, float]:
    """CPU seconds of each of these processes, without its children."""
    seconds = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            user, system = map(int, _stat(pid)[11:13])
            seconds[pid] = (user + system) / _TICK
    return seconds


def cpu_of_threads(pids: Sequence[int]) -> float:
    """CPU seconds, to the nanosecond, of the threads that live now."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                schedstat = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text()
                total += int(schedstat.split()[0])
    return total / 1e9


def rss_mb(pids: Sequence[int]) -> float:
    """Resident memory of these processes, summed."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def threads(pids: Sequence[int]) -> int:
    """How many threads these processes have."""
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/task"))
    return count


def machine_cpu() -> dict[int, tuple[float, float]]:
    """Core -> seconds since boot that it was (busy, stolen)."""
    cores = {}
    for line in Path("/proc/stat").read_text().splitlines():
        if match := re.match(r"cpu(\d+) (.*)", line):
            v = list(map(int, match[2].split()))
            busy = v[0] + v[1] + v[2] + v[5] + v[6]
            cores[int(match[1])] = busy / _TICK, v[7] / _TICK
    return cores


def prefer(pids: Sequence[int], on: bool) -> None:
    """On a shared machine, put these processes before the rest while measured.

    Each is in a session, hence a scheduler autogroup, of its own.
    """
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text("-20" if on else "0")


def spawn(
    argv: Sequence[str],
    cpus: int | Sequence[int],
    output: IO[bytes] | int,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process on these cores; nothing started here outlives the rig."""
    cores = {cpus} if isinstance(cpus, int) else set(cpus)

    def child() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os.sched_setaffinity(0, cores)
        raise_descriptor_limit()

    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        preexec_fn=child,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes] | None, grace: float = 5.0) -> None:
    """End a process and what it started: asked first, then killed."""
    if process is None:
        return
    family = tree(process.pid)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid in family[1:]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def raise_descriptor_limit() -> None:
    """As many descriptors as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stat(pid: int) -> list[str]:
    # The name, in brackets, may hold spaces and brackets.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


class Lock:
    """The machine lock (same file and kind as flock(1)), for what must run alone."""

    def __init__(self, path: str) -> None:
        """`path` empty: no lock, and every use of it returns at once."""
        self._file = open(path, "a") if path else None  # noqa: SIM115, held for life
        self.waited = 0.0
        self.taken_at = 0.0

    def __enter__(self) -> Lock:
        if self._file:
            begin = time.time()
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.waited += time.time() - begin
        self.taken_at = time.time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._file:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def left(self) -> float:
        """Seconds for which the lock may still be held."""
        return HOLD_S - (time.time() - self.taken_at)
