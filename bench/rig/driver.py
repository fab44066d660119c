"""The rounds: which system runs which rows when, under the machine lock.

Each round measures every system once, so rounds alternate and a drift of the machine
touches all alike.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.rig import processes
from bench.rig.engines import PORT
from bench.rig.http import get
from bench.rig.measure import measure, settle, warm
from bench.rig.processes import Lock
from bench.rig.running import Failed, Running
from bench.rig.scenarios import (
    CACHE_WORKERS,
    FLEET_ROWS,
    IDLE_FLEET,
    SCENARIOS,
    Row,
)
from bench.rig.systems import SYSTEMS

#: Seconds without load before a fleet is put under load: what its checks cost.
_IDLE_BEFORE_S = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """What one call of the rig shall do."""

    systems: Sequence[str]
    scenarios: Sequence[str]
    rounds: int
    #: (workers, models) of S6 to S10.
    fleets: Sequence[tuple[int, int]]
    #: Seconds between two health checks, and for which S7 looks on.
    health_s: int
    idle_s: int
    lock: str
    #: JSON lines file of the records, and the folder of logs and configurations.
    out: Path
    dir: Path


class Bench:
    """One call of the rig: runs the rounds and keeps the records."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.records: list[dict[str, Any]] = []
        self._lock = Lock(options.lock)

    def run(self) -> None:
        """Every round of every scenario; what fails twice is a record of its own."""
        o = self.options
        by_policy: dict[str, list[str]] = {}
        for name in o.scenarios:
            if name in SCENARIOS:
                by_policy.setdefault(SCENARIOS[name].policy, []).append(name)
        for round_ in range(1, o.rounds + 1):
            for policy, scenarios in by_policy.items():
                what = f"{policy} {','.join(scenarios)}"
                for system in o.systems:
                    measured = partial(self._rows, system, scenarios, round_)
                    self._attempt(system, what, measured)
            for workers, models, policy in self._fleets():
                what = f"{workers} workers, {models} models, {policy}"
                for system in o.systems:
                    measured = partial(
                        self._fleet, system, workers, models, policy, round_
                    )
                    self._attempt(system, what, measured)
        if self._lock.waited:
            self._say(f"waited {self._lock.waited:.0f} s for the machine lock")

    def _fleets(self) -> list[tuple[int, int, str]]:
        """(workers, models, policy) of the fleets to start."""
        o, fleets = self.options, []
        if {"S6", "S7", "S9", "S10"} & set(o.scenarios):
            fleets += [(workers, models, "rr") for workers, models in o.fleets]
        if "S8" in o.scenarios:
            sizes = {n for n, models in o.fleets if models == 1 and n <= CACHE_WORKERS}
            fleets += [(workers, 1, "cache") for workers in sorted(sizes)]
        return fleets

    def _attempt(self, system: str, what: str, measured: Callable[[], None]) -> None:
        for last in (False, True):
            try:
                measured()
                return
            except Failed as error:
                self._say(f"{system}: {what}: {error}{'' if last else '; once more'}")
                if last:
                    self._record(
                        system=system, scenario="failed", row=what, error=str(error)
                    )

    def _running(
        self, name: str, policy: str, workers: int, models: int, lock: Lock | None
    ) -> Running:
        return Running(
            name,
            policy,
            workers,
            models,
            directory=self.options.dir,
            health_s=self.options.health_s,
            lock=lock,
        )

    def _rows(self, name: str, scenarios: Sequence[str], round_: int) -> None:
        """All rows of the scenarios that share a policy, in one run of the router."""
        spec, policy = SYSTEMS[name], SCENARIOS[scenarios[0]].policy
        if spec.command and policy not in spec.policies:
            return
        todo = [
            (scenario, row)
            for scenario in scenarios
            for row in SCENARIOS[scenario].rows
            if row.slow or not spec.slow
        ]
        with self._running(name, policy, 16, 1, None) as system:
            notes = system.preflight()
            warmed = False
            while todo:
                if not settle(system, 60):
                    self._say(f"{name}: still busy 60 s after the last row")
                with self._lock:
                    if not warmed:
                        warm(system)
                        warmed = True
                    for scenario, row in self._while_ours(system, todo):
                        figures = measure(system, row)
                        self._record(
                            system=name,
                            scenario=scenario,
                            row=row.label,
                            round=round_,
                            notes=notes,
                            **figures,
                        )
                        self._say(f"{name:14s} {scenario} {_line(row, figures)}")

    def _while_ours(
        self, system: Running, todo: list[tuple[str, Row]]
    ) -> Iterator[tuple[str, Row]]:
        """Take rows off `todo`: one, and more while the lock may be held."""
        fresh = True
        while todo and (fresh or self._lock.left() > todo[0][1].seconds + 0.5):
            if not settle(system, 1) and not fresh:
                return  # others have the machine meanwhile
            fresh = False
            yield todo.pop(0)

    def _fleet(
        self, name: str, workers: int, models: int, policy: str, round_: int
    ) -> None:
        """S6, S7, S9 and S10 (round robin) or S8 (cache-aware) for one fleet."""
        spec, chosen = SYSTEMS[name], self.options.scenarios
        if not spec.command or policy not in spec.policies:
            return
        if (models > 1 and not spec.several_models) or (
            spec.max_workers and workers > spec.max_workers
        ):
            return
        idle = policy == "rr" and "S7" in chosen and (workers, models) == IDLE_FLEET
        loads = [
            name
            for name in {"rr": ("S6", "S9", "S10"), "cache": ("S8",)}[policy]
            if name in chosen
        ]
        if not idle and not loads:
            return
        base = {
            "system": name,
            "row": f"{workers} workers, {models} model{'s' * (models > 1)}",
            "round": round_,
            "n": workers,
            "models": models,
        }
        with self._running(name, policy, workers, models, self._lock) as system:
            system.preflight()
            at_start = processes.rss_mb(system.family())
            if idle:
                self._idle(system, base)
            for load in loads:
                self._loaded(system, base, load, at_start)

    def _idle(self, system: Running, base: dict[str, Any]) -> None:
        family = system.family()
        time.sleep(2)
        with self._lock:
            system.engines.reset()
            share = _idle_pct(family, self.options.idle_s)
        stats = system.engines.stats()
        self._record(
            **base,
            scenario="S7",
            idle_pct=share,
            health=stats["health"],
            other=stats["other"],
            unknown=stats["unknown"],
            rss_mb=processes.rss_mb(family),
            threads=processes.threads(family),
        )
        self._say(
            f"{system.name:14s} S7 idle {share:.2f} % of a core; "
            f"{stats['health']} health checks, {stats['other']} other"
        )

    def _loaded(
        self, system: Running, base: dict[str, Any], scenario: str, at_start: float
    ) -> None:
        with self._lock:
            warm(system)
            settle(system, 1)
            idle = _idle_pct(system.family(), _IDLE_BEFORE_S)
            figures = measure(system, FLEET_ROWS[scenario])
            listing_ms = self._listing_ms(system)
        self._record(
            **base,
            scenario=scenario,
            idle_pct=idle,
            start_s=system.start_s,
            listen_s=system.listen_s,
            start_cpu_s=system.start_cpu_s,
            workers_ms=listing_ms,
            rss_start_mb=at_start,
            **figures,
        )
        self._say(
            f"{system.name:14s} {scenario} {base['row']:22s} "
            f"start {system.start_s:.2f} s  {figures['cpu_us'] or 0:.1f} us CPU  "
            f"{figures['rps']:.0f} req/s  /workers {listing_ms or 0:.2f} ms  "
            f"RSS {figures['rss_mb']:.0f} MB  used {figures['workers_used']}  "
            f"errors {figures['errors']}"
        )

    def _listing_ms(self, system: Running) -> float | None:
        """Median time of the list of workers, where there is one."""
        times: list[float] = []
        while system.spec.workers and len(times) < 15 and self._lock.left() > 1:
            begin = time.perf_counter()
            get(PORT, system.spec.workers, 20)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e3 if times else None

    def _record(self, **figures: Any) -> None:
        self.records.append(figures)
        with self.options.out.open("a") as file:
            file.write(json.dumps(figures) + "\n")

    def _say(self, text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def _idle_pct(family: list[int], seconds: float) -> float:
    """What these processes use of a core in the next `seconds`."""
    before = _idle_reading(family)
    time.sleep(seconds)
    after = _idle_reading(family)
    # A thread that ended took its nanoseconds with it: then the process's ticks.
    kind = 1 if after[0] >= before[0] else 2
    return 100 * (after[kind] - before[kind]) / (after[3] - before[3])


def _idle_reading(family: list[int]) -> tuple[int, float, float, float]:
    """(threads, CPU seconds of living threads, CPU seconds by ticks, now)."""
    return (
        processes.threads(family),
        processes.cpu_of_threads(family),
        processes.cpu_of(family)[0],
        time.time(),
    )


def _line(row: Row, figures: dict[str, Any]) -> str:
    return (
        f"{row.label:32s} {figures['rps']:9.0f} req/s "
        f"{figures['cpu_us'] or 0:8.1f} us CPU  "
        f"p50 {figures['p50_us'] / 1e3:.2f} p99 {figures['p99_us'] / 1e3:.2f} ms  "
        f"cores {figures['router_cores']:.2f}/{figures['load_cores']:.2f}/"
        f"{figures['foreign_cores']:.2f} errors {figures['errors']}"
    )
