"""What is counted, and how Prometheus reads it.

Owns the counters that the data plane increments (plain numbers: a request costs a few
additions) and the list of metrics. A worker's and a model's series begin with its
registration and end with its removal; names that clients make up are counted together,
so that nobody can make the list grow. Knows nothing of HTTP.
"""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    ProcessCollector,
    generate_latest,
)

from router.fleet.change import Change
from router.fleet.snapshot import Snapshot, owner
from router.fleet.worker import Status, Worker
from router.observe.exposition import Histogram, family, labels
from router.observe.tally import Tally, add, taken, taken_once

#: Stands for every model name that no worker has, and for everything else unforeseen.
OTHER = "other"
#: Stands for requests without a model.
NO_MODEL = "none"
RETRY_REASONS = ("connect", "lost", "status", OTHER)
UPSTREAM_ERRORS = (
    "refused",  # nobody listens
    "connect_timeout",
    "unreachable",  # no route, no such name, ...
    "lost",  # connected, then gone before the answer's first byte
    "timeout",  # no answer in time
    "bad_response",
    "cut",  # died in the middle of an answer
    "idle_timeout",  # fell silent in the middle of an answer
    OTHER,
)
#: Status classes by status // 100; 0 is an attempt without an answer.
_CLASSES = ("none", *(f"{number}xx" for number in range(1, 10)))


class Fleet(Protocol):
    """The registry, or what follows one in another process."""

    @property
    def snapshot(self) -> Snapshot: ...
    def subscribe(self, callback: Callable[[Change], None]) -> object: ...


class WorkerSeries:
    """One worker's counters."""

    def __init__(self, url: str) -> None:
        self.labels = labels(worker=url)
        self.answers = [0] * len(_CLASSES)


