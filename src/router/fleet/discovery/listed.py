"""Workers listed in a file: --workers-file.

Owns which workers the file has named, and makes the registry follow its list. What was
registered otherwise is not its business: a worker that the API put in the place of one
of the file's stays when the file's entry goes. Reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, replace

from router.errors import BadRequest, WorkerNotFound
from router.fleet import registration
from router.fleet.registry import Registry
from router.fleet.worker import Patch, Registration

#: What can be changed of a worker that stays.
_CHANGEABLE = tuple(item.name for item in fields(Patch))


def parse(entries: Iterable[object], *, dp_size: int = 1) -> tuple[Registration, ...]:
    """A registration for each entry: a URL, or what POST /workers takes.

    `dp_size`: ranks of an entry that does not say how many. Raises BadRequest naming
    the entry by its number.
    """
    found: dict[str, Registration] = {}
    for number, entry in enumerate(entries, 1):
        body = {"url": entry} if isinstance(entry, str) else entry
        try:
            wanted = registration.parse(body)
        except BadRequest as error:
            raise BadRequest(f"Entry {number}: {error.message}") from None
        if wanted.url in found:
            raise BadRequest(f"Entry {number}: its URL stands twice.")
        if wanted.dp_size is None and dp_size > 1:
            wanted = replace(wanted, dp_size=dp_size)
        found[wanted.url] = wanted
    return tuple(found.values())


class ListedWorkers:
    """The workers that a list names, in a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._named: dict[str, Registration] = {}
        #: The ids of the lives that this list began, by base URL.
        self._ids: dict[str, tuple[str, ...]] = {}

    def follow(self, wanted: Iterable[Registration]) -> None:
        """Makes the registry go by a new list, in one step.

        What is not named any more is drained. An entry that changed changes its
        worker, in place where that can be.
        """
        named = {entry.url: entry for entry in wanted}
        with self._registry.together():
            for url in self._named.keys() - named.keys():
                for worker_id in self._ids.pop(url):
                    with suppress(WorkerNotFound):
                        self._registry.drain(worker_id)
            for entry in named.values():
                self._have(entry)
        self._named = named

    def _have(self, entry: Registration) -> None:
        before = self._named.get(entry.url)
        if before is not None and self._there(entry.url):
            if before == entry:
                return
            patch = _difference(before, entry)
            if patch is not None:
                for worker_id in self._ids[entry.url]:
                    with suppress(WorkerNotFound):
                        self._registry.patch(worker_id, patch)
                return
        new = self._registry.register(entry).workers
        self._ids[entry.url] = tuple(worker.id for worker in new)

    def _there(self, url: str) -> bool:
        try:
            self._registry.find(url)
        except WorkerNotFound:
            return False
        return True


def _difference(before: Registration, after: Registration) -> Patch | None:
    """The patch from one to the other; None: it takes a new registration."""
    changed = {
        name: getattr(after, name)
        for name in _CHANGEABLE
        if getattr(after, name) != getattr(before, name)
    }
    return Patch(**changed) if replace(before, **changed) == after else None
