"""`router simulate` as a process, and the parts of the demo that need no router."""

from __future__ import annotations

import asyncio
import io
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import click
import pytest
from rich.console import Console

from router.simulate import SimulatedFleet, Switches
from router.simulate.command import adapters_by_place
from router.simulate.traffic import Counts, Traffic
from router.simulate.view import Moment, line, screen
from tests.support.http import RawClient, ask, post
from tests.support.ports import free_run

GET_MODELS = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"


@contextmanager
def simulate(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """`router simulate` with these flags; ended by SIGTERM, which must give 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "router", "simulate", *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def first_lines(process: subprocess.Popen[str], count: int) -> list[list[str]]:
    assert process.stdout is not None
    return [process.stdout.readline().split() for _ in range(count)]


def wait_until_up(port: int) -> None:
    for _ in range(500):
        try:
            RawClient(port).close()
        except ConnectionRefusedError:
            sleep(0.01)
        else:
            return
    raise TimeoutError(port)


def test_simulate_prints_its_workers_and_serves_until_sigterm() -> None:
    first = free_run(3)
    flags = ("--model", "a,a2", "--model", "b", "--lora", "sql@0", "--ttft-ms", "0")
    with simulate("--workers", "3", "--port", str(first), *flags) as process:
        assert first_lines(process, 3) == [
            [f"http://127.0.0.1:{first}", "a", "a2"],
            [f"http://127.0.0.1:{first + 1}", "b"],
            [f"http://127.0.0.1:{first + 2}", "a", "a2"],
        ]
        wait_until_up(first)
        assert b'"id":"sql"' in ask(first, GET_MODELS).body
        body = b'{"model": "sql", "prompt": "hi"}'
        assert ask(first, post("/v1/completions", body)).status == 200


def test_simulate_stands_in_for_thousands_of_workers() -> None:
    """Each one takes a descriptor; as many as there are, up to 4,000."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 4000 if hard == resource.RLIM_INFINITY else min(4000, hard - 100)
    with simulate("--workers", str(count), "--port", "0") as process:
        urls = [line[0] for line in first_lines(process, count)]
        assert len(set(urls)) == count
        for url in (urls[0], urls[-1]):
            port = int(url.rpartition(":")[2])
            wait_until_up(port)
            assert b'"id":"simulated"' in ask(port, GET_MODELS).body


def test_simulate_refuses_connections_until_its_delay_is_over() -> None:
    with simulate("--port", "0", "--start-delay-secs", "60") as process:
        ((url, _),) = first_lines(process, 1)
        with pytest.raises(ConnectionRefusedError):
            RawClient(int(url.rpartition(":")[2]))


def test_adapters_go_to_every_worker_or_to_the_one_of_a_place() -> None:
    assert adapters_by_place(("a", "b@1"), 2) == {0: ["a"], 1: ["a", "b"]}


@pytest.mark.parametrize("value", ["a@2", "a@x", "a@-1"])
def test_an_adapter_for_no_worker_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter):
        adapters_by_place((value,), 2)


async def run_traffic(traffic: Traffic, enough: int) -> Counts:
    """Lets the traffic run until so many turns have an outcome."""
    running = asyncio.create_task(traffic.run())
    counts = traffic.counts
    async with asyncio.timeout(10):
        while counts.answered + counts.failed + counts.cut < enough:
            await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return counts


async def test_traffic_counts_what_came_back_whole() -> None:
    async with SimulatedFleet(models=["m"]) as fleet:
        traffic = Traffic(fleet[0].url, ["m"], clients=4, pause_secs=0)
        counts = await run_traffic(traffic, 20)
    assert (counts.failed, counts.cut) == (0, 0)
    assert counts.by_model == {"m": counts.answered}


async def test_traffic_tells_a_refusal_from_a_stream_that_was_cut() -> None:
    async with SimulatedFleet(models=["m"], switches=Switches(drain=True)) as fleet:
        refused = await run_traffic(Traffic(fleet[0].url, ["m"], clients=1), 1)
        fleet[0].switch(drain=False, reset_after_tokens=1)
        cut = await run_traffic(Traffic(fleet[0].url, ["m"], clients=1), 1)
    assert (refused.answered, refused.cut, refused.failed >= 1) == (0, 0, True)
    assert refused.last_failure.startswith("500 ")
    assert (cut.answered, cut.failed, cut.cut >= 1) == (0, 0, True)


WORKERS: list[dict[str, Any]] = [
    {"url": "http://a:1", "status": "ready", "models": ["m", "sql"], "load": 2},
    {"url": "http://b:1", "status": "pending", "models": [], "load": 0},
]
MOMENT = Moment(
    seconds=7.2,
    workers=WORKERS,
    up={"http://a:1": True, "http://b:1": False},
    taken={"http://a:1": 41},
    notes={"http://b:1": "comes late"},
    counts=Counts(answered=40, failed=1, turns=10, kept=9),
)


def test_a_line_sums_up_the_fleet_and_the_traffic() -> None:
    assert line(MOMENT).strip() == (
        "7 s  ready 1/2  in flight 2  answered 40  failed 1  "
        "streams cut by a death 0  sessions kept their worker 90%"
    )


def test_the_screen_shows_every_worker_with_its_models_load_and_note() -> None:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown_text:
        console.print(screen(MOMENT))
    text = shown_text.get()
    for shown in ("a:1", "m sql", "41", "pending", "down", "comes late"):
        assert shown in text
