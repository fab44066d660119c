"""A server as probes and model reads see it: one base URL, for one life.

Owns the grouping of data-parallel ranks, which share their server's probes and list.
"""

from __future__ import annotations

from dataclasses import dataclass

from router._core import Slot
from router.fleet.worker import Endpoint, Status, Worker


@dataclass(slots=True, eq=False)
class Target:
    """The workers of a base URL from one registration to its end.

    Registering the URL again makes another target, so that what was still under way
    for the old one finds nobody.
    """

    base_url: str
    endpoint: Endpoint
    api_key: str | None
    #: The newest value of each of its workers that is still there.
    workers: dict[Slot, Worker]
    #: Why it is down, as the registry was last told.
    told: str | None = None

    @property
    def settled(self) -> bool:
        """Nothing more is expected of it: every worker is ready or on its way out."""
        return all(
            worker.status in (Status.READY, Status.DRAINING)
            for worker in self.workers.values()
        )

    @property
    def unlisted(self) -> bool:
        """A worker is in no real model's pool."""
        return any(not w.models and not w.aliases for w in self.workers.values())
