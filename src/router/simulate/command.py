"""`router simulate` and `router demo`: flags in, a fleet or a demo until told to end.

Owns the two commands and the end by signal. The flags of `simulate` are vLLM's names
where vLLM has the flag.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import click
import uvloop

from .demo import Demo, DemoFailed
from .fleet import SimulatedFleet
from .switches import Switches

#: Descriptors that many workers with many connections may need.
_DESCRIPTORS = 1 << 20
_POSITIVE = click.FloatRange(min=0)
_COUNT = click.IntRange(min=1)
_PORT = click.IntRange(0, 65535)


@contextmanager
def stop_by_signal() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set, while the block runs."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def raise_descriptor_limit() -> None:
    """To what the system allows this user, at most to a million."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@click.command()
@click.option("--workers", default=1, show_default=True, type=_COUNT, help="How many.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option(
    *("--port", "first_port"),
    default=8100,
    show_default=True,
    type=_PORT,
    help="Of the first worker; the others follow. 0: free ones.",
)
@click.option(
    *("--model", "models"),
    multiple=True,
    default=("simulated",),
    show_default=True,
    help="Served model. Several: workers take them in turn. A,B: two names of one.",
)
@click.option(
    *("--lora", "loras"),
    multiple=True,
    metavar="NAME[@WORKER]",
    help="An adapter loaded at the start, on every worker or on the one of that place.",
)
@click.option(
    "--start-delay-secs",
    default=0.0,
    type=_POSITIVE,
    help="Connections are refused until then.",
)
@click.option("--ttft-ms", default=20.0, show_default=True, type=_POSITIVE)
@click.option("--token-ms", default=5.0, show_default=True, type=_POSITIVE)
@click.option(
    "--jitter",
    default=0.1,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share by which each delay varies.",
)
@click.option(
    "--tokens", default=16, show_default=True, type=_COUNT, help="Of an answer."
)
@click.option("--max-num-seqs", default=256, show_default=True, type=_COUNT)
@click.option(
    "--max-num-queued-reqs",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Requests that may wait; beyond it 503. 0: no limit.",
)
@click.option("--max-model-len", default=131072, show_default=True, type=_COUNT)
@click.option("--data-parallel-size", default=1, show_default=True, type=_COUNT)
@click.option("--api-key", default=None, help="Guards /v1 and the like, as vLLM's.")
def simulate(
    workers: int,
    host: str,
    first_port: int,
    models: tuple[str, ...],
    loras: tuple[str, ...],
    start_delay_secs: float,
    ttft_ms: float,
    token_ms: float,
    jitter: float,
    tokens: int,
    max_num_seqs: int,
    max_num_queued_reqs: int,
    max_model_len: int,
    data_parallel_size: int,
    api_key: str | None,
) -> None:
    """Run a fleet of simulated vLLM workers until SIGTERM or Ctrl-C.

    Each worker takes failure switches at POST /simulate, for instance
    {"drain": true}, {"hang": true}, {"token_ms": 50}, {"models": "empty"},
    {"outage": {"kind": "crash", "secs": 5}}; GET /simulate lists them all.
    """
    raise_descriptor_limit()
    switches = Switches(
        ttft_ms=ttft_ms, token_ms=token_ms, jitter=jitter, tokens=tokens
    )
    try:
        fleet = SimulatedFleet(
            workers,
            models=[names.split(",") for names in models],
            host=host,
            first_port=first_port,
            loras=adapters_by_place(loras, workers),
            dp_size=data_parallel_size,
            max_num_seqs=max_num_seqs,
            max_num_queued_reqs=max_num_queued_reqs,
            max_model_len=max_model_len,
            api_key=api_key,
            switches=switches,
        )
    except OSError as problem:
        raise click.ClickException(str(problem)) from problem
    uvloop.run(_serve(fleet, start_delay_secs))


async def _serve(fleet: SimulatedFleet, start_delay_secs: float) -> None:
    with stop_by_signal() as stop:
        for worker in fleet:
            worker.start_after(start_delay_secs)
            click.echo(f"{worker.url} {' '.join(worker.state.served)}")
        await stop.wait()
    await fleet.close()


def adapters_by_place(loras: tuple[str, ...], workers: int) -> dict[int, list[str]]:
    """`NAME[@WORKER]` values as adapters by the place of their worker.

    Raises `click.BadParameter` for a place that is not in the fleet.
    """
    found: dict[int, list[str]] = {place: [] for place in range(workers)}
    for value in loras:
        name, at, place = value.rpartition("@")
        if not at:
            for adapters in found.values():
                adapters.append(value)
        elif place.isdecimal() and int(place) < workers:
            found[int(place)].append(name)
        else:
            raise click.BadParameter(f"{value}: no worker {place}", param_hint="--lora")
    return found


@click.command()
@click.option("--workers", default=6, show_default=True, type=click.IntRange(min=3))
@click.option("--clients", default=24, show_default=True, type=_COUNT)
@click.option(
    "--port", default=0, type=_PORT, help="Of the router. Default: 30000 or a free one."
)
@click.option("--policy", default="consistent_hash", show_default=True)
@click.option(
    "--seconds", default=None, type=_POSITIVE, help="End by itself after so long."
)
def demo(
    workers: int, clients: int, port: int, policy: str, seconds: float | None
) -> None:
    """Show a router at work: simulated workers, steady chats, a live table.

    One worker comes late, one dies and returns, again and again. Ctrl-C ends all.
    """
    raise_descriptor_limit()
    try:
        uvloop.run(_demonstrate(Demo(workers, clients, port, policy), seconds))
    except DemoFailed as problem:
        raise click.ClickException(str(problem)) from problem


async def _demonstrate(show: Demo, seconds: float | None) -> None:
    with stop_by_signal() as stop:
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, stop.set)
        await show.run(stop)
