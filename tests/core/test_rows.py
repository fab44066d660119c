"""Loads that several processes count, each in a row of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from numpy.typing import NDArray

from router._core import Pool, Slot, Slots
from tests.core import oracle
from tests.core.fleet import bits
from tests.core.oracle import Oracle
from tests.core.oracle import Pool as Twin

PROCESSES = 3
ANY = st.integers(0, 2**16)
POLICIES = st.sampled_from(["least_load", "round_robin", "random", "power_of_two"])
LIMIT = 4


def shared(processes: int = PROCESSES, slots: int = 128) -> NDArray[np.int32]:
    return np.zeros((processes, slots), np.int32)


@dataclass(eq=False)
class Process:
    """One of those that pick: its Slots, and what the test believes of it."""

    slots: Slots
    group: int
    oracle: Oracle
    places: dict[int, Slot] = field(default_factory=dict)
    #: Held by requests of this process: a slot stands here once a request.
    held: list[Slot] = field(default_factory=list)
    #: What the others counted when it last looked, by number.
    seen: dict[int, int] = field(default_factory=dict)
    pool: Pool | None = None
    twin: Twin | None = None

    def own(self, number: int) -> int:
        return sum(slot.number == number for slot in self.held)


class ProcessesShareLoads(RuleBasedStateMachine):
    """One process gives out numbers, three pick, and each sees the others late."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.rows = shared()
        self.control = Slots(rows=self.rows)
        self.group = self.control.add_group(1.0, 0, 0, LIMIT)
        self.workers: dict[int, Slot] = {}
        self.retired: list[Slot] = []
        self.processes = [self.process(row, seed + row) for row in range(PROCESSES)]
        for _ in range(4):
            self.join()

    def process(self, row: int, seed: int) -> Process:
        slots = Slots(rows=self.rows, row=row, seed=seed)
        group = slots.add_group(1.0, 0, 0, LIMIT)
        return Process(slots, group, Oracle(seed))

    def take_over(self, process: Process, slot: Slot) -> None:
        number = slot.number
        mine = process.slots.acquire(
            None, number * 7919, process.group, (number, slot.generation)
        )
        process.slots.set_available(mine, True)
        process.places[number] = mine
        process.oracle.identity[number] = oracle.mix(number * 7919)
        process.seen[number] = self.others(process, number)
        self.recount(process)

    def others(self, process: Process, number: int) -> int:
        return sum(p.own(number) for p in self.processes if p is not process)

    def recount(self, process: Process) -> None:
        for number in process.places:
            process.oracle.load[number] = process.own(number) + process.seen[number]

    def publish(self) -> None:
        for process in self.processes:
            members = set(process.places)
            process.pool = Pool(process.slots, bits(members), [process.group])

            def order(process: Process = process) -> list[int]:
                return list(process.slots.order(process.group).tolist())

            group = oracle.Group(1.0, 0, 0, LIMIT, order)
            process.twin = Twin(members, [group])

    @rule()
    def join(self) -> None:
        if len(self.workers) >= 100:
            return
        slot = self.control.acquire(None, 0, self.group)
        assert slot.number not in self.workers
        assert slot.number not in [old.number for old in self.retired]
        self.workers[slot.number] = slot
        for process in self.processes:
            self.take_over(process, slot)
        self.publish()

    @precondition(lambda self: len(self.workers) > 1)
    @rule(which=ANY)
    def retire(self, which: int) -> None:
        number = sorted(self.workers)[which % len(self.workers)]
        slot = self.workers.pop(number)
        self.control.retire(slot)
        self.retired.append(slot)
        for process in self.processes:
            process.slots.retire(process.places.pop(number))
        self.publish()

    @rule()
    def reclaim(self) -> None:
        """A number comes free once no process has anything on it."""
        for slot in list(self.retired):
            counted = sum(p.own(slot.number) for p in self.processes)
            assert self.control.reclaim(slot) == (counted == 0)
            if counted == 0:
                self.retired.remove(slot)

    @rule(which=st.integers(0, PROCESSES - 1))
    def refresh(self, which: int) -> None:
        process = self.processes[which]
        process.slots.refresh()
        for number in process.places:
            process.seen[number] = self.others(process, number)
        self.recount(process)

    @rule(which=st.integers(0, PROCESSES - 1), policy=POLICIES, times=st.integers(1, 9))
    def pick(self, which: int, policy: str, times: int) -> None:
        """By the own count and by what was last seen of the others."""
        process = self.processes[which]
        assert process.pool is not None
        assert process.twin is not None
        for _ in range(times):
            expected = process.oracle.pick(process.twin, policy, set(), 0)
            slot = getattr(process.pool, policy)()
            assert (None if slot is None else slot.number) == expected
            if slot is not None:
                process.held.append(slot)

    @rule(which=st.integers(0, PROCESSES - 1), at=ANY)
    def release(self, which: int, at: int) -> None:
        process = self.processes[which]
        if process.held:
            slot = process.held.pop(at % len(process.held))
            assert process.slots.release(slot)
            self.recount(process)

    @rule(which=st.integers(0, PROCESSES - 1), seed=st.integers(0, 2**32))
    def die(self, which: int, seed: int) -> None:
        """Its row is zeroed, and another process takes all over from the start."""
        self.rows[which] = 0
        process = self.processes[which] = self.process(which, seed)
        for slot in self.workers.values():
            self.take_over(process, slot)
        self.publish()

    @invariant()
    @precondition(lambda self: hasattr(self, "processes"))
    def everybody_counts_right(self) -> None:
        for number, slot in self.workers.items():
            counted = [process.own(number) for process in self.processes]
            assert self.rows[:, number].tolist() == counted
            assert self.control.load_of(slot) == sum(counted)
        for process in self.processes:
            for number, slot in process.places.items():
                assert process.slots.load_of(slot) == process.oracle.load[number]
            order = process.slots.order(process.group).tolist()
            loads = [process.oracle.load[number] for number in order]
            assert sorted(order) == sorted(process.places)
            assert loads == sorted(loads)


