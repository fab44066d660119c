"""The selection core once more, in plain Python: slow, short and plain to see.

It takes two things from the core: the order in which a group holds its members, along
which random choices count, and nothing else. It knows numbers, loads and groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log

MASK = 2**64 - 1


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def rendezvous(identity: int, key: int, weight: float) -> tuple[float, int]:
    """What a worker bids for a key, both mixed already: the highest is first."""
    x = (identity >> 32 ^ key) * 0x7FEB352D & 0xFFFFFFFF
    x = ((x ^ x >> 15) + (key >> 32)) * 0x846CA68B & 0xFFFFFFFF
    x ^= x >> 16
    return -weight / log((x + 0.5) / 2**32), mix(identity ^ key)


@dataclass(eq=False)
class Group:
    weight: float
    tier: int
    provider: int
    limit: int
    order: Callable[[], list[int]]


@dataclass
class Pool:
    candidates: set[int]
    groups: list[Group]
    seed: int = 0
    credit: dict[Group, float] = field(default_factory=dict)
    last: dict[Group, int] = field(default_factory=dict)


Part = tuple[Group, list[int]]


@dataclass
class Oracle:
    random_state: int
    load: dict[int, int] = field(default_factory=dict)
    identity: dict[int, int] = field(default_factory=dict)

    def next_random(self) -> int:
        self.random_state = self.random_state + 0x9E3779B97F4A7C15 & MASK
        return mix(self.random_state)

    def below(self, n: int) -> int:
        while True:
            product = (self.next_random() >> 32) * n
            if product % 2**32 >= 2**32 % n:
                return product >> 32

    def has_room(self, group: Group, number: int) -> bool:
        return group.limit == 0 or self.load[number] < group.limit

    def score(self, group: Group, number: int) -> float:
        return (self.load[number] + 1) / group.weight

    def pick(
        self, pool: Pool, policy: str, tried: set[int], provider: int, *more: float
    ) -> int | None:
        """A choice over whole groups; over the permitted alone if that fails."""
        permitted = pool.candidates - tried
        for only in (None, permitted):
            found = [
                (group, [n for n in group.order() if self.has_room(group, n)])
                for group in pool.groups
                if provider in (0, group.provider)
            ]
            if only is not None:
                found = [(g, [n for n in m if n in only]) for g, m in found]
            top = max((g.tier for g, m in found if m), default=None)
            parts = [(g, m) for g, m in found if m and g.tier == top]
            if not parts:
                return None
            number = getattr(self, policy)(pool, parts, permitted, provider, *more)
            if number in permitted:
                self.load[number] += 1
                return int(number)
        raise AssertionError("somebody was permitted")

    def least_load(self, pool: Pool, parts: list[Part], *_: object) -> int:
        best = min(self.score(group, n) for group, m in parts for n in m)
        ties = [n for group, m in parts for n in m if self.score(group, n) == best]
        return ties[self.below(len(ties))]

    def draw(self, parts: list[Part], capacity: float) -> tuple[Group, int]:
        at = (self.next_random() >> 11) / 2**53 * capacity
        for group, members in parts:
            if at < group.weight * len(members):
                index = int(at / group.weight)
                return group, members[min(index, len(members) - 1)]
            at -= group.weight * len(members)
        return group, members[-1]

    def random(self, pool: Pool, parts: list[Part], *_: object) -> int:
        return self.draw(parts, capacity_of(parts))[1]

    def power_of_two(self, pool: Pool, parts: list[Part], *_: object) -> int:
        capacity = capacity_of(parts)
        one, first = self.draw(parts, capacity)
        others = [(g, [n for n in m if n != first]) for g, m in parts]
        if others := [(g, m) for g, m in others if m]:
            two, second = self.draw(others, capacity - one.weight)
            if self.score(two, second) < self.score(one, first):
                return second
        else:
            self.next_random()
        return first

    def round_robin(
        self, pool: Pool, parts: list[Part], permitted: set[int], *_: object
    ) -> int | None:
        share = {group: group.weight * len(members) for group, members in parts}
        credit = {group: pool.credit.get(group, 0.0) + share[group] for group in share}
        best = max(credit, key=lambda group: credit[group])
        turns = [n for n in sorted(best.order()) if self.has_room(best, n)]
        turns = [n for n in turns if n in permitted]
        if not turns:
            return None
        after = [n for n in turns if n > pool.last.get(best, -1)]
        pool.credit |= credit | {best: credit[best] - capacity_of(parts)}
        pool.last[best] = (after or turns)[0]
        return pool.last[best]

    def consistent_hash(
        self,
        pool: Pool,
        parts: list[Part],
        permitted: set[int],
        provider: int,
        key: int,
        factor: float,
        absolute: float,
    ) -> int:
        tier = parts[0][0].tier
        peers = [g for g in pool.groups if g.tier == tier]
        peers = [g for g in peers if provider in (0, g.provider)]
        total = sum(self.load[n] for g in peers for n in g.order())
        mean = total / capacity_of([(g, g.order()) for g in peers])
        key = mix(mix(pool.seed) ^ key & MASK)

        def over(group: Group, number: int) -> bool:
            load, fair = self.load[number], mean * group.weight
            return 0 < factor * fair < load and load - fair >= absolute

        bids = {
            rendezvous(self.identity[n], key, group.weight): (n, over(group, n))
            for group, members in parts
            for n in members
        }
        turns = [bids[bid] for bid in sorted(bids, reverse=True)]
        return min(turns, key=lambda turn: turn[1])[0]


def capacity_of(parts: list[Part]) -> float:
    capacity = 0.0
    for group, members in parts:  # sum() rounds differently from Python 3.12 on
        capacity += group.weight * len(members)
    return capacity
