"""The other policies: those of the core, and the same on a good index in plain Python.

The plain ones draw a worker of the pool and look only then whether it may be taken, so
that they too cost nothing per worker; but hashing has to look at each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import cycle

from bench.selection.fleets import Core, Fleet, ModelIndex, Worker
from bench.selection.ratios import Round
from router._core import Pool, Slot

#: Hashes of sessions, as the router has made them of session ids.
KEYS = [random.Random(i).getrandbits(64) for i in range(997)]


def core_round(core: Core, policy: str, factor: float = 1.25) -> Round:
    """Rounds of one policy of the core."""
    pools, release = core.pools, core.slots.release
    pick: Callable[[Pool], Slot | None] = getattr(Pool, policy)
    by_key, keys = Pool.consistent_hash, cycle(KEYS)

    def keyed(names: Sequence[str]) -> None:
        for name, key in zip(names, keys, strict=False):
            slot = by_key(pools[name], key, factor, 4.0)
            assert slot is not None
            release(slot)

    def plain(names: Sequence[str]) -> None:
        for name in names:
            slot = pick(pools[name])
            assert slot is not None
            release(slot)

    return keyed if policy == "consistent_hash" else plain


class PlainPolicies(ModelIndex):
    """Policies in plain Python over the per-model index."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.turns = dict.fromkeys(self.pools, 0)

    def least_load(self, model: str, key: int) -> Worker:
        worker = self.pick(model)
        assert worker is not None
        worker.load -= 1
        return worker

    def random(self, model: str, key: int) -> Worker:
        pool = self.pools[model]
        for _ in pool:
            worker = pool[int(self.uniform() * len(pool))]
            if worker.available and worker.load < worker.limit:
                return worker
        raise LookupError(model)

    def power_of_two(self, model: str, key: int) -> Worker:
        one, two = self.random(model, key), self.random(model, key)
        return two if two.load < one.load else one

    def round_robin(self, model: str, key: int) -> Worker:
        pool = self.pools[model]
        for _ in pool:
            turn = self.turns[model] % len(pool)
            self.turns[model] = turn + 1
            worker = pool[turn]
            if worker.available and worker.load < worker.limit:
                return worker
        raise LookupError(model)

    def consistent_hash(self, model: str, key: int) -> Worker:
        best: Worker | None = None
        highest = 0
        for worker in self.pools[model]:
            if worker.available and worker.load < worker.limit:
                score = hash((worker.name, key))
                if best is None or score > highest:
                    best, highest = worker, score
        assert best is not None
        return best


def plain_round(index: PlainPolicies, policy: str) -> Round:
    """Rounds of one policy in plain Python."""
    pick: Callable[[str, int], Worker] = getattr(index, policy)
    keys = cycle(KEYS)

    def one(names: Sequence[str]) -> None:
        for name, key in zip(names, keys, strict=False):
            worker = pick(name, key)
            worker.load += 1
            worker.load -= 1

    return one
