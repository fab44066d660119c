"""What the registry tells: the outcome of a registration, and each publication.

Owns two values, so that who follows the fleet need not know who writes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from router._core import Slot
from router.fleet.snapshot import Snapshot
from router.fleet.worker import Worker


@dataclass(frozen=True, slots=True)
class Registered:
    """Outcome of a registration."""

    #: One worker, or one a rank, in the order of ranks.
    workers: tuple[Worker, ...]
    #: The workers of the same base URL that had to go, as they last were.
    replaced: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What one publication changed."""

    snapshot: Snapshot
    added: tuple[Worker, ...]
    #: Their lives are over: removed, replaced, or drained and empty.
    removed: tuple[Worker, ...]
    #: (before, after) of the workers that stay and are not as they were.
    updated: tuple[tuple[Worker, Worker], ...]
    #: Names that became known, and names whose last worker left.
    models_added: tuple[str, ...]
    models_removed: tuple[str, ...]
    #: Of the workers that are gone, and of those that went before they were published.
    retired: tuple[Slot, ...] = ()
