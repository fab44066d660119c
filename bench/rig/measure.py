"""One measured window: a run of wrk against a running system, and what it cost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from typing import Any

from bench.rig import processes
from bench.rig.engines import HERE
from bench.rig.processes import LOAD_CPU, prefer
from bench.rig.running import Failed, Running
from bench.rig.scenarios import Row

#: Router CPU, in seconds per 0.1 s, under which it counts as quiet.
_QUIET = 0.03
#: Share of a core from which one of a router's processes counts as one that serves.
_BUSY = 0.02


def measure(system: Running, row: Row) -> dict[str, Any]:
    """The figures of one row; the caller holds the machine lock.

    Raises Failed where wrk gave no result or the router died.
    """
    engines = system.engines
    engines.set(chunks=row.chunks, gap_us=row.gap_us, delay_us=row.delay_us)
    engines.reset()
    router, mock = system.family(), engines.pids()
    prefer(router + mock, True)
    try:
        begin = _Reading(router, mock)
        wrk, wrk_cpu = _run_wrk(system, row, row.seconds)
        end = _Reading(router, mock)
    finally:
        prefer(router + mock, False)
    if system.router and system.router.poll() is not None:
        raise Failed(f"router died with {system.router.returncode}")
    mock_stats = engines.stats()
    return {
        **_of_wrk(wrk),
        **_of_machine(begin, end, wrk_cpu),
        **_of_router(begin, end, wrk["requests"], row, mock_stats),
        **_of_mock(mock_stats),
        "shares": _shares(begin, end),
        "rss_mb": processes.rss_mb(router),
        "threads": processes.threads(router),
    }


class _Reading:
    """CPU times at one moment."""

    def __init__(self, router: list[int], mock: list[int]) -> None:
        self.machine = processes.machine_cpu()
        self.router, self.router_kernel = processes.cpu_of(router)
        self.by_process = processes.cpu_by_process(router)
        self.mock, _ = processes.cpu_of(mock)
        self.each = {pid: processes.cpu_of([pid])[0] for pid in router}
        self.time = time.time()


def _of_wrk(wrk: dict[str, Any]) -> dict[str, Any]:
    failures = ("status", "timeout", "connect", "read", "write")
    return {
        "requests": wrk["requests"],
        "rps": wrk["requests"] / (wrk["duration_us"] / 1e6),
        "p50_us": wrk["p50"],
        "p90_us": wrk["p90"],
        "p99_us": wrk["p99"],
        "p999_us": wrk["p999"],
        "max_us": wrk["max"],
        "mean_us": wrk["mean"],
        "errors": sum(wrk[kind] for kind in failures),
    }


def _of_machine(begin: _Reading, end: _Reading, wrk_cpu: float) -> dict[str, Any]:
    wall = end.time - begin.time
    router, mock = end.router - begin.router, end.mock - begin.mock
    cores = sorted(begin.machine)
    busy = [end.machine[core][0] - begin.machine[core][0] for core in cores]
    stolen = [end.machine[core][1] - begin.machine[core][1] for core in cores]
    shares = [
        (seconds - begin.by_process.get(pid, 0.0)) / wall
        for pid, seconds in end.by_process.items()
    ]
    return {
        "router_cores": router / wall,
        "process_cores": [share for share in sorted(shares) if share >= _BUSY],
        "load_cores": (mock + wrk_cpu) / wall,
        "foreign_cores": (sum(busy) - router - mock - wrk_cpu) / wall,
        "steal": sum(stolen) / wall,
        "core_busy": [seconds / wall for seconds in busy],
    }


def _of_router(
    begin: _Reading, end: _Reading, requests: int, row: Row, stats: dict[str, Any]
) -> dict[str, Any]:
    cpu = end.router - begin.router
    kernel = end.router_kernel - begin.router_kernel
    chunks = stats["chunks"] if row.stream else 0
    # By chunks, streams that are still open at the end count with their part.
    count = chunks / row.chunks if chunks else requests
    return {
        "cpu_us": cpu / count * 1e6 if count else None,
        "sys_us": kernel / count * 1e6 if count else None,
        "chunk_us": cpu / chunks * 1e6 if chunks else None,
    }


def _shares(begin: _Reading, end: _Reading) -> list[float]:
    """What part of the router's CPU time each of its processes had, the least first."""
    cpu = end.router - begin.router
    each = [end.each[pid] - begin.each[pid] for pid in end.each]
    return sorted(seconds / cpu for seconds in each) if cpu else []


def _of_mock(stats: dict[str, Any]) -> dict[str, Any]:
    used = [count for count in stats["per_port"] if count]
    served = stats["chat"] + stats["streams"]
    each = (lambda value: value / served) if served else (lambda value: None)
    return {
        "chunks": stats["chunks"],
        "workers_used": stats["workers_used"],
        "spread": max(used) / (sum(used) / len(used)) if used else None,
        "upstream_conns": stats["accepted"],
        "conns_per_1k": each(1000 * stats["accepted"]),
        "body_in": each(stats["body_bytes"]),
        "chunked_requests": stats["chunked_requests"],
        "polls_per_req": each(stats["health"] + stats["other"]),
        "unknown": stats["unknown"],
        "tokenize_per_req": each(stats["tokenized"]),
    }


def _run_wrk(system: Running, row: Row, seconds: int) -> tuple[dict[str, Any], float]:
    """wrk's result, and the CPU seconds that it took itself."""
    options = row.options.split()
    if system.n_models > 1 and not row.one_model:
        options.append(f"models={system.n_models}")
    if row.key and system.spec.key:
        options.append(f"header={system.spec.key}")
    script = HERE / ("chat_paced.lua" if row.think_ms else "chat.lua")
    argv = ["wrk", "-t1", f"-c{row.connections}", f"-d{seconds}s", "--timeout", "30s"]
    argv += ["-s", str(script), f"http://127.0.0.1:{system.port}", "--", *options]
    env = {"CHAT_LUA": str(HERE / "chat.lua"), "THINK_MS": str(row.think_ms)}
    process = processes.spawn(argv, LOAD_CPU, subprocess.PIPE, env=env)
    prefer([process.pid], True)
    assert process.stdout is not None
    with process.stdout:
        text = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    match = re.search(r"RESULT (\{.*\})", text)
    if not match:
        raise Failed("wrk: " + text[-300:])
    return json.loads(match[1]), usage.ru_utime + usage.ru_stime


def warm(system: Running) -> None:
    """A second of load that is not measured."""
    _run_wrk(system, Row("warm", 64, 1, "size=300"), 1)


def settle(system: Running, limit: float) -> bool:
    """Wait until the router has done with what an earlier run left behind.

    Some routers go on working for clients that are gone. Returns whether it is quiet;
    `limit` in seconds.
    """
    if not system.router:
        return True
    family, end = system.family(), time.time() + limit
    while time.time() < end:
        before = processes.cpu_of_threads(family)
        time.sleep(0.1)
        if processes.cpu_of_threads(family) - before < _QUIET:
            return True
    return False
