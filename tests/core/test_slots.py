"""Slots: a worker's place, its load and its life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from router._core import Pool, Slot, Slots
from tests.core.fleet import bits, join, pool_of

#: The class without its types: what a caller that checks none may do.
make_pool: Any = Pool


def one_group() -> tuple[Slots, int]:
    slots = Slots(seed=1)
    return slots, slots.add_group(1.0, 0, 0, 0)


def test_a_new_slot_is_not_available_and_has_no_load() -> None:
    slots, group = one_group()
    slot = slots.acquire("worker", 7, group)
    assert (slot.number, slot.generation, slot.owner) == (0, 0, "worker")
    assert not slots.is_available(slot)
    assert slots.load_of(slot) == 0
    assert pool_of(slots, [slot]).least_load() is None


def test_a_pick_counts_and_gives_the_same_object() -> None:
    slots, group = one_group()
    (slot,) = join(slots, group, 1)
    pool = pool_of(slots, [slot])
    assert pool.least_load() is slot
    assert pool.least_load() is slot
    assert slots.load_of(slot) == slots.load[0] == 2
    assert slots.release(slot)
    assert slots.load_of(slot) == 1


def test_a_release_too_many_changes_nothing() -> None:
    slots, group = one_group()
    (slot,) = join(slots, group, 1)
    assert pool_of(slots, [slot]).least_load() is slot
    assert [slots.release(slot) for _ in range(3)] == [True, False, False]
    assert slots.load_of(slot) == 0


def test_a_number_is_used_again_only_when_its_last_request_is_released() -> None:
    slots, group = one_group()
    (old,) = join(slots, group, 1)
    pool_of(slots, [old]).least_load()
    slots.retire(old)
    slots.retire(old)
    assert slots.acquire("other", 1, group).number == 1
    assert slots.release(old)
    new = slots.acquire("next", 2, group)
    assert (new.number, new.generation) == (0, 1)


def test_a_late_release_of_a_removed_worker_spares_the_one_after_it() -> None:
    slots, group = one_group()
    (old,) = join(slots, group, 1)
    slots.retire(old)
    (new,) = join(slots, group, 1)
    assert new.number == old.number
    assert pool_of(slots, [new]).least_load() is new
    assert not slots.release(old)
    assert slots.load_of(new) == 1
    assert slots.load_of(old) == 0
    slots.set_available(old, False)
    assert slots.is_available(new)
    assert not slots.is_available(old)
    assert slots.group_of(old) == -1


def test_slots_grow_past_every_word_and_keep_what_they_count() -> None:
    slots, group = one_group()
    members = join(slots, group, 1)
    pool_of(slots, members).least_load()
    members += join(slots, group, 300, first=1)
    assert slots.capacity == 512
    pool = pool_of(slots, members)
    assert {pool.least_load() for _ in range(300)} == set(members[1:])
    assert slots.load.sum() == 301
    assert len(pool) == pool.available() == 301
    assert pool.numbers().tolist() == list(range(301))


@pytest.mark.parametrize(
    "call",
    [
        lambda slots, pool, foreign: slots.release(foreign),
        lambda slots, pool, foreign: slots.retire(foreign),
        lambda slots, pool, foreign: slots.set_available(foreign, True),
        lambda slots, pool, foreign: slots.load_of(foreign),
        lambda slots, pool, foreign: slots.group_of(foreign),
        lambda slots, pool, foreign: pool.least_load((foreign,)),
        lambda slots, pool, foreign: slots.acquire("x", 0, 1),
        lambda slots, pool, foreign: slots.acquire("x", 0, -1),
        lambda slots, pool, foreign: slots.order(1),
        lambda slots, pool, foreign: slots.drop_group(0),
        lambda slots, pool, foreign: slots.add_group(0.0, 0, 0, 0),
        lambda slots, pool, foreign: slots.add_group(float("nan"), 0, 0, 0),
        lambda slots, pool, foreign: slots.add_group(1.0, 0, -1, 0),
        lambda slots, pool, foreign: slots.add_group(1.0, 0, 0, -1),
        lambda slots, pool, foreign: Slots(-1),
        lambda slots, pool, foreign: Pool(slots, bits([0]), [1]),
        lambda slots, pool, foreign: Pool(slots, bits([0]), [0, 0]),
        lambda slots, pool, foreign: Pool(slots, bits([1]), [0]),
        lambda slots, pool, foreign: Pool(slots, bits([6400]), [0]),
        lambda slots, pool, foreign: pool.consistent_hash(1, 0.5, 0.0),
        lambda slots, pool, foreign: pool.consistent_hash(1, float("nan"), 0.0),
        lambda slots, pool, foreign: pool.consistent_hash(1, 1.25, -1.0),
    ],
)
def test_the_door_refuses_a_value_that_is_none_of_its_own(
    call: Callable[[Slots, Pool, Slot], object],
) -> None:
    slots, group = one_group()
    pool = pool_of(slots, join(slots, group, 1))
    other, its_group = one_group()
    (foreign,) = join(other, its_group, 1)
    with pytest.raises(ValueError, match=r"."):
        call(slots, pool, foreign)
    assert slots.load.sum() == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda slots, pool: Slot(),
        lambda slots, pool: slots.release(None),
        lambda slots, pool: slots.release(0),
        lambda slots, pool: slots.acquire("x", 0.5, 0),
        lambda slots, pool: pool.least_load(None),
        lambda slots, pool: pool.least_load((0,)),
        lambda slots, pool: pool.least_load([]),
        lambda slots, pool: pool.consistent_hash("key", 0.0, 0.0),
        lambda slots, pool: pool.consistent_hash(1.5, 0.0, 0.0),
        lambda slots, pool: make_pool(slots, [1], [0]),
        lambda slots, pool: Pool(slots, bits([0]).reshape(1, 1), [0]),
        lambda slots, pool: make_pool(None, bits([0]), [0]),
    ],
)
def test_the_door_refuses_a_value_of_another_type(
    call: Callable[..., object],
) -> None:
    slots, group = one_group()
    pool = pool_of(slots, join(slots, group, 1))
    with pytest.raises(TypeError):
        call(slots, pool)
    assert slots.load.sum() == 0


def test_a_slot_that_nobody_acquired_is_foreign_everywhere() -> None:
    slots, _ = one_group()
    with pytest.raises(ValueError, match="not of these slots"):
        slots.release(Slot.__new__(Slot))
