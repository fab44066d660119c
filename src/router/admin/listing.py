"""The list of workers as JSON, quickly.

Owns what is kept of a worker's JSON: everything but load, status and circuit, which
are read anew each time. A fleet of 10,000 is a page of several megabytes; it is written
in slices, between which the loop serves requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from router.admin.turns import in_turns
from router.fleet.change import Change
from router.fleet.worker import Status, Worker, to_json

LoadOf = Callable[[Worker], int]


@dataclass(frozen=True, slots=True)
class _Parts:
    """A worker's JSON around what is live in it."""

    worker: Worker
    before: bytes
    after: bytes


class Listing:
    """Writes lists of workers, keeping what does not change."""

    def __init__(self, load_of: LoadOf) -> None:
        self._load_of = load_of
        self._parts = dict[str, _Parts]()

    def follow(self, change: Change) -> None:
        """Lets go of the workers that went."""
        for worker in change.removed:
            self._parts.pop(worker.id, None)
        if len(self._parts) > len(change.snapshot.slots):
            # A list was being written while one of its workers went.
            self._parts.clear()

    async def write(self, workers: Sequence[Worker]) -> bytes:
        """The body of GET /workers."""
        in_flight = 0
        counts = dict.fromkeys(Status, 0)

        def entry(worker: Worker) -> bytes:
            nonlocal in_flight
            load = self._load_of(worker)
            in_flight += load
            counts[worker.status] += 1
            parts = self._parts_of(worker)
            live = b'"status":"%b","is_healthy":%b,"circuit":"%b","load":%d' % (
                worker.status.encode(),
                b"true" if worker.status is Status.READY else b"false",
                worker.circuit.encode(),
                load,
            )
            return parts.before + live + parts.after

        written = await in_turns(entry, workers)
        stats = {
            "ready": counts[Status.READY],
            "pending": counts[Status.PENDING],
            "unhealthy": counts[Status.UNHEALTHY],
            "draining": counts[Status.DRAINING],
            "in_flight": in_flight,
        }
        tail = b'],"total":%d,"stats":%b}' % (len(workers), msgspec.json.encode(stats))
        if not written:
            return b'{"workers":[' + tail
        # A page of megabytes is put together once.
        written[0] = b'{"workers":[' + written[0]
        written[-1] += tail
        return b",".join(written)

    def _parts_of(self, worker: Worker) -> _Parts:
        parts = self._parts.get(worker.id)
        if parts is None or parts.worker is not worker:
            parts = self._parts[worker.id] = _split(worker)
        return parts


def _split(worker: Worker) -> _Parts:
    fields = to_json(worker, 0)
    names = list(fields)
    first, last = names.index("status"), names.index("load")
    before = msgspec.json.encode({name: fields[name] for name in names[:first]})
    after = msgspec.json.encode({name: fields[name] for name in names[last + 1 :]})
    return _Parts(worker, before[:-1] + b",", b"," + after[1:])
