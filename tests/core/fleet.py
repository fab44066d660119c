"""A small fleet on the core, as the tests here need it. Checks nothing itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from router._core import Pool, Slot, Slots


def bits(numbers: Iterable[int]) -> NDArray[np.uint64]:
    """Bit words over slot numbers."""
    chosen = sorted(numbers)
    words = np.zeros(chosen[-1] // 64 + 1 if chosen else 0, np.uint64)
    for number in chosen:
        words[number // 64] |= np.uint64(1 << number % 64)
    return words


def join(slots: Slots, group: int, count: int, first: int = 0) -> list[Slot]:
    """So many available slots in a group; owner and identity count from `first`."""
    joined = [slots.acquire(first + i, first + i, group) for i in range(count)]
    for slot in joined:
        slots.set_available(slot, True)
    return joined


def pool_of(
    slots: Slots, members: Iterable[Slot], seed: int = 0, previous: Pool | None = None
) -> Pool:
    """The pool of these slots, in the groups they are in now."""
    chosen = list(members)
    groups = sorted({slots.group_of(slot) for slot in chosen})
    return Pool(slots, bits(slot.number for slot in chosen), groups, seed, previous)


def chi_square(counts: list[int]) -> float:
    """Of the counts against all being equal, in standard deviations from its mean."""
    expected = sum(counts) / len(counts)
    freedom = len(counts) - 1
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    return float((statistic - freedom) / (2 * freedom) ** 0.5)
