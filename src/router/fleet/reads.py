"""Which model list is read when: a queue with bounds, without any I/O.

Owns who waits, who is being read and who is to be left alone for a while. First reads
(of a worker that just came up) must never wait behind servers whose list hangs, so
they have room of their own, and if even that is full of lists that take long, the
longest-running read gives way. Time is given; a key stands for a server.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Reads in flight at most, and how many of them may be other than first reads.
MOST_READS = 32
MOST_OTHERS = 16
#: Seconds a read runs at least before it may have to give way.
GRACE_SECS = 0.5
#: Seconds a server is left alone after its list timed out; doubled each time.
FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 30.0
#: Seconds between two reads of a list at least, however often one is asked for.
LEAST_PAUSE = 0.2

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _State:
    backoff: float = FIRST_BACKOFF
    #: Not to be read before.
    not_before: float = float("-inf")
    timed_out: bool = False


class Reads(Generic[Key]):
    """The reads that are waiting and the reads in flight."""

    def __init__(self) -> None:
        self._states: dict[Key, _State] = {}
        #: Waiting, in the order they came.
        self._firsts: dict[Key, None] = {}
        self._others: dict[Key, None] = {}
        #: In flight since, the longest-running first; and which are first reads.
        self._running: dict[Key, float] = {}
        self._running_others: set[Key] = set()

    def add(self, key: Key) -> None:
        """A server that is new, or as good as new after an outage."""
        self._end(key)
        self._states[key] = _State()

    def discard(self, key: Key) -> None:
        """A server that has gone; the caller ends its read, if one is in flight."""
        self._states.pop(key, None)
        self._end(key)

    def ask(self, key: Key, now: float, *, first: bool) -> bool:
        """Puts a server in line. False: it is left alone for now, ask again later.

        Nothing changes for one that is waiting or being read. A read that timed out
        once is no first read any more until one succeeded.
        """
        state = self._states[key]
        if key in self._running or key in self._firsts or key in self._others:
            return True
        if now < state.not_before:
            return False
        queue = self._firsts if first and not state.timed_out else self._others
        queue[key] = None
        return True

    def start(self, now: float) -> list[Key]:
        """The servers to be read now."""
        started = []
        while self._firsts and len(self._running) < MOST_READS:
            started.append(self._run(self._firsts, now))
        while (
            self._others
            and len(self._running) < MOST_READS
            and len(self._running_others) < MOST_OTHERS
        ):
            key = self._run(self._others, now)
            self._running_others.add(key)
            started.append(key)
        return started

    def overdue(self, now: float) -> list[Key]:
        """The reads to be broken off, so that first reads that wait can start.

        The caller ends each and tells `finished` that it timed out.
        """
        wanted = len(self._firsts)
        room = MOST_READS - len(self._running)
        long = [k for k, since in self._running.items() if now - since >= GRACE_SECS]
        return long[: max(0, wanted - room)]

    def next_overdue(self) -> float | None:
        """When `overdue` may have something; None: nobody waits who could claim it."""
        if not self._firsts or not self._running:
            return None
        return next(iter(self._running.values())) + GRACE_SECS

    def finished(self, key: Key, now: float, *, timed_out: bool) -> None:
        """A read is over: with an answer of any kind, or without one in time."""
        self._end(key)
        state = self._states.get(key)
        if state is None:
            return
        state.timed_out = timed_out
        if timed_out:
            state.not_before = now + state.backoff
            state.backoff = min(state.backoff * 2, LONGEST_BACKOFF)
        else:
            state.not_before = now + LEAST_PAUSE
            state.backoff = FIRST_BACKOFF

    def _run(self, queue: dict[Key, None], now: float) -> Key:
        key = next(iter(queue))
        del queue[key]
        self._running[key] = now
        return key

    def _end(self, key: Key) -> None:
        self._firsts.pop(key, None)
        self._others.pop(key, None)
        self._running.pop(key, None)
        self._running_others.discard(key)
