"""HOW a worker is chosen: pool and session -> slot, thin over the core.

Owns the names of the policies and what each does without a session key. Knows neither
models nor requests. A policy is a callable; the pick counts the load in the same step,
and whoever called lets go of the slot again.
"""

from __future__ import annotations

from typing import Protocol

from xxhash import xxh3_64_intdigest

from router._core import Pool, Slot

Tried = tuple[Slot, ...]


class Policy(Protocol):
    """Picks one of a pool's workers that can take a request now.

    `session`: what stays with one worker, if the policy knows sessions; None: nothing.
    `tried`: slots not to give again. `provider`: only its workers (0: any).
    Returns a slot whose load is counted already, or None if there is no such worker.
    """

    def __call__(
        self, pool: Pool, session: bytes | None, tried: Tried, provider: int
    ) -> Slot | None: ...


def least_load(
    pool: Pool, session: bytes | None, tried: Tried, provider: int
) -> Slot | None:
    """The worker with the fewest requests in flight for its weight; ties at random."""
    return pool.least_load(tried, provider)


def round_robin(
    pool: Pool, session: bytes | None, tried: Tried, provider: int
) -> Slot | None:
    """One after the other, twice as often for twice the weight."""
    return pool.round_robin(tried, provider)


def random(
    pool: Pool, session: bytes | None, tried: Tried, provider: int
) -> Slot | None:
    """Any of them, by weight."""
    return pool.random(tried, provider)


def power_of_two(
    pool: Pool, session: bytes | None, tried: Tried, provider: int
) -> Slot | None:
    """The less loaded of two drawn at random."""
    return pool.power_of_two(tried, provider)


class ConsistentHash:
    """The same session to the same worker, as long as that one is not overloaded.

    `factor` and `absolute`: a key overflows from a worker that is both above `factor`
    times the pool's mean load and `absolute` requests above it. Without a session it
    is least_load, so that requests without a key do not all meet on one worker.
    """

    def __init__(self, factor: float, absolute: float) -> None:
        self._factor = factor
        self._absolute = absolute

    def __call__(
        self, pool: Pool, session: bytes | None, tried: Tried, provider: int
    ) -> Slot | None:
        if session is None:
            return pool.least_load(tried, provider)
        return pool.consistent_hash(
            xxh3_64_intdigest(session), self._factor, self._absolute, tried, provider
        )


def make(name: str, *, balance_factor: float, balance_abs: float) -> Policy:
    """The policy of this name. Raises KeyError for a name that is none."""
    policies: dict[str, Policy] = {
        "least_load": least_load,
        "round_robin": round_robin,
        "random": random,
        "power_of_two": power_of_two,
        "consistent_hash": ConsistentHash(balance_factor, balance_abs),
    }
    return policies[name]
