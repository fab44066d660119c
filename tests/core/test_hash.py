"""consistent_hash: where keys go, what moves them, and what must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import pytest

from router._core import Pool, Slot, Slots
from tests.core.fleet import chi_square, join, pool_of

KEYS = range(2000)
#: Where the keys -4 .. 11 go among workers of the identities 0 .. 7, seed 1.
KEPT = [0, 0, 5, 1, 7, 2, 6, 7, 5, 1, 6, 0, 6, 4, 6, 7]


def fleet(
    identities: Sequence[int], weight: float = 1.0, seed: int = 9
) -> tuple[Slots, dict[int, Slot], Pool]:
    """Slots, the workers that registered in this order by identity, their pool."""
    slots = Slots(seed=1)
    group = slots.add_group(weight, 0, 0, 0)
    members = {
        identity: join(slots, group, 1, first=identity)[0] for identity in identities
    }
    return slots, members, pool_of(slots, members.values(), seed=seed)


def homes(
    slots: Slots, pool: Pool, keys: Iterable[int], tried: tuple[Slot, ...] = ()
) -> dict[int, object]:
    """Key -> identity of the worker it goes to while nothing is in flight."""
    found = {}
    for key in keys:
        slot = pool.consistent_hash(key, 0.0, 0.0, tried)
        assert slot is not None
        found[key] = slot.owner
        slots.release(slot)
    return found


# --- the same everywhere --------------------------------------------------------------


def test_slot_numbers_and_the_order_of_registration_do_not_matter() -> None:
    """Restarts, replicas and processes agree without a word."""
    slots, _, pool = fleet(range(20))
    expected = homes(slots, pool, KEYS)
    again, members, _ = fleet([*range(100, 130), *reversed(range(20))])
    for identity in range(100, 130):
        again.retire(members.pop(identity))
    assert homes(again, pool_of(again, members.values(), seed=9), KEYS) == expected


def test_where_keys_go_is_kept_from_release_to_release() -> None:
    """A change here moves every session of every user at their next upgrade."""
    slots, _, pool = fleet(range(8), seed=1)
    found = homes(slots, pool, range(-4, 12))
    assert list(found.values()) == KEPT


def test_keys_are_scoped_by_the_seed_of_the_pool() -> None:
    slots, members, pool = fleet(range(16), seed=1)
    other = pool_of(slots, members.values(), seed=2)
    one, two = homes(slots, pool, KEYS), homes(slots, other, KEYS)
    assert sum(one[key] == two[key] for key in KEYS) < len(KEYS) / 16 * 1.5


def test_a_key_is_taken_modulo_64_bits() -> None:
    slots, _, pool = fleet(range(16))
    keys = [0, 1, 2**63, 2**64 - 1]
    wrapped = homes(slots, pool, [key - 2**64 for key in keys])
    assert list(homes(slots, pool, keys).values()) == list(wrapped.values())
    assert homes(slots, pool, np.arange(3, dtype=np.uint64)) == homes(
        slots, pool, range(3)
    )


# --- what moves -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["unavailable", "retired", "tried", "full"])
def test_nobody_elses_key_moves_when_a_worker_goes(how: str) -> None:
    """Its own spread over all the others, and return with it."""
    slots = Slots(seed=1)
    group = slots.add_group(1.0, 0, 0, 1)
    members = join(slots, group, 12)
    pool, gone = pool_of(slots, members), members[5]
    before = homes(slots, pool, KEYS)
    tried: tuple[Slot, ...] = ()
    if how == "unavailable":
        slots.set_available(gone, False)
    elif how == "retired":
        slots.retire(gone)
    elif how == "tried":
        tried = (gone,)
    else:
        pool_of(slots, [gone]).least_load()
    during = homes(slots, pool, KEYS, tried)
    moved = Counter(during[key] for key in KEYS if during[key] != before[key])
    assert all(during[key] == before[key] for key in KEYS if before[key] != 5)
    assert moved.keys() == set(range(12)) - {5}
    assert max(moved.values()) < 3 * min(moved.values())
    if how == "retired":
        (back,) = join(slots, group, 1, first=5)
        pool = pool_of(slots, [*members[:5], *members[6:], back])
    slots.set_available(gone, True)
    slots.release(gone)
    assert homes(slots, pool, KEYS) == before


def test_a_worker_that_joins_takes_its_share_and_moves_nothing_else() -> None:
    slots, members, pool = fleet(range(15))
    before = homes(slots, pool, KEYS)
    (new,) = join(slots, 0, 1, first=15)
    after = homes(slots, pool_of(slots, [*members.values(), new], seed=9), KEYS)
    moved = [key for key in KEYS if after[key] != before[key]]
    assert {after[key] for key in moved} == {15}
    assert len(moved) == pytest.approx(len(KEYS) / 16, rel=0.35)


def test_a_worker_that_changes_its_group_keeps_its_keys() -> None:
    slots, members, pool = fleet(range(8))
    before = homes(slots, pool, KEYS)
    other = slots.add_group(1.0, 0, 0, 0)
    for identity in (1, 4):
        slots.retire(members[identity])
        members[identity] = join(slots, other, 1, first=identity)[0]
    assert homes(slots, pool_of(slots, members.values(), seed=9), KEYS) == before


def test_a_higher_weight_only_draws_keys_to_the_worker_that_has_it() -> None:
    slots = Slots(seed=1)
    even, heavy = slots.add_group(1.0, 0, 0, 0), slots.add_group(3.0, 0, 0, 0)
    members = join(slots, even, 6)
    before = homes(slots, pool_of(slots, members), KEYS)
    slots.retire(members[2])
    (members[2],) = join(slots, heavy, 1, first=2)
    after = homes(slots, pool_of(slots, members), KEYS)
    assert {after[key] for key in KEYS if after[key] != before[key]} == {2}


# --- how even it is -------------------------------------------------------------------


def test_keys_are_spread_evenly() -> None:
    slots, _, pool = fleet(range(16))
    counts = Counter(homes(slots, pool, range(40_000)).values())
    assert -3 < chi_square(list(counts.values())) < 3


@pytest.mark.parametrize("others", [0, 130])
def test_workers_of_one_32_bit_seed_split_what_comes_to_it(others: int) -> None:
    """Seeds of 32 bits collide in large fleets: all 64 bits of the identity decide."""
    pair = colliding()
    slots, _, pool = fleet([*range(others), *pair])
    found = Counter(homes(slots, pool, range(40_000)).values())
    counts = [found[identity] for identity in pair]
    assert min(counts) > 0
    assert -3 < chi_square(counts) < 3


def colliding() -> list[int]:
    """Two identities that agree in the upper half of what `mix` makes of them."""
    halves = {3 << 32 | 5, 3 << 32 | 77}
    return [unmix(half) for half in sorted(halves)]


def unmix(x: int) -> int:
    """The inverse of the finaliser of splitmix64."""
    mask = 2**64 - 1
    x ^= x >> 31 ^ x >> 62
    x = x * pow(0x94D049BB133111EB, -1, 2**64) & mask
    x ^= x >> 27 ^ x >> 54
    x = x * pow(0xBF58476D1CE4E5B9, -1, 2**64) & mask
    return x ^ x >> 30 ^ x >> 60


@pytest.mark.parametrize(("factor", "absolute"), [(1.25, 0.0), (1.25, 4.0)])
def test_placing_100_000_keys_on_16_workers_is_balanced(
    factor: float, absolute: float
) -> None:
    slots, members, pool = fleet(range(16))
    for key in range(100_000):
        pool.consistent_hash(key, factor, absolute)
    loads = [slots.load_of(slot) for slot in members.values()]
    assert sum(loads) == 100_000
    assert max(loads) / (sum(loads) / 16) <= 1.25


def test_twice_the_weight_is_twice_the_share_of_the_keys() -> None:
    slots = Slots(seed=1)
    groups = [slots.add_group(weight, 0, 0, 0) for weight in (1.0, 2.0)]
    members = [join(slots, group, 5, first=10 * group) for group in groups]
    pool = pool_of(slots, chain(*members))
    for key in range(30_000):
        pool.consistent_hash(key, 0.0, 0.0)
    light, heavy = (sum(map(slots.load_of, group)) for group in members)
    assert heavy / light == pytest.approx(2.0, rel=0.03)


# --- bounded load ---------------------------------------------------------------------


def own_order(slots: Slots, pool: Pool, key: int) -> list[Slot]:
    """The workers in the order of this key, read by trying one after the other."""
    order: list[Slot] = []
    while slot := pool.consistent_hash(key, 0.0, 0.0, tuple(order)):
        order.append(slot)
        slots.release(slot)
    return order


def load(slots: Slots, slot: Slot, requests: int) -> None:
    """So many more requests in flight on a slot."""
    alone = pool_of(slots, [slot])
    for _ in range(requests):
        alone.least_load()


def test_a_hot_key_overflows_to_the_next_in_its_own_order() -> None:
    slots, _, pool = fleet(range(10))
    first, second, third, *_ = own_order(slots, pool, 77)
    load(slots, first, 6)
    assert pool.consistent_hash(77, 1.25, 4.0) is second
    slots.release(second)
    load(slots, second, 9)
    assert pool.consistent_hash(77, 1.25, 4.0) is third
    for _ in range(5):
        slots.release(first)
    assert pool.consistent_hash(77, 1.25, 4.0) is first


@pytest.mark.parametrize(
    ("on_first", "on_each_other", "factor", "absolute", "stays"),
    [
        (4, 0, 1.25, 4.0, True),  # mean 0.4: 3.6 above it
        (5, 0, 1.25, 4.0, False),  # mean 0.5: 4.5 above it
        (5, 0, 1.25, 4.5, False),  # so many above it is enough
        (24, 20, 1.25, 0.0, True),  # mean 20.4, 1.25 times is 25.5
        (26, 20, 1.25, 0.0, False),
        (26, 20, 1.25, 6.0, True),  # over one bound, not over the other
        (30, 20, 2.0, 4.0, True),
        (99, 20, 0.0, 0.0, True),  # no bound
    ],
)
def test_a_key_leaves_its_worker_only_above_both_bounds(
    on_first: int, on_each_other: int, factor: float, absolute: float, stays: bool
) -> None:
    slots, members, pool = fleet(range(10))
    first = own_order(slots, pool, 5)[0]
    for slot in members.values():
        load(slots, slot, on_first if slot is first else on_each_other)
    assert (pool.consistent_hash(5, factor, absolute) is first) == stays


def test_the_load_of_one_that_is_away_is_no_part_of_the_mean() -> None:
    slots, _, pool = fleet(range(10))
    first, second, *_, away = own_order(slots, pool, 77)
    load(slots, away, 100)
    load(slots, first, 6)
    assert pool.consistent_hash(77, 1.25, 4.0) is first
    slots.set_available(away, False)
    assert pool.consistent_hash(77, 1.25, 4.0) is second
    slots.set_available(away, True)
    assert pool.consistent_hash(77, 1.25, 4.0) is first


def test_the_bound_grows_with_the_weight() -> None:
    slots = Slots(seed=1)
    light = join(slots, slots.add_group(1.0, 0, 0, 0), 4)
    heavy = join(slots, slots.add_group(4.0, 0, 0, 0), 1, first=4)
    pool = pool_of(slots, light + heavy)
    for _ in range(2000):
        pool.consistent_hash(1, 1.25, 0.0)
    assert slots.load_of(heavy[0]) == pytest.approx(2000 / 8 * 4 * 1.25, rel=0.02)
    assert max(map(slots.load_of, light)) <= 2000 / 8 * 1.25 + 1


def test_one_hot_key_loads_no_worker_past_the_bound() -> None:
    slots, members, pool = fleet(range(16))
    for placed in range(1, 1601):
        pool.consistent_hash(42, 1.25, 0.0)
        top = max(slots.load_of(slot) for slot in members.values())
        assert top <= 1.25 * placed / 16 + 1


def test_when_all_left_are_above_the_bound_the_first_in_order_serves() -> None:
    slots, _, pool = fleet(range(4))
    order = own_order(slots, pool, 8)
    load(slots, order[0], 30)
    load(slots, order[1], 50)
    tried = (order[2], order[3])
    assert pool.consistent_hash(8, 1.25, 4.0, tried) is order[0]


def test_a_retry_takes_the_next_in_the_order_of_the_key() -> None:
    slots, members, pool = fleet(range(6))
    order = own_order(slots, pool, 123)
    assert len(order) == len(members)
    for i in range(6):
        assert pool.consistent_hash(123, 1.25, 4.0, tuple(order[:i])) is order[i]
