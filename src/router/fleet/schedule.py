"""When each server is probed, and what its probes add up to.

Owns the schedule and the thresholds. Pure: time is given and comes from anywhere,
nothing is awaited, and a key stands for a server (a base URL's life; all data-parallel
ranks behind it share its probes).

A server whose workers are all ready is *settled*: probed every interval. Any other is
probed again soon, and all of those together at a bounded rate, first come first
served, so that a thousand dead ones cost no more than the rate and delay nobody's
first probe.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

#: Seconds between the probes of a server that is not settled: at first, at last, and
#: how they grow.
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 0.75
PAUSE_GROWTH = 1.5
#: Probes a second of all servers that are not settled, beyond each one's first.
REPEATS_PER_SEC = 400
#: Seconds that may be caught up at once when the clock was looked at late.
CATCH_UP_SECS = 0.05
#: A settled server's next check comes at its interval times 1 -+ this.
JITTER = 0.1
#: The checks of settled servers are due at so many moments of an interval, or at more,
#: so that about TOGETHER of them meet: some that are made together cost a third of as
#: many that each wake an idle process up, but many would hold requests up.
MOMENTS = 20
TOGETHER = 25

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Vitals:
    """What is known of one server."""

    added_at: float
    up: bool = False
    settled: bool = False
    #: In a row.
    failures: int = 0
    successes: int = 0
    pause: float = FIRST_PAUSE
    #: Which of its entries in the queues counts: the last one made.
    entry: int = 0


class Schedule(Generic[Key]):
    """Probing times of all servers."""

    def __init__(
        self,
        *,
        interval: float,
        failure_threshold: int,
        success_threshold: int,
        startup_timeout: float = 0.0,
        random: Random | None = None,
    ) -> None:
        """`interval`: seconds between the checks of a settled server.

        `failure_threshold`: failed checks in a row that take a settled server down.
        `success_threshold`: good probes in a row that bring one up.
        `startup_timeout`: seconds until one that never settled is given up; 0: never.
        """
        self._interval = interval
        self._failure_threshold = failure_threshold
        self._success_threshold = success_threshold
        self._startup_timeout = startup_timeout
        self._random = random or Random()
        self._vitals: dict[Key, _Vitals] = {}
        #: Those that never settled, the longest waiting first.
        self._starting: dict[Key, float] = {}
        self._checks: list[tuple[float, int, Key]] = []
        self._repeats: list[tuple[float, int, Key]] = []
        self._entries = 0
        #: When the next repeat may be, were they evenly spaced.
        self._repeat_at = float("-inf")

    def __contains__(self, key: Key) -> bool:
        return key in self._vitals

    def add(self, key: Key, now: float) -> None:
        """A server that is new: its first probe is due at once."""
        self._vitals[key] = _Vitals(now)
        if self._startup_timeout:
            self._starting[key] = now
        self._plan(self._checks, key, now)

    def discard(self, key: Key) -> None:
        """A server that has gone."""
        self._vitals.pop(key, None)
        self._starting.pop(key, None)

    def due(self, now: float, limit: int) -> list[Key]:
        """The servers to be probed now, at most `limit`; each has its next time."""
        found: list[Key] = []
        # These first: they are bounded and so cannot keep the others waiting.
        while len(found) < limit and self._repeat_at <= now + CATCH_UP_SECS:
            if (key := self._pop(self._repeats, now)) is None:
                break
            self._repeat_at = max(self._repeat_at, now) + 1 / REPEATS_PER_SEC
            found.append(key)
        while len(found) < limit and (key := self._pop(self._checks, now)) is not None:
            found.append(key)
        for key in found:
            self._plan_next(key, now)
        return found

    def expired(self, now: float) -> list[Key]:
        """The servers that never settled within the startup timeout; once each."""
        found = []
        for key, added_at in self._starting.items():
            if now - added_at < self._startup_timeout:
                break
            found.append(key)
        for key in found:
            del self._starting[key]
        return found

    def next_due(self) -> float | None:
        """When `due` or `expired` will have something; None: never as it stands."""
        times = []
        if (due := self._head(self._checks)) is not None:
            times.append(due)
        if (due := self._head(self._repeats)) is not None:
            times.append(max(due, self._repeat_at - CATCH_UP_SECS))
        for added_at in self._starting.values():
            times.append(added_at + self._startup_timeout)
            break
        return min(times, default=None)

    def good(self, key: Key, now: float) -> bool:
        """A probe succeeded. True: that brought the server up."""
        vitals = self._vitals[key]
        vitals.failures = 0
        if vitals.up:
            return False
        vitals.successes += 1
        if vitals.successes >= self._success_threshold:
            vitals.up = True
            return True
        vitals.pause = FIRST_PAUSE
        self._plan(self._repeats, key, now + FIRST_PAUSE)
        return False

    def bad(self, key: Key, now: float, *, refused: bool) -> bool:
        """A probe failed, or a request found the port closed (`refused`).

        True: that took the server down. One that is settled, and so has requests,
        falls by its threshold, or at once if it is refused.
        """
        vitals = self._vitals[key]
        vitals.successes = 0
        vitals.failures += 1
        enough = vitals.failures >= self._failure_threshold
        if not vitals.up or (vitals.settled and not refused and not enough):
            return False
        vitals.up = False
        return True

    def settle(self, key: Key, now: float, settled: bool) -> None:
        """All workers of the server are ready, or not all."""
        vitals = self._vitals[key]
        if vitals.settled == settled:
            return
        vitals.settled = settled
        if settled:
            self._starting.pop(key, None)
            # Over the whole interval, so that workers that came at once are not checked
            # at once.
            share = self._random.random()
            self._plan_check(key, now + self._interval * share)
        else:
            vitals.pause = FIRST_PAUSE
            self._plan(self._repeats, key, now)

    def is_up(self, key: Key) -> bool:
        """Whether its probes say that it can serve."""
        return self._vitals[key].up

    def is_settled(self, key: Key) -> bool:
        """Whether all its workers were ready when last heard of."""
        return self._vitals[key].settled

    def _plan_next(self, key: Key, now: float) -> None:
        vitals = self._vitals[key]
        if vitals.settled:
            share = self._random.uniform(1 - JITTER, 1 + JITTER)
            self._plan_check(key, now + self._interval * share)
        else:
            # Servers that came together are spread, for the rate is theirs together.
            share = self._random.uniform(0.4, 1) if vitals.pause == FIRST_PAUSE else 1
            self._plan(self._repeats, key, now + vitals.pause * share)
            vitals.pause = min(vitals.pause * PAUSE_GROWTH, LONGEST_PAUSE)

    def _plan_check(self, key: Key, due: float) -> None:
        """The next check of a settled server, at the nearest moment for some."""
        moments = max(MOMENTS, len(self._vitals) // TOGETHER)
        grid = self._interval / moments
        self._plan(self._checks, key, round(due / grid) * grid)

    def _plan(self, queue: list[tuple[float, int, Key]], key: Key, due: float) -> None:
        """Its next probe; any other that was planned is off."""
        self._entries += 1
        self._vitals[key].entry = self._entries
        heapq.heappush(queue, (due, self._entries, key))

    def _head(self, queue: list[tuple[float, int, Key]]) -> float | None:
        """When the first entry that counts is due."""
        while queue:
            due, entry, key = queue[0]
            vitals = self._vitals.get(key)
            if vitals is not None and vitals.entry == entry:
                return due
            heapq.heappop(queue)
        return None

    def _pop(self, queue: list[tuple[float, int, Key]], now: float) -> Key | None:
        """The first entry that counts, if it is due."""
        due = self._head(queue)
        if due is None or due > now:
            return None
        return heapq.heappop(queue)[2]
