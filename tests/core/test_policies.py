"""What each policy promises, seen from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain, pairwise

import numpy as np
import pytest

from router._core import Pool, Slot, Slots
from tests.core.fleet import bits, chi_square, join, pool_of

ALL = ["least_load", "round_robin", "random", "power_of_two", "consistent_hash"]


def pick(
    pool: Pool,
    policy: str,
    key: int = 0,
    tried: tuple[Slot, ...] = (),
    provider: int = 0,
) -> Slot | None:
    """One pick of any policy; `key` counts for consistent_hash alone."""
    if policy == "consistent_hash":
        return pool.consistent_hash(key, 0.0, 0.0, tried, provider)
    choose: Callable[[tuple[Slot, ...], int], Slot | None] = getattr(pool, policy)
    return choose(tried, provider)


# --- for every policy -----------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL)
def test_a_worker_at_its_limit_is_left_out_and_comes_back(policy: str) -> None:
    slots = Slots(seed=1)
    members = join(slots, slots.add_group(1.0, 0, 0, 2), 3)
    pool = pool_of(slots, members)
    given = [pick(pool, policy) for _ in range(7)]
    assert Counter(given) == dict.fromkeys(members, 2) | {None: 1}
    assert pool.available() == 0
    slots.release(members[1])
    assert pick(pool, policy) is members[1]


@pytest.mark.parametrize("policy", ALL)
def test_a_lower_tier_serves_only_while_no_higher_one_can(policy: str) -> None:
    slots = Slots(seed=1)
    high = join(slots, slots.add_group(1.0, 60, 0, 2), 2)
    low = join(slots, slots.add_group(1.0, 50, 0, 0), 2, first=2)
    pool = pool_of(slots, high + low)
    assert {pick(pool, policy, key) for key in range(4)} == set(high)
    assert pick(pool, policy) in low
    slots.release(high[0])
    assert pick(pool, policy, tried=(high[0],)) in low
    assert pick(pool, policy) is high[0]
    slots.release(high[0])
    slots.set_available(high[0], False)
    assert pick(pool, policy) in low


@pytest.mark.parametrize("policy", ALL)
def test_a_request_for_a_provider_reaches_only_that_one(policy: str) -> None:
    slots = Slots(seed=1)
    own = join(slots, slots.add_group(1.0, 0, 0, 0), 2)
    theirs = join(slots, slots.add_group(1.0, 0, 7, 0), 2, first=2)
    pool = pool_of(slots, own + theirs)
    assert {pick(pool, policy, key, provider=7) for key in range(64)} == set(theirs)
    assert {pick(pool, policy, key) for key in range(200)} == set(own + theirs)
    for slot in theirs:
        slots.set_available(slot, False)
    assert pick(pool, policy, provider=7) is None
    assert pick(pool, policy, provider=8) is None


@pytest.mark.parametrize("policy", ALL)
def test_a_slot_that_was_tried_is_not_given_again(policy: str) -> None:
    slots = Slots(seed=1)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 4)
    pool = pool_of(slots, members)
    tried: tuple[Slot, ...] = ()
    while slot := pick(pool, policy, tried=tried):
        assert slot not in tried
        tried = (*tried, slot, slot)
    assert set(tried) == set(members)
    assert slots.load.sum() == 4
    assert pick(pool, policy) is not None


@pytest.mark.parametrize("policy", ALL)
def test_one_that_left_the_pool_is_not_given_by_the_old_one_nor_by_the_new(
    policy: str,
) -> None:
    slots = Slots(seed=1)
    group = slots.add_group(1.0, 0, 0, 0)
    old, new = join(slots, group, 2)
    pool = pool_of(slots, [old])
    slots.retire(old)
    assert pick(pool, policy) is None
    assert pick(pool_of(slots, [new]), policy) is new


@pytest.mark.parametrize("policy", ALL)
def test_a_worker_takes_its_weight_in_requests(policy: str) -> None:
    """Twice the weight, twice the load; 14,000 requests that stay."""
    slots = Slots(seed=1)
    groups = [slots.add_group(weight, 0, 0, 0) for weight in (0.5, 1.0, 2.0)]
    members = [join(slots, group, 4, first=100 * group) for group in groups]
    pool = pool_of(slots, chain(*members))
    for key in range(14000):
        pick(pool, policy, key)
    shares = [sum(map(slots.load_of, group)) / 14000 for group in members]
    assert shares == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=0.012)


@pytest.mark.parametrize("policy", ALL)
def test_a_pool_of_nobody_gives_nobody(policy: str) -> None:
    slots = Slots(seed=1)
    pool = Pool(slots, bits([]), [])
    assert pick(pool, policy) is None
    assert len(pool) == pool.available() == len(pool.numbers()) == 0


# --- least_load -----------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 3])
def test_ties_are_broken_uniformly_wherever_the_tied_stand(groups: int) -> None:
    """40 tied in 3 clusters among 100: the first after a gap gets no more than others.

    In groups of unequal size, so that a group is no unit of chance either.
    """
    slots = Slots(seed=20)
    numbers = [slots.add_group(1.0, 0, 0, 0) for _ in range(groups)]
    members = [
        join(slots, numbers[0 if i % 5 else i % groups], 1, first=i)[0]
        for i in range(100)
    ]
    pool = pool_of(slots, members)
    tied = {*range(3, 20), *range(50, 53), *range(70, 90)}
    for _ in members:
        pool.least_load()
    for number in tied:
        slots.release(members[number])
    counts: Counter[int] = Counter()
    for _ in range(40_000):
        slot = pool.least_load()
        assert slot is not None
        counts[slot.number] += 1
        slots.release(slot)
    assert counts.keys() == tied
    assert -3 < chi_square(list(counts.values())) < 3


def test_the_next_loaded_tie_once_the_least_loaded_is_gone() -> None:
    slots = Slots(seed=1)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 4)
    for _ in range(3):
        pool_of(slots, members[1:]).least_load()
    slots.set_available(members[0], False)
    pool = pool_of(slots, members)
    given = set()
    for _ in range(60):
        slot = pool.least_load()
        assert slot is not None
        given.add(slot)
        slots.release(slot)
    assert given == set(members[1:])


def test_simultaneous_picks_spread_over_all() -> None:
    """64 requests at once on 16 workers: 4 each, since each is counted as picked."""
    slots = Slots(seed=1)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 16)
    pool = pool_of(slots, members)
    for _ in range(64):
        pool.least_load()
    assert {slots.load_of(slot) for slot in members} == {4}


def test_a_load_of_thousands_is_still_told_from_one_more() -> None:
    """Also of a worker that was away while it kept its load."""
    slots = Slots(seed=1)
    busy, idle = join(slots, slots.add_group(1.0, 0, 0, 0), 2)
    alone, pool = pool_of(slots, [busy]), pool_of(slots, [busy, idle])
    for _ in range(5000):
        alone.least_load()
    assert {pool.least_load() for _ in range(5000)} == {idle}
    slots.set_available(busy, False)
    slots.release(busy)
    slots.set_available(busy, True)
    assert pool.least_load() is busy
    slots.release(idle)
    assert pool.least_load() is idle


# --- random and power_of_two ----------------------------------------------------------


def test_random_is_uniform() -> None:
    slots = Slots(seed=3)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 50)
    pool = pool_of(slots, members)
    counts = Counter(pool.random() for _ in range(50_000))
    assert -3 < chi_square([counts[slot] for slot in members]) < 3


def test_two_choices_are_two_different_workers() -> None:
    """So of two workers the less loaded is always found."""
    slots = Slots(seed=3)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 2)
    pool = pool_of(slots, members)
    pool_of(slots, members[:1]).least_load()
    for _ in range(100):
        assert pool.power_of_two() is members[1]
        slots.release(members[1])


def test_two_choices_never_take_the_most_loaded_of_all() -> None:
    slots = Slots(seed=3)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 10)
    pool_of(slots, members[4:5]).least_load()
    pool = pool_of(slots, members)
    for _ in range(500):
        slot = pool.power_of_two()
        assert slot is not None
        assert slot is not members[4]
        slots.release(slot)


# --- round_robin ----------------------------------------------------------------------


def test_a_cycle_gives_each_worker_exactly_its_weight() -> None:
    slots = Slots(seed=1)
    weights = {1.0: 3, 2.0: 2, 5.0: 1}
    members = {
        slot: weight
        for weight, count in weights.items()
        for slot in join(slots, slots.add_group(weight, 0, 0, 0), count)
    }
    pool = pool_of(slots, members)
    cycle = int(sum(members.values()))
    for _ in range(3):
        counts = Counter(pool.round_robin() for _ in range(cycle))
        assert counts == members


def test_the_turns_of_a_heavy_worker_are_spread_out() -> None:
    """Smooth: weights 5, 1, 1 give a a b a c a a, never five in a row."""
    slots = Slots(seed=1)
    heavy, one, other = (
        join(slots, slots.add_group(weight, 0, 0, 0), 1)[0]
        for weight in (5.0, 1.0, 1.0)
    )
    pool = pool_of(slots, [heavy, one, other])
    turns = [pool.round_robin() for _ in range(7)]
    assert turns == [heavy, heavy, one, heavy, other, heavy, heavy]


def test_the_rotation_goes_on_when_the_pool_is_replaced() -> None:
    slots = Slots(seed=1)
    group = slots.add_group(1.0, 0, 0, 0)
    members = join(slots, group, 5)
    pool = pool_of(slots, members)
    turns = [pool.round_robin() for _ in range(3)]
    members += join(slots, group, 1, first=5)
    replaced = pool_of(slots, members, previous=pool)
    turns += [replaced.round_robin() for _ in range(3)]
    assert turns == members


def test_a_flip_costs_nobody_else_a_turn() -> None:
    slots = Slots(seed=1)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 6)
    pool = pool_of(slots, members)
    assert pool.round_robin() is members[0]
    assert pool.round_robin() is members[1]
    slots.set_available(members[0], False)
    assert pool.round_robin() is members[2]
    slots.set_available(members[0], True)
    slots.set_available(members[2], False)
    assert [pool.round_robin() for _ in range(4)] == [*members[3:], members[0]]


def test_each_model_has_its_own_rotation() -> None:
    """Two models on the same workers, asked in turn: neither stays on half of them."""
    slots = Slots(seed=1)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 4)
    one, other = pool_of(slots, members), pool_of(slots, members)
    turns = [(one.round_robin(), other.round_robin()) for _ in range(4)]
    assert turns == [(slot, slot) for slot in members]


def test_neighbours_in_time_are_never_the_same_worker() -> None:
    slots = Slots(seed=1)
    pool = pool_of(slots, join(slots, slots.add_group(1.0, 0, 0, 0), 3))
    turns = [pool.round_robin() for _ in range(30)]
    assert all(a is not b for a, b in pairwise(turns))


# --- pools and the index --------------------------------------------------------------


def test_a_pool_tells_how_many_candidates_are_in_a_set() -> None:
    slots = Slots(seed=1)
    join(slots, slots.add_group(1.0, 0, 0, 0), 200)
    pool = Pool(slots, bits([0, 2, 130]), [0])
    assert pool.among(bits([0, 1, 130, 199])) == 2
    assert pool.among(bits([0])) == 1, "a shorter set"
    assert pool.among(np.zeros(0, np.uint64)) == 0


def test_the_rotation_goes_on_where_it_was_whatever_groups_came_and_went() -> None:
    slots = Slots(seed=1)
    groups = [slots.add_group(1.0, tier % 2, 0, 0) for tier in range(6)]
    for group in groups:
        join(slots, group, 3)
    high = [number for number in range(18) if number // 3 % 2]
    pool = Pool(slots, bits(range(18)), groups)
    first = [pool.round_robin() for _ in range(4)]
    pool = Pool(slots, bits([*range(3), *high]), [0, *groups[1::2]], 0, pool)
    rest = [pool.round_robin() for _ in range(5)]
    numbers = [slot.number for slot in (*first, *rest) if slot is not None]
    assert sorted(numbers) == high, "each of the higher tier once"


def test_candidates_are_a_copy_that_cannot_be_written() -> None:
    slots = Slots(seed=1)
    members = join(slots, slots.add_group(1.0, 0, 0, 0), 3)
    words = bits([0, 2])
    pool = Pool(slots, words, [0])
    words[:] = 0
    assert pool.candidates.tolist() == [5]
    assert pool.numbers().dtype == np.int32
    assert {pool.round_robin() for _ in range(4)} == {members[0], members[2]}
    with pytest.raises(ValueError, match="read-only"):
        pool.candidates[0] = 7
