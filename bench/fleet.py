"""How long a change of a large fleet holds the event loop, by kind of change.

    make build
    .venv/bin/python -m bench.fleet [--workers 10000] [--fleet alike adapters own]

The registry and all that follows it in a router run in this process, as `router serve`
wires them; only the servers are missing, every probe and list is answered at once. A
turn of the loop is all that runs between two looks at the sockets: its length is what
a request may wait for. Turns are told in CPU time of the thread, which other programs
do not stretch, garbage collections included.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import uvloop
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from router._core import Index, Slots
from router.admin import build_admin
from router.app.collector import Collector
from router.fleet import journal
from router.fleet.client import Answer, Client
from router.fleet.health import Health
from router.fleet.models import ModelReader
from router.fleet.registry import Registry
from router.fleet.target import Target
from router.fleet.worker import Endpoint, ModelCard, Patch, Registration, Worker
from router.observe.metrics import Metrics
from router.proxy.hold import HoldQueue

#: Changes of a kind in a burst.
BURST = 200
#: Models of a worker that has very many; ranks of a server. The larger ones are as many
#: as the router takes.
MANY = (1_000, 10_000)
RANKS = (256, 4096)


@dataclass(slots=True)
class Turns:
    """The lengths of the loop's turns, in seconds of CPU time."""

    longest: float = 0.0
    collecting: float = 0.0
    _last: float = 0.0
    _on: bool = False
    _began: float = field(default=0.0)

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        if self._on:
            asyncio.get_running_loop().call_soon(self._turn)

    def _collect(self, phase: str, _: object) -> None:
        now = time.thread_time()
        if phase == "start":
            self._began = now
        else:
            self.collecting = max(self.collecting, now - self._began)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Looks at every turn until the block ends."""
        self.longest = self.collecting = 0.0
        self._last, self._on = time.thread_time(), True
        asyncio.get_running_loop().call_soon(self._turn)
        gc.callbacks.append(self._collect)
        try:
            yield
        finally:
            self._on = False
            gc.callbacks.remove(self._collect)


class Fleet:
    """A registry, what follows it, and the workers in it."""

    def __init__(self, registry: Registry, admin: web.Application) -> None:
        self.registry = registry
        self.admin = admin
        self.made = 0

    async def register(self, *models: str, dp_size: int | None = None) -> Worker:
        """One worker more, up and with its list read."""
        self.made += 1
        url = f"http://10.{self.made >> 16}.{self.made >> 8 & 255}.{self.made & 255}"
        registration = Registration(f"{url}:8000", models=models, dp_size=dp_size)
        workers = self.registry.register(registration).workers
        await self.registry.settled()
        return workers[0]


class Up(Client):
    """Every server is up."""

    async def get(self, endpoint: Endpoint, path: str, **how: object) -> Answer:
        return Answer(200)


class Lists(ModelReader):
    """Lists come from the benchmark, not from servers."""

    def checked(self, target: Target) -> None:
        pass


@asynccontextmanager
async def empty() -> AsyncIterator[Fleet]:
    """The control plane of a router without workers."""
    loop = asyncio.get_running_loop()
    index = Index(Slots())
    registry = Registry(index, scheduler=loop.call_later)
    registry.subscribe(journal.write)

    def load_of(worker: Worker) -> int:
        return index.slots.load_of(worker.slot)

    metrics = Metrics(registry, load_of, "0")
    async with aiohttp.ClientSession() as session:
        client = Up()
        models = Lists(registry, client)
        health = Health(registry, models, client, interval=1e6)
        hold = HoldQueue(size=1024, timeout=0)
        registry.subscribe(lambda _: hold.wake())
        admin = build_admin(
            registry,
            metrics,
            session,
            load_of,
            admin_api_key=None,
            worker_api_key=None,
            min_ready_workers=1,
            worker_startup_timeout=0,
            dp_size=1,
            draining=lambda: False,
        )
        yield Fleet(registry, admin)
        await health.stop()
        await models.stop()


def names_of(fleet: str, number: int) -> tuple[str, ...]:
    """What a worker of this kind of fleet serves."""
    return {
        "alike": ("base",),
        "adapters": ("base", f"lora-{number}"),
        "own": (f"model-{number}",),
    }[fleet]


def cards(*names: str) -> list[ModelCard]:
    """A list with these models; those named lora-... are adapters."""
    return [
        ModelCard(name, parent="base" if name.startswith("lora") else None)
        for name in names
    ]


Change = Callable[[Fleet, Worker, int], Awaitable[object]]


async def health_down(fleet: Fleet, worker: Worker, _: int) -> None:
    fleet.registry.set_health(worker.slot, False, "down")


async def health_up(fleet: Fleet, worker: Worker, _: int) -> None:
    fleet.registry.set_health(worker.slot, True)
    fleet.registry.sync_models(worker.slot, worker.models)


async def lora_load(fleet: Fleet, worker: Worker, number: int) -> None:
    names = [card.id for card in worker.models]
    fleet.registry.sync_models(worker.slot, cards(*names, f"lora-new-{number}"))


async def lora_unload(fleet: Fleet, worker: Worker, _: int) -> None:
    fleet.registry.sync_models(worker.slot, worker.models)


async def other_model(fleet: Fleet, worker: Worker, number: int) -> None:
    fleet.registry.sync_models(worker.slot, cards(f"other-{number % 7}"))


async def patch(fleet: Fleet, worker: Worker, number: int) -> None:
    fleet.registry.patch(worker.id, Patch(weight=1.0 + number))
    await fleet.registry.settled()


async def replaced(fleet: Fleet, worker: Worker, _: int) -> None:
    models = tuple(card.id for card in worker.models)
    fleet.registry.register(Registration(worker.url, models=models))
    await fleet.registry.settled()


async def delete(fleet: Fleet, worker: Worker, _: int) -> None:
    fleet.registry.remove(worker.url)
    await fleet.registry.settled()


async def register(fleet: Fleet, _: Worker, number: int) -> None:
    await fleet.register(f"newcomer-{number}")


BURSTS: tuple[tuple[str, Change], ...] = (
    ("health: down", health_down),
    ("health: up again", health_up),
    ("model list: an adapter loaded", lora_load),
    ("model list: it is unloaded", lora_unload),
    ("model list: another model", other_model),
    ("PATCH of the weight", patch),
    ("POST, replacing", replaced),
    ("POST, new", register),
    ("DELETE", delete),
)


async def many_models(fleet: Fleet, turns: Turns) -> None:
    """A worker with very many models comes, loads one more, and goes."""
    for count in MANY:
        names = [f"many-{number}" for number in range(count)]
        worker = await fleet.register()
        listed = cards(*names)
        with turns.measured():
            fleet.registry.sync_models(worker.slot, listed)
            await settle(fleet)
        say(f"a list of {count:,} models", turns)
        listed = cards(*names, "lora-more")
        with turns.measured():
            fleet.registry.sync_models(worker.slot, listed)
            await settle(fleet)
        say("one adapter more there", turns)
        with turns.measured():
            fleet.registry.remove(worker.id)
            await settle(fleet)
        say("DELETE of it", turns)


async def wildcard(fleet: Fleet, turns: Turns) -> None:
    """A worker for every model comes and goes."""
    with turns.measured():
        worker = await fleet.register("*")
        await settle(fleet)
    say("POST of a wildcard", turns)
    with turns.measured():
        fleet.registry.remove(worker.id)
        await settle(fleet)
    say("DELETE of it", turns)


async def ranks(fleet: Fleet, turns: Turns) -> None:
    """A server with very many data-parallel ranks comes, and goes."""
    for count in RANKS:
        with turns.measured():
            worker = await fleet.register("ranks", dp_size=count)
            await settle(fleet)
        say(f"POST with dp_size {count}", turns)
        with turns.measured():
            fleet.registry.remove(worker.base_url)
            await settle(fleet)
        say("DELETE of it", turns)


async def pages(fleet: Fleet, turns: Turns) -> None:
    """What operators and machines read."""
    paths = ("/workers", "/workers", "/metrics", "/v1/models", "/readiness", "/health")
    for path in paths:
        request = make_request(fleet.admin, path)
        with turns.measured():
            began = time.thread_time()
            response = await fleet.admin._handle(request)
            took = time.thread_time() - began
            await asyncio.sleep(0)
        assert isinstance(response, web.Response)
        body = response.body
        assert isinstance(body, bytes)
        say(f"GET {path} ({len(body):,} bytes)", turns, took)


def make_request(app: web.Application, path: str) -> web.Request:
    return make_mocked_request("GET", path, app=app)


async def settle(fleet: Fleet) -> None:
    """Until nothing that was begun is left to do."""
    for _ in range(20):
        await asyncio.sleep(0.01)


def say(what: str, turns: Turns, each: float | None = None) -> None:
    note = "" if each is None else f"{each * 1e3:10.3f}"
    print(
        f"{what:42} {turns.longest * 1e3:8.2f} {turns.collecting * 1e3:8.2f} {note}",
        flush=True,
    )


async def measure(kind: str, workers: int, burst: int) -> None:
    turns = Turns()
    collector = Collector()
    collector.start()
    async with empty() as fleet:
        print(f"\n{workers:,} workers, {kind}: ms")
        print(f"{'':42} {'longest':>8} {'gc':>8} {'each':>10}")
        with turns.measured():
            began = time.thread_time()
            members = [await fleet.register(*names_of(kind, n)) for n in range(workers)]
            took = time.thread_time() - began
        say("POST of all, one after the other", turns, took / max(1, workers))
        with turns.measured():
            for number, worker in enumerate(members):
                fleet.registry.sync_models(worker.slot, cards(*names_of(kind, number)))
                await asyncio.sleep(0)
            await settle(fleet)
        say("their lists, read", turns)
        with turns.measured():
            for _ in range(300):
                await asyncio.sleep(0.01)
        say("until all are up and settled", turns)
        chosen = members[:: max(1, workers // burst)][:burst]
        for what, change in BURSTS:
            some = [fleet.registry.find(worker.url) for worker in chosen]
            if change is lora_unload:
                some = [replace(w, models=w.models[:-1]) for w in some]
            costs = []
            with turns.measured():
                for number, worker in enumerate(some):
                    began = time.thread_time()
                    await change(fleet, worker, number)
                    costs.append(time.thread_time() - began)
                    await asyncio.sleep(0)
                await settle(fleet)
            say(what, turns, statistics.median(costs))
        for look in (pages, wildcard, many_models, ranks):
            await look(fleet, turns)
    collector.stop()


def main() -> None:
    """Prints a table a fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--burst", type=int, default=BURST)
    parser.add_argument(
        "--fleet",
        nargs="+",
        choices=("alike", "adapters", "own"),
        default=["alike", "adapters", "own"],
    )
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for kind in options.fleet:
        uvloop.run(measure(kind, options.workers, options.burst))


if __name__ == "__main__":
    main()
