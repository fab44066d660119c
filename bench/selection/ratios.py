"""How many times as long one way takes as another, whatever the machine.

Rounds of both are taken in turn, so that what else the machine does meets both alike,
their processor time is taken, which waiting for a processor is no part of, and the
medians are compared. Rounds last long enough that caches that others emptied while the
processor was theirs are filled again for most of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time_ns

Round = Callable[[Sequence[str]], None]

#: A round lasts about so long.
ROUND_NS = 16_000_000


def per_request(one: Round, names: Sequence[str]) -> float:
    """Nanoseconds a request, over one round."""
    start = thread_time_ns()
    one(names)
    return (thread_time_ns() - start) / len(names)


def fitting(one: Round, models: Sequence[str]) -> list[str]:
    """Names enough for a round of about ROUND_NS; warms up as well."""
    rng = random.Random(2)
    names = rng.choices(models, k=1)
    while (cost := per_request(one, names) * len(names)) < ROUND_NS / 8:
        names = rng.choices(models, k=len(names) * 4)
    return rng.choices(models, k=max(1, round(len(names) * ROUND_NS / cost)))


def compare(
    slow: Round, fast: Round, models: Sequence[str], rounds: int = 15
) -> tuple[float, float]:
    """Median nanoseconds a request of both, over rounds taken in turn."""
    few, many = fitting(slow, models), fitting(fast, models)
    times = [(per_request(slow, few), per_request(fast, many)) for _ in range(rounds)]
    return median(a for a, _ in times), median(b for _, b in times)
