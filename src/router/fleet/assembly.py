"""From what each worker serves to the pools of the core.

Owns the candidate bitsets (one bit a slot, one set a model, one for the wildcards, one
for everyone), the groups of like workers, and the pools made of both. A change costs
what it touched: only sets that are dirty become new pools. That can be many, where a
wildcard comes to a fleet of 10,000 models, so they can be made in slices, before all of
them are published together. Called under the registry's lock; the pools it gives away
never change, its own bitsets never leave.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from router._core import Pool, Slot, Slots
from router.fleet.snapshot import Snapshot
from router.fleet.worker import Status

WORD_BITS = 64
#: Pools let go of at once.
MOST_TIDIED = 500


@dataclass(frozen=True, slots=True)
class Kind:
    """What workers of one group have in common: all that a pick looks at."""

    #: All they are candidates of, and those of them that are base models.
    names: frozenset[str]
    bases: frozenset[str]
    wildcard: bool
    weight: float
    tier: int
    provider: str | None
    #: Requests in flight at most; 0: no limit.
    limit: int


def hash64(text: str) -> int:
    """Hash of a name that is the same in every process, replica and restart."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def bit_words(capacity: int) -> NDArray[np.uint64]:
    """An empty set of slots."""
    return np.zeros(capacity // WORD_BITS, dtype=np.uint64)


def put_bit(words: NDArray[np.uint64], number: int, value: bool) -> None:
    """Puts a slot into a set, or takes it out."""
    bit = np.uint64(1 << (number % WORD_BITS))
    if value:
        words[number // WORD_BITS] |= bit
    else:
        words[number // WORD_BITS] &= ~bit


def grown(words: NDArray[np.uint64], capacity: int) -> NDArray[np.uint64]:
    """The same set with room for `capacity` slots."""
    if len(words) * WORD_BITS >= capacity:
        return words
    larger = bit_words(capacity)
    larger[: len(words)] = words
    return larger


@dataclass(slots=True)
class _Group:
    number: int
    members: int = 0


@dataclass(slots=True)
class _Provider:
    #: From 1, never used again: picks compare it.
    number: int
    groups: int = 0
    members: int = 0


@dataclass(slots=True, eq=False)
class _Candidates:
    """One set of workers that is to become a pool."""

    seed: int
    bits: NDArray[np.uint64]
    #: group -> how many of its members are in the set.
    groups: dict[int, int] = field(default_factory=dict)
    pool: Pool | None = None

    def add(self, number: int, group: int, capacity: int) -> None:
        self.bits = grown(self.bits, capacity)
        put_bit(self.bits, number, True)
        self.groups[group] = self.groups.get(group, 0) + 1

    def discard(self, number: int, group: int) -> None:
        put_bit(self.bits, number, False)
        self._leave(group)

    def move(self, left: int, joined: int) -> None:
        """A member changes its group."""
        self.groups[joined] = self.groups.get(joined, 0) + 1
        self._leave(left)

    def _leave(self, group: int) -> None:
        self.groups[group] -= 1
        if not self.groups[group]:
            del self.groups[group]

    def build(self, slots: Slots, others: _Candidates | None) -> Pool:
        """Replaces the pool; `others` are united in, each worker once."""
        self.bits = grown(self.bits, slots.capacity)
        bits = self.bits
        groups: Set[int] = self.groups.keys()
        if others is not None and others.groups:
            others.bits = grown(others.bits, slots.capacity)
            bits = bits | others.bits
            groups = groups | others.groups.keys()
        self.pool = Pool(slots, bits, groups, seed=self.seed, previous=self.pool)
        return self.pool


@dataclass(frozen=True, slots=True)
class Built:
    """The fields of the same names of a Snapshot, and which names came and went."""

    pools: dict[str, Pool]
    wildcards: Pool | None
    everyone: Pool
    default_model: str | None = None
    providers: dict[str, int] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def snapshot(
        self,
        version: int,
        counts: Mapping[Status, int],
        slots: tuple[Slot, ...],
        ready: NDArray[np.uint64],
    ) -> Snapshot:
        """What is published of it; the caller's counts and bits may change later."""
        return Snapshot(
            version=version,
            pools=self.pools,
            wildcards=self.wildcards,
            everyone=self.everyone,
            default_model=self.default_model,
            pending=counts[Status.PENDING],
            counts=dict(counts),
            providers=self.providers,
            slots=slots,
            ready=ready.copy(),
        )


class Assembly:
    """Candidate sets and groups of the whole fleet."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._groups: dict[Kind, _Group] = {}
        self._empty: set[Kind] = set()
        self._providers: dict[str, _Provider] = {}
        self._providers_made = 0
        #: Base model -> how many workers serve it.
        self._bases: dict[str, int] = {}
        self._models: dict[str, _Candidates] = {}
        self._wildcards = _Candidates(0, bit_words(slots.capacity))
        self._everyone = _Candidates(0, bit_words(slots.capacity))
        #: Names whose pool is to be made anew.
        self._dirty: set[str] = set()
        self._wildcards_dirty = False
        #: The pools of the next `build`, as far as they are made, and the names that
        #: it will have and the last one had not, or the other way round.
        self._pools: dict[str, Pool] = {}
        self._added: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        #: Pools that the next `build` replaces, and those that an earlier one did.
        self._replaced: list[Pool] = []
        self._stale: list[Pool] = []
        self._touched = False
        self._begun = False
        self._built = Built({}, None, self._everyone.build(slots, None))

    def group(self, kind: Kind) -> int:
        """Number of the group for workers of this kind, made if there is none."""
        group = self._groups.get(kind)
        if group is None:
            number = self._slots.add_group(
                kind.weight, kind.tier, self._provider(kind.provider), kind.limit
            )
            group = self._groups[kind] = _Group(number)
            self._empty.add(kind)
        return group.number

    def place(self, number: int, kind: Kind) -> None:
        """Puts a slot into the sets of its kind; `group` was asked for its group."""
        group = self._count(kind, 1)
        self._count_bases(kind.bases, 1)
        for candidates in self._touch(kind.names, kind.wildcard):
            candidates.add(number, group.number, self._slots.capacity)
        self._everyone.add(number, group.number, self._slots.capacity)

    def displace(self, number: int, kind: Kind) -> None:
        """Takes a slot out of the sets it was placed in."""
        group = self._count(kind, -1)
        self._count_bases(kind.bases, -1)
        for candidates in self._touch(kind.names, kind.wildcard):
            candidates.discard(number, group.number)
        self._everyone.discard(number, group.number)

    def move(self, number: int, old: Kind, new: Kind) -> None:
        """Takes a slot from the sets of one kind to those of another.

        `group` was asked for its group. As `displace` and `place`, for less where most
        names stay: a worker may have a thousand adapters and load one more.
        """
        left, joined = self._count(old, -1).number, self._count(new, 1).number
        self._count_bases(new.bases - old.bases, 1)
        self._count_bases(old.bases - new.bases, -1)
        stays = old.wildcard and new.wildcard
        for candidates in self._touch(old.names & new.names, stays):
            candidates.move(left, joined)
        for candidates in self._touch(old.names - new.names, old.wildcard > stays):
            candidates.discard(number, left)
        for candidates in self._touch(new.names - old.names, new.wildcard > stays):
            candidates.add(number, joined, self._slots.capacity)
        self._everyone.move(left, joined)

    def prepare(self, seconds: float) -> bool:
        """Makes pools of models for about so long; whether `build` has none to make."""
        deadline = time.perf_counter() + seconds
        if not self._begun and self._touched:
            self._begun = True
            self._pools = dict(self._built.pools)
        if self._wildcards_dirty:
            self._build_wildcards()
            self._dirty.update(self._models)
        while self._dirty:
            self._build_one(self._dirty.pop())
            if time.perf_counter() >= deadline:
                break
        return not self._dirty

    def build(self) -> Built:
        """New pools for what was touched since the last time, the old ones else."""
        if not self._touched:
            return self._built
        self.prepare(math.inf)
        self._touched = self._begun = False
        self._built = Built(
            self._pools,
            self._wildcards.pool,
            self._everyone.build(self._slots, None),
            next(iter(self._bases)) if len(self._bases) == 1 else None,
            {name: p.number for name, p in self._providers.items() if p.members},
        )
        told = replace(
            self._built, added=tuple(self._added), removed=tuple(self._removed)
        )
        self._added.clear()
        self._removed.clear()
        self._stale += self._replaced
        self._replaced.clear()
        return told

    def tidy(self) -> bool:
        """Lets go of some pools that were replaced; whether there are more.

        To be called after each `build`. Freeing thousands at once takes milliseconds.
        """
        del self._stale[-MOST_TIDIED:]
        return bool(self._stale)

    def forget_empty_groups(self) -> None:
        """Gives back the groups without members, once nothing published names them."""
        for kind in self._empty:
            self._slots.drop_group(self._groups.pop(kind).number)
            if kind.provider is not None:
                provider = self._providers[kind.provider]
                provider.groups -= 1
                if not provider.groups:
                    del self._providers[kind.provider]
        self._empty.clear()

    def _provider(self, name: str | None) -> int:
        """The provider's number for one group more."""
        if name is None:
            return 0
        provider = self._providers.get(name)
        if provider is None:
            self._providers_made += 1
            provider = self._providers[name] = _Provider(self._providers_made)
        provider.groups += 1
        return provider.number

    def _count(self, kind: Kind, change: int) -> _Group:
        group = self._groups[kind]
        group.members += change
        if group.members:
            self._empty.discard(kind)
        else:
            self._empty.add(kind)
        if kind.provider is not None:
            self._providers[kind.provider].members += change
        return group

    def _count_bases(self, names: Set[str], change: int) -> None:
        for name in names:
            count = self._bases.get(name, 0) + change
            if count:
                self._bases[name] = count
            else:
                del self._bases[name]

    def _build_one(self, name: str) -> None:
        candidates = self._models[name]
        known = name in self._built.pools
        if candidates.pool is not None:
            self._replaced.append(candidates.pool)
        if candidates.groups:
            self._pools[name] = candidates.build(self._slots, self._wildcards)
            self._removed.pop(name, None)
            if not known:
                self._added[name] = None
        else:
            del self._models[name]
            self._pools.pop(name, None)
            self._added.pop(name, None)
            if known:
                self._removed[name] = None

    def _build_wildcards(self) -> None:
        self._wildcards_dirty = False
        if self._wildcards.groups:
            self._wildcards.build(self._slots, None)
        else:
            self._wildcards.pool = None

    def _touch(self, names: Set[str], wildcard: bool) -> Iterator[_Candidates]:
        """The sets of these names, and of the wildcards; they will be made anew."""
        self._touched = True
        self._dirty |= names
        for name in names:
            candidates = self._models.get(name)
            if candidates is None:
                candidates = _Candidates(hash64(name), bit_words(self._slots.capacity))
                self._models[name] = candidates
            yield candidates
        if wildcard:
            self._wildcards_dirty = True
            yield self._wildcards
