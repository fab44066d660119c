"""One fleet, three ways to choose from it.

Every way gets the same workers with the same loads and keeps to the same rules: the
model, wildcards, availability, provider, the limit of a worker, the fewest in flight,
ties at random. A round is a number of requests, each chosen, counted and counted off.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from router._core import Pool, Slots

#: Requests in flight on a worker: what least load makes of 2.5 a worker, so that half
#: of the workers are tied. Loads that differ more would spare the plain Python ways.
LOADS = (2, 3)


@dataclass(slots=True)
class Worker:
    """A worker as a router in plain Python keeps one."""

    name: str
    models: frozenset[str]
    load: int
    available: bool = True
    wildcard: bool = False
    provider: str | None = None
    limit: float = inf


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers, and the names of the models."""

    workers: list[Worker]
    models: list[str]

    @property
    def pool(self) -> int:
        """Workers of one model."""
        return max(1, len(self.workers) // len(self.models))


def make_fleet(workers: int, models: int) -> Fleet:
    """Each worker has its share of the models: one, or several if there are more."""
    rng = random.Random(workers * 31 + models)
    names = [f"org/model-{i}" for i in range(models)]
    shares: list[set[str]] = [set() for _ in range(workers)]
    for i in range(max(workers, models)):
        shares[i % workers].add(names[i % models])
    made = [
        Worker(f"http://10.0.{i // 250}.{i % 250}:8000", frozenset(share), 0)
        for i, share in enumerate(shares)
    ]
    for worker in made:
        worker.load = rng.choice(LOADS)
    return Fleet(made, names)


class Router(Protocol):
    """One way to choose."""

    fleet: Fleet

    def round(self, names: Sequence[str]) -> None:
        """A request for each of these models; each is let go of at once."""


class Core:
    """The product: a dict of pools, and the compiled pick.

    What comes out is the worker's slot. Its `owner`, the Worker, is one attribute more,
    which costs about as much here as for any object of a class.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.slots = Slots(len(fleet.workers), seed=1)
        groups = {
            models: self.slots.add_group(1.0, 0, 0, 0)
            for models in dict.fromkeys(worker.models for worker in fleet.workers)
        }
        words = {
            model: np.zeros(self.slots.capacity // 64, np.uint64)
            for model in fleet.models
        }
        for worker in fleet.workers:
            slot = self.slots.acquire(worker, hash(worker.name), groups[worker.models])
            self.slots.set_available(slot, True)
            bit = np.uint64(1 << slot.number % 64)
            for model in worker.models:
                words[model][slot.number // 64] |= bit
            alone = np.zeros(self.slots.capacity // 64, np.uint64)
            alone[slot.number // 64] = bit
            for _ in range(worker.load):
                Pool(self.slots, alone, [groups[worker.models]]).least_load()
        of_model: dict[str, list[int]] = {model: [] for model in fleet.models}
        for models, group in groups.items():
            for model in models:
                of_model[model].append(group)
        self.pools = {
            model: Pool(self.slots, words[model], of_model[model], seed=i)
            for i, model in enumerate(fleet.models)
        }

    def round(self, names: Sequence[str]) -> None:
        pools, release = self.pools, self.slots.release
        for name in names:
            slot = pools[name].least_load()
            assert slot is not None
            release(slot)


class FullScan:
    """What routers with one dict of workers do: look at all of them, each time."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.workers = {worker.name: worker for worker in fleet.workers}
        self.uniform = random.Random(1).random

    def pick(self, model: str, provider: str | None = None) -> Worker | None:
        least: float = inf
        ties: list[Worker] = []
        for worker in self.workers.values():
            if not worker.available:
                continue
            if model not in worker.models and not worker.wildcard:
                continue
            if provider is not None and worker.provider != provider:
                continue
            load = worker.load
            if load >= worker.limit:
                continue
            if load < least:
                least = load
                ties = [worker]
            elif load == least:
                ties.append(worker)
        if not ties:
            return None
        chosen = ties[int(self.uniform() * len(ties))]
        chosen.load += 1
        return chosen

    def round(self, names: Sequence[str]) -> None:
        pick = self.pick
        for name in names:
            worker = pick(name)
            assert worker is not None
            worker.load -= 1


class ModelIndex:
    """A good index in plain Python: a list of workers by model, wildcards united in."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.pools: dict[str, list[Worker]] = {model: [] for model in fleet.models}
        for worker in fleet.workers:
            for model in fleet.models if worker.wildcard else worker.models:
                self.pools[model].append(worker)
        self.uniform = random.Random(1).random

    def pick(self, model: str, provider: str | None = None) -> Worker | None:
        least: float = inf
        ties: list[Worker] = []
        for worker in self.pools[model]:
            load = worker.load
            if load > least or not worker.available or load >= worker.limit:
                continue
            if provider is not None and worker.provider != provider:
                continue
            if load < least:
                least = load
                ties = [worker]
            else:
                ties.append(worker)
        if not ties:
            return None
        chosen = ties[int(self.uniform() * len(ties))]
        chosen.load += 1
        return chosen

    def round(self, names: Sequence[str]) -> None:
        pick = self.pick
        for name in names:
            worker = pick(name)
            assert worker is not None
            worker.load -= 1
