"""The selection core: who may be picked, how loaded they are, who is picked.

Three words: a *slot* is a worker's place, a *group* is a class of workers alike (same
models, weight, tier, provider and limit), a *pool* is what one model can be served by:
its candidates, as bits over the slots, and the groups they are in.

A slot is eligible for a pick when it is a candidate, available, below its group's
limit, of the provider that is asked for and not tried before. The highest tier with an
eligible slot serves; that holds for every policy. A pick counts the request on the
slot before it returns; `Slots.release` counts it off.

Nothing here takes a lock: every method is one uninterrupted step under the GIL.
"""

from collections.abc import Iterable
from typing import Any, Self, SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

@final
class Slot:
    """A worker's place, for one life of that worker. Made by `Slots.acquire`.

    Every pick of the worker gives this same object. `number` is used again by another
    worker, with the next `generation`, once this one is retired and empty. `owner` is
    the caller's: the core never looks at it.
    """

    owner: Any
    def __init__(self, *args: object, **kwargs: object) -> None:
        """TypeError: only `Slots.acquire` makes slots."""

    @property
    def number(self) -> int: ...
    @property
    def generation(self) -> int: ...

@final
class Slots:
    """The places of all workers, and the groups they are in.

    A slot of other `Slots` is a ValueError in every method, and so is a number that is
    no group.

    Several processes may pick the same workers. Each has its own Slots, and its own row
    of the `rows` they share: what it counts on each slot. A slot's load is the own
    count, exact, plus those of the others as of the last `refresh`. One process alone
    gives out the slots' numbers; it has no row, and the others take its numbers over.
    """

    def __new__(
        cls,
        capacity: int = 64,
        *,
        seed: int | None = None,
        rows: NDArray[np.int32] | None = None,
        row: int = -1,
    ) -> Self:
        """Room for `capacity` slots at first; it doubles as needed.

        `seed`: of the random choices, taken modulo 2**64; None: from the system.
        `rows`: int32[processes, slots] in C order, slots a multiple of 64: as many as
        there can ever be. Kept, and written in place; all zero at first. `row`: this
        process's own; -1: it picks nothing and gives out the numbers. ValueError for
        rows of another shape and a row that there is not.
        """

    @property
    def capacity(self) -> int:
        """Slots there is memory for, a multiple of 64."""

    @property
    def load(self) -> NDArray[np.int32]:
        """What picks see by slot number: in flight, int32[capacity]; a copy."""

    @property
    def available(self) -> NDArray[np.uint64]:
        """Bit words over the slot numbers, uint64[capacity / 64]; a copy."""

    def at(self, number: int) -> Slot | None:
        """The slot that lives at this number; None: the number is free."""

    def load_of(self, slot: Slot) -> int:
        """Requests in flight on the slot; without an own row, of all rows now."""

    def is_available(self, slot: Slot) -> bool:
        """Whether picks may give the slot; never once retired."""

    def group_of(self, slot: Slot) -> int:
        """Number of the slot's group; -1 once retired."""

    def group_size(self, group: int) -> int:
        """Slots in the group, available or not."""

    def order(self, group: int) -> NDArray[np.int32]:
        """The group's available slots as the core holds them, by load; a copy.

        Random choices count along this order: what a second implementation needs to
        come to the same picks.
        """

    def acquire(
        self,
        owner: object,
        identity: SupportsIndex,
        group: int,
        place: tuple[int, int] | None = None,
    ) -> Slot:
        """A place for a worker: not available, no load of this process.

        `identity`: 64-bit hash of what the worker is known by everywhere (taken modulo
        2**64). Consistent hashing goes by it, so that restarts, replicas and processes
        agree. No pool has the slot before one that names it a candidate is published.
        `place`: number and generation, as the process that gives them out has them; to
        be given with an own row, and only then. Raises MemoryError, and ValueError for
        a place that is not free.
        """

    def retire(self, slot: Slot) -> None:
        """Take the slot out of its group for good. Again: nothing.

        Its number is used again only when its last request was released, and with
        rows, where numbers are given out, only when it was reclaimed.
        """

    def reclaim(self, slot: Slot) -> bool:
        """Free the number of a retired slot; False: a process counts something on it.

        For Slots with rows and no own row, which cannot know by themselves who still
        picks: to be called once every process has retired the slot. ValueError for one
        that is not retired, and for other Slots.
        """

    def refresh(self) -> int:
        """Count in what other processes count now; how many slots changed.

        Costs a look at each row, and a step of the order for each request more or
        less. Without rows: nothing. Raises MemoryError.
        """

    def release(self, slot: Slot) -> bool:
        """Count one request off. False, and nothing done, if this process counts none.

        So a release too many of a retired slot never reaches the worker that has the
        number now.
        """

    def set_available(self, slot: Slot, available: bool) -> None:
        """Let picks give the slot, or not, from now on. Of a retired slot: nothing."""

    def add_group(self, weight: float, tier: int, provider: int, limit: int) -> int:
        """A new group, empty; its number.

        `weight`: capacity of each of its workers, relative to others, above 0. `tier`:
        the higher is preferred. `provider`: 0 for none. `limit`: most requests in
        flight on one worker, 0 for no limit. ValueError for values out of range.
        """

    def drop_group(self, group: int) -> None:
        """Forget an empty group; its number is used again. ValueError if not empty."""

