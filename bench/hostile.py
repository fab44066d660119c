"""What others feel of clients that mean harm: a normal client's latency meanwhile.

    make build
    .venv/bin/python -m bench.hostile

Rounds alternate: nobody else there; 5,000 connections whose heads drip, a byte each a
second; the corpus of hostile requests, 200 a second. The normal client asks a simulated
worker for its version over one connection, over and over. Router, worker, attackers and
client are processes of their own; on a machine with few processors they wait for each
other, too, which the quiet rounds beside them show.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from time import monotonic, sleep

from tests.hostile.bodies import BODIES
from tests.hostile.crowd import MANY, Crowd, descriptors, rss
from tests.hostile.heads import HEADS
from tests.support.http import RawClient, ask
from tests.support.ports import free_port
from tests.support.router_process import RouterProcess

ASKED = b"GET /version HTTP/1.1\r\nHost: r\r\n\r\n"
ROUNDS = 5
SECONDS = 5.0
#: Seconds between two questions of the normal client.
PAUSE = 0.002
RATE = 200


# --- attackers, each in a process of its own ----------------------------------------


def quiet(port: int) -> None:
    """Does no harm."""
    _tell()


def dripping(port: int) -> None:
    """Thousands of heads that never end; who is given up comes again."""
    with descriptors(MANY):
        while True:
            with Crowd(port, MANY) as crowd:
                crowd.send(b"GET /x HTTP/1.1\r\nHost: r\r\nX: ")
                _tell()
                for _ in range(25):
                    # A hundredth of them at a time, so that it is a drip and no wave.
                    for first in range(100):
                        for each in crowd.sockets[first::100]:
                            with contextlib.suppress(OSError):
                                each.send(b"x")
                        sleep(0.01)


def corpus(port: int) -> None:
    """One hostile request after the other, each over a connection of its own."""
    cases = [case.data for cases in (HEADS | BODIES).values() for case in cases]
    began = monotonic()
    for number, data in enumerate(cycle(cases)):
        with contextlib.suppress(OSError), RawClient(port, timeout=0.05) as client:
            client.send(data)
            client.read_some()
        if number == 0:
            _tell()
        sleep(max(0.0, began + number / RATE - monotonic()))


ATTACKERS = {each.__name__: each for each in (quiet, dripping, corpus)}


def _tell() -> None:
    print("begun", flush=True)


@contextmanager
def attacked(port: int, kind: str) -> Iterator[None]:
    """Meanwhile somebody does this to the port."""
    command = [sys.executable, "-m", "bench.hostile", kind, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            yield
        finally:
            attacker.kill()


# --- the normal client ----------------------------------------------------------------


def latencies(port: int) -> list[float]:
    """Milliseconds of each of its requests."""
    found = []
    with RawClient(port) as client:
        end = monotonic() + SECONDS
        while (began := monotonic()) < end:
            client.send(ASKED)
            assert client.read_answer().status == 200
            found.append((monotonic() - began) * 1000)
            sleep(PAUSE)
    return found


@contextmanager
def worker() -> Iterator[str]:
    """A simulated worker; its URL."""
    port = free_port()
    command = [sys.executable, "-m", "router", "simulate", "--port", str(port)]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def main() -> None:
    """Prints percentiles and the router's memory of each round, and the medians."""
    found: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in ATTACKERS}
    with ExitStack() as stack:
        url = stack.enter_context(worker())
        router = stack.enter_context(RouterProcess("--worker-urls", url))
        router.wait_ready(1)
        ask(router.port, ASKED)
        for number in range(ROUNDS):
            for kind, figures in found.items():
                with attacked(router.port, kind):
                    cuts = statistics.quantiles(latencies(router.port), n=100)
                    figures.append((cuts[49], cuts[98], rss(router) / 1e6))
                show(str(number + 1), kind, figures[-1])
    for kind, figures in found.items():
        columns = zip(*figures, strict=True)
        show("median", kind, tuple(map(statistics.median, columns)))


def show(what: str, kind: str, figures: tuple[float, ...]) -> None:
    """Prints one line."""
    p50, p99, memory = figures
    print(f"{what:6} {kind:9} p50 {p50:6.2f} p99 {p99:6.2f} ms, {memory:5.0f} MB")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        ATTACKERS[sys.argv[1]](int(sys.argv[2]))
    else:
        main()