class Metrics:
    """The router's counters. Attributes are read and incremented in place."""

    def __init__(
        self, registry: Fleet, load_of: Callable[[Worker], int], version: str
    ) -> None:
        """Counts from zero, and follows the fleet from now on.

        `load_of`: a worker's requests in flight. `version`: the router's own.
        """
        #: Requests whose client left before the answer was whole.
        self.aborts = 0
        #: Requests sent again because a reused connection had died; no retries.
        self.resends = 0
        #: Requests that had to wait for a worker, waited too long, and were refused
        #: since too many waited.
        self.held = 0
        self.hold_timeouts = 0
        self.hold_rejections = 0
        #: Data processes started in place of others that had died.
        self.process_restarts = 0
        self.duration = Histogram()
        self.first_byte = Histogram()
        self.retries = dict.fromkeys(RETRY_REASONS, 0)
        self.upstream_errors = dict.fromkeys(UPSTREAM_ERRORS, 0)
        snapshot = registry.snapshot
        names = (OTHER, NO_MODEL, *snapshot.pools)
        self._models = {name: [0] * len(_CLASSES) for name in names}
        self._workers = {w.id: WorkerSeries(w.url) for w in snapshot.workers}
        self._registry = registry
        self._gauges: list[tuple[str, str, Callable[[], int]]] = []
        self._gather: Callable[[], Awaitable[None]] | None = None
        self._load_of = load_of
        self._version = version
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)
        registry.subscribe(self._follow)

    def answered(
        self, model: str | None, status: int, seconds: float, first_byte: float
    ) -> None:
        """A client was answered, by a worker or by the router itself.

        `model`: as the client named it; None: the request had none. `seconds`: from the
        request's head to the answer's end; `first_byte`: to its first byte.
        """
        models = self._models
        counts = models[NO_MODEL] if model is None else models.get(model)
        (models[OTHER] if counts is None else counts)[status // 100] += 1
        self.duration.observe(seconds)
        self.first_byte.observe(first_byte)

    def attempted(self, worker_id: str, status: int) -> None:
        """A worker was tried. `status`: its answer's; 0: there was none."""
        series = self._workers.get(worker_id)
        if series is not None:
            series.answers[status // 100] += 1

    def retried(self, reason: str) -> None:
        """A request goes to another worker. `reason`: one of RETRY_REASONS."""
        self.retries[reason if reason in self.retries else OTHER] += 1

    def upstream_failed(self, kind: str) -> None:
        """An attempt failed. `kind`: one of UPSTREAM_ERRORS."""
        errors = self.upstream_errors
        errors[kind if kind in errors else OTHER] += 1

    def gauge(self, name: str, help: str, read: Callable[[], int]) -> None:
        """Shows what `read` says at each rendering, as fleetrouter_<name>.

        For what somebody else counts anyway, such as connections. Once per name.
        """
        self._gauges.append((f"fleetrouter_{name}", help, read))

    # --- several processes --------------------------------------------------------

    def gather_with(self, gather: Callable[[], Awaitable[None]]) -> None:
        """Others count, too: `gather` adds what they did, before it is shown."""
        self._gather = gather

    async def gathered(self) -> None:
        """Returns when all that is counted so far is here."""
        if self._gather is not None:
            await self._gather()

    def take(self) -> Tally:
        """What was counted since the last time, to be added elsewhere."""
        counters = {name: getattr(self, name) for _, _, name in _COUNTERS}
        for name in counters:
            setattr(self, name, 0)
        workers = {id: series.answers for id, series in self._workers.items()}
        return Tally(
            counters={name: count for name, count in counters.items() if count},
            duration=self.duration.take(),
            first_byte=self.first_byte.take(),
            retries=taken_once(self.retries),
            upstream_errors=taken_once(self.upstream_errors),
            answers=taken(self._models),
            attempts=taken(workers),
            gauges={name: read() for name, _, read in self._gauges},
        )

    def add(self, tally: Tally) -> None:
        """What another process counted; of workers and models that are still there."""
        for name, count in tally.counters.items():
            setattr(self, name, getattr(self, name) + count)
        self.duration.add(*tally.duration)
        self.first_byte.add(*tally.first_byte)
        for reason, count in tally.retries.items():
            self.retries[reason] += count
        for kind, count in tally.upstream_errors.items():
            self.upstream_errors[kind] += count
        for model, counts in tally.answers.items():
            add(self._models.get(model, self._models[OTHER]), counts)
        for worker_id, counts in tally.attempts.items():
            series = self._workers.get(worker_id)
            if series is not None:
                add(series.answers, counts)

    def _follow(self, change: Change) -> None:
        for worker in change.added:
            self._workers[worker.id] = WorkerSeries(worker.url)
        for worker in change.removed:
            self._workers.pop(worker.id, None)
        for name in change.models_added:
            self._models.setdefault(name, [0] * len(_CLASSES))
        for name in change.models_removed:
            if name not in (OTHER, NO_MODEL):
                self._models.pop(name, None)

    # --- rendering ----------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The exposition, line by line. Between two lines other work may be done.

        Empty ones are to be left out: they are but where other work may be done.
        """
        snapshot = self._registry.snapshot
        yield from self._requests()
        yield from self._upstream()
        yield from _fleet(snapshot)
        yield from self._per_worker(snapshot)
        yield generate_latest(self._process).decode().rstrip("\n")

    def render(self) -> str:
        """The exposition as one text."""
        return "\n".join(chain(filter(None, self.lines()), ("",)))

    def _requests(self) -> Iterator[str]:
        name = "fleetrouter_build_info"
        version = labels(version=self._version, python=platform.python_version())
        yield from family(name, "gauge", "What runs.", [f"{name}{{{version}}} 1"])
        models = ((labels(model=m), n) for m, n in [*self._models.items()])
        for name, help, read in self._gauges:
            yield from family(name, "gauge", help, [f"{name} {read()}"])
        yield from _by_class(
            "fleetrouter_requests_total",
            "Requests answered, by model and class of the answer's status.",
            models,
        )
        name = "fleetrouter_request_duration_seconds"
        samples = self.duration.samples(name)
        yield from family(
            name, "histogram", "From a request's head to its answer's end.", samples
        )
        name = "fleetrouter_first_byte_seconds"
        samples = self.first_byte.samples(name)
        yield from family(
            name, "histogram", "From a request's head to its answer's start.", samples
        )
        for name, help, attribute in _COUNTERS:
            value = getattr(self, attribute)
            yield from family(name, "counter", help, [f"{name} {value}"])

    def _upstream(self) -> Iterator[str]:
        yield from _by_label(
            "fleetrouter_retries_total",
            "Requests that went to another worker, by what the last one did.",
            "reason",
            self.retries,
        )
        yield from _by_label(
            "fleetrouter_upstream_errors_total",
            "Failed attempts, by kind.",
            "kind",
            self.upstream_errors,
        )

    def _per_worker(self, snapshot: Snapshot) -> Iterator[str]:
        """Only workers whose series have begun and not ended, in one order."""

        def pairs() -> Iterator[tuple[Worker, WorkerSeries]]:
            for slot in snapshot.slots:
                worker = owner(slot)
                if (series := self._workers.get(worker.id)) is not None:
                    yield worker, series

        name = "fleetrouter_worker_healthy"
        yield from family(
            name,
            "gauge",
            "1 if the worker is given requests.",
            (
                f"{name}{{{own.labels}}} {int(worker.status is Status.READY)}"
                for worker, own in pairs()
            ),
        )
        name = "fleetrouter_worker_in_flight"
        yield from family(
            name,
            "gauge",
            "Requests that the worker serves now.",
            (
                f"{name}{{{own.labels}}} {self._load_of(worker)}"
                for worker, own in pairs()
            ),
        )
        yield from _by_class(
            "fleetrouter_worker_attempts_total",
            "Attempts at a worker, by class of its answer's status.",
            ((own.labels, own.answers) for _, own in pairs()),
        )


#: (name, help, attribute of Metrics)
_COUNTERS = (
    (
        "fleetrouter_client_aborts_total",
        "Requests whose client left before the answer was whole.",
        "aborts",
    ),
    (
        "fleetrouter_resends_total",
        "Requests sent again because a reused connection had died.",
        "resends",
    ),
    (
        "fleetrouter_held_total",
        "Requests that had to wait for a worker.",
        "held",
    ),
    (
        "fleetrouter_hold_timeouts_total",
        "Requests that waited in vain.",
        "hold_timeouts",
    ),
    (
        "fleetrouter_hold_rejections_total",
        "Requests refused since too many waited.",
        "hold_rejections",
    ),
    (
        "fleetrouter_process_restarts_total",
        "Data processes started in place of others that had died.",
        "process_restarts",
    ),
)


def _by_class(
    name: str, help: str, rows: Iterable[tuple[str, Sequence[int]]]
) -> Iterator[str]:
    """A counter by status class; a class that never came has no series."""

    def samples() -> Iterator[str]:
        for own, counts in rows:
            if not any(counts):
                yield ""  # thousands of these are work, too
            for status, count in zip(_CLASSES, counts, strict=True):
                if count:
                    yield f'{name}{{{own},status="{status}"}} {count}'

    return family(name, "counter", help, samples())


def _by_label(
    name: str, help: str, label: str, counts: Mapping[str, int]
) -> Iterator[str]:
    return family(
        name,
        "counter",
        help,
        [f'{name}{{{label}="{value}"}} {count}' for value, count in counts.items()],
    )


def _fleet(snapshot: Snapshot) -> Iterator[str]:
    name = "fleetrouter_workers"
    yield from family(
        name,
        "gauge",
        "Workers by status.",
        [f'{name}{{status="{status}"}} {n}' for status, n in snapshot.counts.items()],
    )
    name = "fleetrouter_model_workers"
    rows = (f"{name}{{{labels(model=m)}}} {s.total}" for m, s in snapshot.readiness())
    yield from family(name, "gauge", "Workers that could serve the model.", rows)
    name = "fleetrouter_model_ready_workers"
    rows = (f"{name}{{{labels(model=m)}}} {s.ready}" for m, s in snapshot.readiness())
    yield from family(name, "gauge", "Workers of the model that are ready.", rows)
