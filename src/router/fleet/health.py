"""Probes: who is up, who is down, who comes back.

Owns the probes in flight. When each is due and what they add up to is decided by
`schedule`; what a verdict changes, by the registry, which is told with the slot of the
worker's life. Every probe runs by itself, so a server that hangs delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random

from router._core import Slot
from router.errors import WorkerNotFound
from router.fleet.change import Change
from router.fleet.client import Client, Failure
from router.fleet.models import ModelReader
from router.fleet.registry import Registry
from router.fleet.schedule import Schedule
from router.fleet.target import Target
from router.fleet.worker import Worker

#: Probes started in one turn, and seconds between two turns at least: a large fleet
#: that is registered at once must not hold up the requests.
BATCH = 16
TURN_SECS = 0.005
#: Probes of one server in flight: one may hang for its whole timeout while others find
#: out whether the server has come up meanwhile.
MOST_PROBES = 2
#: Seconds between two lines that tell of a shortage of the router's own.
SHORTAGE_SECS = 10.0

_log = logging.getLogger(__name__)


class Health:
    """Follows the registry and probes every server in it. Lives on one event loop."""

    def __init__(
        self,
        registry: Registry,
        models: ModelReader,
        client: Client,
        *,
        interval: float = 10.0,
        timeout: float = 5.0,
        endpoint: str = "/health",
        failure_threshold: int = 3,
        success_threshold: int = 1,
        startup_timeout: float = 0.0,
        api_key: str | None = None,
        random: Random | None = None,
    ) -> None:
        """Times are in seconds.

        `interval`: between the checks of a ready worker. `timeout`: of a probe.
        `failure_threshold`, `success_threshold`: failed checks in a row that take a
        ready worker out, good probes in a row that bring one in. `startup_timeout`:
        a worker that never was ready is removed after so long; 0: never. `api_key`:
        bearer for workers without a key of their own.
        """
        self._registry = registry
        self._models = models
        self._client = client
        self._endpoint = endpoint
        self._timeout = timeout
        self._api_key = api_key
        self._schedule: Schedule[Target] = Schedule(
            interval=interval,
            failure_threshold=failure_threshold,
            success_threshold=success_threshold,
            startup_timeout=startup_timeout,
            random=random,
        )
        self._loop = asyncio.get_running_loop()
        self._targets: dict[Slot, Target] = {}
        #: In flight, the oldest first.
        self._probes: dict[Target, list[asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for: float | None = None
        self._turned_at = self._shortage_again = float("-inf")
        self._unsubscribe = registry.subscribe(self._follow)
        self._admit(registry.workers())
        self._arm()

    def refused(self, slot: Slot, reason: str) -> None:
        """A request found the worker's port closed: out at once, and probed."""
        target = self._targets.get(slot)
        if target is not None:
            self._failed(target, reason, refused=True)
            self._arm()

    async def stop(self) -> None:
        """Ends all probes and follows no more."""
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
        for target in list(self._probes):
            self._break_off(target)
        await asyncio.gather(*self._ending, return_exceptions=True)

    # --- following the registry -------------------------------------------------------

    def _follow(self, change: Change) -> None:
        for worker in change.removed:
            self._dismiss(worker)
        self._admit(change.added)
        changed: dict[Target, None] = {}
        for _, worker in change.updated:
            target = self._targets.get(worker.slot)
            if target is not None:
                target.workers[worker.slot] = worker
                changed[target] = None
        now = self._loop.time()
        for target in changed:
            self._schedule.settle(target, now, target.settled)
        self._arm()

    def _admit(self, workers: tuple[Worker, ...]) -> None:
        """New workers: one target for those of a base URL."""
        new: dict[str, Target] = {}
        for worker in workers:
            target = new.get(worker.base_url)
            if target is None:
                target = Target(worker.base_url, worker.endpoint, worker.api_key, {})
                new[worker.base_url] = target
            target.workers[worker.slot] = worker
            self._targets[worker.slot] = target
        for target in new.values():
            self._probes[target] = []
            self._models.add(target)
            self._schedule.add(target, self._loop.time())

    def _dismiss(self, worker: Worker) -> None:
        target = self._targets.pop(worker.slot, None)
        if target is None:
            return
        self._models.forget(worker.slot)
        del target.workers[worker.slot]
        if not target.workers:
            self._break_off(target)
            del self._probes[target]
            self._schedule.discard(target)
            self._models.discard(target)

    # --- probing ----------------------------------------------------------------------

    def _arm(self) -> None:
        """Comes back when something is due."""
        due = self._schedule.next_due()
        at = None if due is None else max(due, self._turned_at + TURN_SECS)
        if at == self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = at
        self._timer = None if at is None else self._loop.call_at(at, self._turn)

    def _turn(self) -> None:
        self._armed_for = self._timer = None
        now = self._turned_at = self._loop.time()
        for target in self._schedule.expired(now):
            self._give_up(target)
        for target in self._schedule.due(now, BATCH):
            self._launch(target)
        self._arm()

    def _launch(self, target: Target) -> None:
        running = self._probes[target]
        if running and self._schedule.is_settled(target):
            return
        if len(running) >= MOST_PROBES:
            self._end(running.pop())
        running.append(self._loop.create_task(self._probe(target)))

    async def _probe(self, target: Target) -> None:
        answer = await self._client.get(
            target.endpoint,
            self._endpoint,
            timeout=self._timeout,
            api_key=target.api_key or self._api_key,
            whole=False,
            keep=self._models.due(target),
        )
        task = asyncio.current_task()
        self._probes[target] = [t for t in self._probes[target] if t is not task]
        if answer.good:
            self._passed(target)
        elif answer.failure is Failure.OURS:
            self._tell_shortage(answer.reason)
        else:
            reason = answer.reason or f"HTTP {answer.status}"
            refused = answer.failure is Failure.REFUSED
            self._failed(target, f"{self._endpoint}: {reason}", refused=refused)
        self._arm()

    def _tell_shortage(self, reason: str | None) -> None:
        """It is ours, and the same for all probes."""
        now = self._loop.time()
        if now >= self._shortage_again:
            self._shortage_again = now + SHORTAGE_SECS
            _log.warning("probes not possible", extra={"reason": reason})

    def _passed(self, target: Target) -> None:
        self._break_off(target)
        now = self._loop.time()
        target.told = None
        if self._schedule.good(target, now):
            with self._registry.together():
                for slot in target.workers:
                    self._registry.set_health(slot, True)
            self._schedule.settle(target, now, target.settled)
        if self._schedule.is_up(target):
            self._models.checked(target)

    def _failed(self, target: Target, reason: str, *, refused: bool) -> None:
        if self._schedule.bad(target, self._loop.time(), refused=refused):
            self._break_off(target)
            self._models.lost(target)
        if not self._schedule.is_up(target) and reason != target.told:
            target.told = reason
            with self._registry.together():
                for slot in target.workers:
                    self._registry.set_health(slot, False, reason)

    def _give_up(self, target: Target) -> None:
        for worker_id in [worker.id for worker in target.workers.values()]:
            try:
                (worker,) = self._registry.remove(worker_id)
            except WorkerNotFound:
                continue
            _log.warning(
                "worker dropped: not ready in time",
                extra={
                    "worker": worker.id,
                    "url": worker.url,
                    "last_error": worker.last_error,
                },
            )

    def _break_off(self, target: Target) -> None:
        """Ends the target's probes; what they would have found counts no more."""
        running = self._probes[target]
        while running:
            self._end(running.pop())

    def _end(self, task: asyncio.Task[None]) -> None:
        if task is not asyncio.current_task():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
