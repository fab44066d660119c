"""How long a large fleet takes to register over HTTP, and what memory it takes.

    make build
    ROUTER_CMD=$PWD/.venv/bin/router .venv/bin/python -m bench.joining [--workers 10000]

The fleet is the rig's mock. It is registered through POST /workers one after the other
over one connection, and then, with another router, over 16 connections at once. Memory
is the router's RSS once all are ready, beyond that of a router of 16 workers.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.rig import processes
from bench.rig.__main__ import build_mock
from bench.rig.engines import PORT, Engines
from bench.rig.processes import LOAD_CPU, ROUTER_CPU

#: Workers of the router that memory is compared with.
FEW = 16
#: Seconds until all workers are ready.
PATIENCE = 120.0


def main() -> int:
    """Prints the figures; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16])
    options = parser.parse_args()
    build_mock()
    os.sched_setaffinity(0, {LOAD_CPU})
    with tempfile.TemporaryDirectory() as directory:
        engines = Engines(options.workers, 1)
        try:
            engines.start(Path(directory))
            processes.prefer([os.getpid(), *engines.pids()], True)
            urls = [f"http://{address}" for address in engines.addresses]
            with router() as process:
                few = join(process, urls[:FEW], 1)
            for connections in options.connections:
                with router() as process:
                    rss = join(process, urls, connections)
                each = (rss - few) * 1000 / (len(urls) - FEW)
                print(f"{each:.1f} KB of memory for each beyond {FEW}", flush=True)
        finally:
            engines.stop()
    return 0


@contextmanager
def router() -> Iterator[subprocess.Popen[bytes]]:
    """A router without workers."""
    argv = [*shlex.split(os.environ["ROUTER_CMD"]), "serve", "--port", str(PORT)]
    process = processes.spawn(argv, ROUTER_CPU, subprocess.DEVNULL)
    processes.prefer([process.pid], True)
    try:
        until(lambda: get("/liveness") is not None, 20)
        yield process
    finally:
        processes.stop(process)


def join(
    process: subprocess.Popen[bytes], urls: Sequence[str], connections: int
) -> float:
    """Registers all and waits until they are ready; the router's RSS in MB."""
    began, cpu = time.monotonic(), processes.cpu_of([process.pid])[0]
    threads = [
        threading.Thread(target=post_all, args=(urls[place::connections],))
        for place in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    until(lambda: ready() == len(urls), PATIENCE)
    all_ready = time.monotonic() - began
    time.sleep(5.0)  # until connections that are idle are gone
    rss = processes.rss_mb([process.pid])
    spent = processes.cpu_of([process.pid])[0] - cpu
    print(
        f"{len(urls):,} workers, {connections} at once: registered in {took:.1f} s, "
        f"all ready after {all_ready:.1f} s; CPU {spent:.1f} s, RSS {rss:.1f} MB",
        flush=True,
    )
    return rss


def post_all(urls: Sequence[str]) -> None:
    """POST /workers for each, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    for url in urls:
        connection.request("POST", "/workers", json.dumps({"url": url}))
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 201, body
    connection.close()


def ready() -> int:
    """Workers that are ready."""
    body = get("/readiness")
    return 0 if body is None else int(json.loads(body)["ready_workers"])


def get(path: str) -> bytes | None:
    """The body of an answer; None: there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    except OSError:
        return None
    finally:
        connection.close()


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Waits until it holds; TimeoutError after so long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
