"""Who is in the fleet, under every name a worker can be asked for.

Owns the tables of records by slot, id and URL. Changed under the registry's lock only;
a look-up is one read of a dict and takes no lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from router._core import Slot
from router.errors import WorkerNotFound
from router.fleet import address
from router.fleet.record import Record


class Directory:
    """The records of the workers that are there, in registration order."""

    def __init__(self) -> None:
        self._by_slot: dict[Slot, Record] = {}
        self._by_id: dict[str, Record] = {}
        self._by_url: dict[str, Record] = {}
        #: In the order of ranks.
        self._by_base: dict[str, dict[Record, None]] = {}

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._by_slot)

    def add(self, record: Record) -> None:
        """Lists a worker last. Nobody has its slot, id or URL."""
        worker = record.worker
        self._by_slot[worker.slot] = record
        self._by_id[worker.id] = record
        self._by_url[worker.url] = record
        self._by_base.setdefault(worker.base_url, {})[record] = None

    def discard(self, record: Record) -> None:
        """Strikes a worker out of every table."""
        worker = record.worker
        del self._by_slot[worker.slot]
        del self._by_id[worker.id]
        del self._by_url[worker.url]
        ranks = self._by_base[worker.base_url]
        del ranks[record]
        if not ranks:
            del self._by_base[worker.base_url]

    def of(self, slot: Slot) -> Record | None:
        """The worker that has the slot; None: its life is over."""
        return self._by_slot.get(slot)

    def at(self, base_url: str) -> tuple[Record, ...]:
        """The workers of a base URL, in the order of their ranks."""
        return tuple(self._by_base.get(base_url, ()))

    def find(self, key: str) -> tuple[Record, ...]:
        """The worker of an id or URL; all ranks of a base URL.

        Raises WorkerNotFound.
        """
        if (record := self._by_id.get(key)) is not None:
            return (record,)
        url = address.lookup(key)
        if records := self.at(url):
            return records
        if (record := self._by_url.get(url)) is not None:
            return (record,)
        raise WorkerNotFound(f"No worker has the id or URL {key!r}.")