@final
class Pool:
    """What one model can be served by. Never changes, but for whose turn it is.

    `tried`: slots a pick must not give. `provider`: give only slots of groups of this
    provider; 0: of any. A pick gives None when no slot is eligible. TypeError for what
    is no slot, ValueError for slots of other `Slots`; both before anything is counted.
    """

    def __new__(
        cls,
        slots: Slots,
        candidates: NDArray[np.uint64],
        groups: Iterable[SupportsIndex],
        seed: SupportsIndex = 0,
        previous: Pool | None = None,
    ) -> Self:
        """A pool of these candidates.

        `candidates`: bit words over the slots; copied. `groups`: those the candidates
        are in once the pool is published, each once. `seed`: scope of the keys of
        `consistent_hash` (taken modulo 2**64). `previous`: the pool this one replaces;
        the rotation goes on where that one was. TypeError for another dtype,
        ValueError for bits that are no slots and numbers that are no groups.
        """

    @property
    def candidates(self) -> NDArray[np.uint64]:
        """The candidates, bit words without trailing zeros, read-only."""

    def __len__(self) -> int:
        """How many candidates."""

    def numbers(self) -> NDArray[np.int32]:
        """Slot numbers of the candidates, ascending."""

    def among(self, words: NDArray[np.uint64]) -> int:
        """How many candidates are in this set, bit words over the slots."""

    def available(self) -> int:
        """How many candidates could take a request now, of any provider."""

    def least_load(
        self, tried: tuple[Slot, ...] = (), provider: int = 0
    ) -> Slot | None:
        """The lowest (load + 1) / weight; all that tie are equally likely.

        Costs the same whatever the number of workers: it grows with the groups only.
        """

    def round_robin(
        self, tried: tuple[Slot, ...] = (), provider: int = 0
    ) -> Slot | None:
        """The next of a rotation that gives each its weight over a cycle.

        Smooth weighted rotation (as in nginx) between the groups, each counting weight
        times available workers; in order of slot number inside a group.
        """

    def random(self, tried: tuple[Slot, ...] = (), provider: int = 0) -> Slot | None:
        """Any, in proportion to weight."""

    def power_of_two(
        self, tried: tuple[Slot, ...] = (), provider: int = 0
    ) -> Slot | None:
        """Of two different ones drawn in proportion to weight, the less loaded."""

    def consistent_hash(
        self,
        key: SupportsIndex,
        factor: float,
        absolute: float,
        tried: tuple[Slot, ...] = (),
        provider: int = 0,
    ) -> Slot | None:
        """The first eligible slot in the key's own order of workers.

        The order is by weighted rendezvous hashing of identities: a worker that goes
        or is not available moves only its own keys, spread over all others, and they
        return with it; twice the weight is twice the share.

        `key`: 64-bit hash of the session (taken modulo 2**64). With `factor` above 0, a
        slot is passed over while its load is both more than `factor` times the mean and
        at least `absolute` more than the mean (mean over the available slots of the
        tier, in proportion to weight). ValueError for a `factor` that is neither 0 nor
        at least 1, or a negative `absolute`.
        """

@final
class Index:
    """What is published: one reference, read once per attempt."""

    def __new__(cls, slots: Slots) -> Self: ...
    @property
    def slots(self) -> Slots: ...
    @property
    def current(self) -> Any:
        """What was published last; None before."""

    def publish(
        self, current: object, moved: Iterable[Slot], groups: Iterable[SupportsIndex]
    ) -> None:
        """Move each slot of `moved` to the group beside it and make `current` current.

        One uninterrupted step: no pick sees a half. Retired slots are left out.
        ValueError and TypeError before anything is done.
        """
