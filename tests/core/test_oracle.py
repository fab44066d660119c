"""The core and the oracle side by side, over random fleets and random operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from router._core import Index, Pool, Slot, Slots
from tests.core import oracle
from tests.core.fleet import bits

WEIGHTS = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.0, 0.5, 0.1])
KEYS = st.integers(-(2**63), 2**64 - 1)
BOUNDS = st.sampled_from([(0.0, 0.0), (1.0, 0.0), (1.25, 0.0), (1.25, 4.0), (1.5, 1.5)])
POLICIES = ["least_load", "round_robin", "random", "power_of_two"]
#: More than the core has had models in a test: an index into a list of any length.
ANY = st.integers(0, 2**16)


@dataclass(eq=False)
class Worker:
    """What the test believes of one slot."""

    slot: Slot
    group: int  # -1: retired
    load: int = 0
    available: bool = False

    @property
    def over(self) -> bool:
        return self.group < 0 and self.load == 0


class CoreBesideOracle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.workers: list[Worker] = []
        self.groups: dict[int, oracle.Group] = {}
        self.pools: list[tuple[Pool, oracle.Pool]] = []

    @initialize(seed=st.integers(0, 2**64 - 1), first=ANY)
    def start(self, seed: int, first: int) -> None:
        self.slots = Slots(seed=seed)
        self.index = Index(self.slots)
        self.oracle = oracle.Oracle(seed)
        self.add_group(1.0, 0, 0, 0)
        self.join(first, 5)
        self.publish([], [], 0, 0)

    # --- what happens to a fleet ------------------------------------------------------

    @rule(
        weight=WEIGHTS,
        tier=st.integers(-1, 1),
        provider=st.integers(0, 2),
        limit=st.integers(0, 3),
    )
    def add_group(self, weight: float, tier: int, provider: int, limit: int) -> None:
        number = self.slots.add_group(weight, tier, provider, limit)
        assert number not in self.groups

        def order() -> list[int]:
            alive = self.groups.get(number) is group
            return self.slots.order(number).tolist() if alive else []

        group = oracle.Group(weight, tier, provider, limit, order)
        self.groups[number] = group

    @rule(group=ANY)
    def drop_group(self, group: int) -> None:
        empty = [g for g in self.groups if self.slots.group_size(g) == 0]
        if empty and len(self.groups) > 1:
            number = empty[group % len(empty)]
            self.slots.drop_group(number)
            del self.groups[number]

    @rule(group=ANY, count=st.sampled_from([1, 2, 3, 5, 70]))
    def join(self, group: int, count: int) -> None:
        """New workers, most of them available at once; 70 outgrow the slots."""
        number = sorted(self.groups)[group % len(self.groups)]
        for i in range(count):
            identity = len(self.workers) * 7919 - 5
            slot = self.slots.acquire(object(), identity, number)
            assert all(w.over or w.slot.number != slot.number for w in self.workers)
            self.workers.append(Worker(slot, number))
            self.oracle.load[slot.number] = 0
            self.oracle.identity[slot.number] = oracle.mix(identity & oracle.MASK)
            if i % 5 != 4:
                self.turn(self.workers[-1], True)

    def turn(self, worker: Worker, available: bool) -> None:
        self.slots.set_available(worker.slot, available)
        worker.available = available and worker.group >= 0

    def worker(self, which: int) -> Worker:
        return self.workers[which % len(self.workers)]

    @rule(which=ANY, available=st.booleans())
    def set_available(self, which: int, available: bool) -> None:
        self.turn(self.worker(which), available)

    @rule(which=ANY)
    def retire(self, which: int) -> None:
        worker = self.worker(which)
        self.slots.retire(worker.slot)
        worker.group, worker.available = -1, False

    @rule(which=st.lists(ANY, max_size=20))
    def release(self, which: list[int]) -> None:
        """Of any worker, so also twice, of an idle one, and long after its end."""
        for worker in map(self.worker, which):
            assert self.slots.release(worker.slot) == (worker.load > 0)
            if worker.load:
                worker.load -= 1
                self.oracle.load[worker.slot.number] -= 1

    @rule(moved=st.lists(ANY, max_size=4), to=st.lists(ANY), which=ANY, seed=ANY)
    def publish(self, moved: list[int], to: list[int], which: int, seed: int) -> None:
        """Some change groups; one pool is replaced by one of what is then there."""
        pairs = [
            (self.worker(which), sorted(self.groups)[group % len(self.groups)])
            for which, group in zip(moved, to, strict=False)
        ]
        for worker, group in pairs:
            worker.group = group if worker.group >= 0 else -1
        chosen = [group for group in sorted(self.groups) if which >> group % 8 & 1 == 0]
        members = {w.slot.number for w in self.workers if w.group in chosen}
        previous, known = self.pools[0] if self.pools else (None, None)
        pool = Pool(self.slots, bits(members), chosen, seed, previous)
        twin = oracle.Pool(members, [self.groups[g] for g in chosen], seed)
        twin.groups.sort(key=lambda group: -group.tier)
        if known:
            twin.credit = {g: c for g, c in known.credit.items() if g in twin.groups}
            twin.last = {g: n for g, n in known.last.items() if g in twin.groups}
        self.index.publish(pool, [w.slot for w, _ in pairs], [g for _, g in pairs])
        assert self.index.current is pool
        assert pool.numbers().tolist() == sorted(members)
        self.pools = [(pool, twin), *self.pools[:3]]

    # --- picks ------------------------------------------------------------------------

    def pick(
        self, which: int, policy: str, tried: list[int], provider: int, *more: Any
    ) -> None:
        """Of a current or an old pool: the same slot, counted, in both."""
        pool, twin = self.pools[which % len(self.pools)]
        skip = tuple(self.worker(t).slot for t in tried)
        numbers = {self.worker(t).slot.number for t in tried if not self.worker(t).over}
        expected = self.oracle.pick(twin, policy, numbers, provider, *more)
        slot = getattr(pool, policy)(*more, skip, provider)
        assert (None if slot is None else slot.number) == expected
        if slot is not None:
            (worker,) = [w for w in self.workers if w.slot is slot]
            assert worker.available
            assert slot not in skip
            assert slot.number in twin.candidates
            worker.load += 1

    @rule(
        which=ANY,
        policy=st.sampled_from(POLICIES),
        tried=st.lists(ANY, max_size=3),
        provider=st.sampled_from([0, 0, 1, 2, 3]),
        times=st.integers(1, 12),
    )
    def pick_by_load_or_turn(
        self, which: int, policy: str, tried: list[int], provider: int, times: int
    ) -> None:
        for _ in range(times):
            self.pick(which, policy, tried, provider)

    @rule(
        which=ANY,
        keys=st.lists(KEYS, min_size=1, max_size=12),
        bound=BOUNDS,
        tried=st.lists(ANY, max_size=3),
        provider=st.sampled_from([0, 0, 1, 2, 3]),
    )
    def pick_by_key(
        self,
        which: int,
        keys: list[int],
        bound: tuple[float, float],
        tried: list[int],
        provider: int,
    ) -> None:
        for key in keys:
            self.pick(which, "consistent_hash", tried, provider, key, *bound)

    # --- what holds at every moment ---------------------------------------------------

    @invariant()
    @precondition(lambda self: hasattr(self, "slots"))
    def the_core_counts_what_happened(self) -> None:
        load = self.slots.load
        assert load.min() >= 0
        assert load.sum() == sum(worker.load for worker in self.workers)
        for worker in self.workers:
            assert self.slots.load_of(worker.slot) == worker.load
            assert self.slots.is_available(worker.slot) == worker.available
            assert self.slots.group_of(worker.slot) == worker.group
        words = bits(w.slot.number for w in self.workers if w.available)
        assert self.slots.available[: len(words)].tolist() == words.tolist()
        assert not self.slots.available[len(words) :].any()

    @invariant()
    @precondition(lambda self: hasattr(self, "slots"))
    def a_group_holds_its_available_members_by_load(self) -> None:
        for number in self.groups:
            order = self.slots.order(number).tolist()
            members = [w for w in self.workers if w.group == number]
            assert self.slots.group_size(number) == len(members)
            assert sorted(order) == sorted(
                w.slot.number for w in members if w.available
            )
            loads = [self.oracle.load[n] for n in order]
            assert loads == sorted(loads)

    @invariant()
    @precondition(lambda self: bool(self.pools))
    def a_pool_says_how_many_could_take_a_request(self) -> None:
        for pool, twin in self.pools:
            assert len(pool) == len(twin.candidates)
            assert pool.available() == sum(
                n in twin.candidates and self.oracle.has_room(group, n)
                for group in twin.groups
                for n in group.order()
            )


TestCoreBesideOracle = CoreBesideOracle.TestCase
TestCoreBesideOracle.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
