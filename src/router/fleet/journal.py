"""The log of the fleet: a line for what an operator would ask about.

Owns which change is worth a line, and at which level. Follows the registry like anybody
else.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Set

from router.fleet.change import Change
from router.fleet.worker import Status, Worker

#: Models that a line names.
MOST_NAMED = 20

_log = logging.getLogger(__name__)


def write(change: Change) -> None:
    """Logs what a publication changed; to be subscribed to a registry."""
    for worker in change.added:
        _log.debug("worker registered", extra=_fields(worker))
    for worker in change.removed:
        _log.info("worker removed", extra=_fields(worker))
    for before, after in change.updated:
        if after.status is not before.status:
            _log.log(_level(after), f"worker {after.status}", extra=_fields(after))
        came, went = after.names - before.names, before.names - after.names
        if came or went:
            models = {"came": _named(came), "went": _named(went)}
            _log.info("worker's models changed", extra=_fields(after) | models)


def _named(models: Set[str]) -> list[str]:
    """Some of them by name: a list may have thousands, and a line is for people."""
    some = heapq.nsmallest(MOST_NAMED, models)
    return some if len(models) <= len(some) else [*some, f"{len(models)} in all"]


def _level(worker: Worker) -> int:
    bad = worker.status in (Status.UNHEALTHY, Status.PENDING)
    return logging.WARNING if bad else logging.INFO


def _fields(worker: Worker) -> dict[str, object]:
    fields: dict[str, object] = {"worker": worker.id, "url": worker.url}
    if worker.last_error is not None:
        fields["reason"] = worker.last_error
    return fields