TestProcessesShareLoads = ProcessesShareLoads.TestCase
TestProcessesShareLoads.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)


def test_a_limit_holds_for_all_processes_together() -> None:
    rows = shared(2)
    pools, slots = [], []
    for row in range(2):
        own = Slots(rows=rows, row=row)
        group = own.add_group(1.0, 0, 0, 3)
        own.set_available(own.acquire(None, 1, group, (0, 0)), True)
        slots.append(own)
        pools.append(Pool(own, bits([0]), [group]))
    assert pools[0].least_load()
    assert pools[0].least_load()
    slots[1].refresh()
    assert pools[1].least_load()
    assert pools[1].least_load() is None
    slots[0].refresh()
    assert pools[0].least_load() is None


def test_a_late_release_is_of_the_old_life_and_not_of_the_new_one() -> None:
    rows = shared(1)
    slots = Slots(rows=rows, row=0)
    group = slots.add_group(1.0, 0, 0, 0)
    old = slots.acquire(None, 1, group, (5, 0))
    slots.set_available(old, True)
    assert Pool(slots, bits([5]), [group]).least_load() is old
    slots.retire(old)
    with pytest.raises(ValueError, match="still in use"):
        slots.acquire(None, 1, group, (5, 1))
    assert slots.release(old)
    new = slots.acquire(None, 1, group, (5, 1))
    assert (new.number, new.generation) == (5, 1)
    assert not slots.release(old)
    assert rows.sum() == 0


def test_there_are_no_more_slots_than_the_rows_have() -> None:
    slots = Slots(rows=shared(1, 64))
    group = slots.add_group(1.0, 0, 0, 0)
    for _ in range(64):
        slots.acquire(None, 1, group)
    with pytest.raises(MemoryError):
        slots.acquire(None, 1, group)


def test_rows_see_what_the_numbers_outgrew() -> None:
    rows = shared(2, 256)
    one, two = (Slots(rows=rows, row=row) for row in range(2))
    group, other = (slots.add_group(1.0, 0, 0, 0) for slots in (one, two))
    mine = one.acquire(None, 1, group, (200, 3))
    one.set_available(mine, True)
    assert Pool(one, bits([200]), [group]).least_load() is mine
    theirs = two.acquire(None, 1, other, (200, 3))
    assert two.load_of(theirs) == 1
    assert not two.release(theirs)
    assert two.refresh() == 0


@pytest.mark.parametrize(
    ("rows", "row"),
    [
        (None, 0),
        (np.zeros((2, 63), np.int32), 0),
        (np.zeros((2, 0), np.int32), 0),
        (np.zeros((2, 64), np.int64), 0),
        (np.zeros((64, 2), np.int32).T, 0),
        (np.zeros(64, np.int32), 0),
        (np.zeros((2, 64), np.int32), 2),
        (np.zeros((2, 64), np.int32), -2),
    ],
)
def test_rows_of_another_form_are_refused(rows: Any, row: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Slots(rows=rows, row=row)


@pytest.mark.parametrize("place", [(-1, 0), (64, 0), (0, -1)])
def test_a_place_that_there_is_not_is_refused(place: tuple[int, int]) -> None:
    slots = Slots(rows=shared(1, 64), row=0)
    group = slots.add_group(1.0, 0, 0, 0)
    with pytest.raises(ValueError, match="no place"):
        slots.acquire(None, 1, group, place)


def test_numbers_are_given_out_in_one_process_only() -> None:
    rows = shared(1, 64)
    picking, giving = Slots(rows=rows, row=0), Slots(rows=rows)
    for slots, place in ((picking, None), (giving, (0, 0)), (Slots(), (0, 0))):
        with pytest.raises(ValueError, match="places are given"):
            slots.acquire(None, 1, slots.add_group(1.0, 0, 0, 0), place)
    slot = giving.acquire(None, 1, giving.add_group(1.0, 0, 0, 0))
    with pytest.raises(ValueError, match="not to be reclaimed"):
        giving.reclaim(slot)
