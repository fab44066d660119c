"""A list in a file that is read again whenever the file changes.

Owns the look at the file, once a second, and what becomes of a bad edit: it is logged
and the last good list stays. Knows nothing of what the entries mean. What is wrong is
told without quoting the file, since it may hold keys.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import yaml

from router.errors import BadRequest

_log = logging.getLogger("router.fleet")

#: Seconds between two looks.
LOOK_SECONDS = 1.0
#: What changes when a file is written to, or another one is renamed over it.
_Stamp = tuple[int, int, int, int]

Item = TypeVar("Item")


def read_list(path: Path) -> list[object]:
    """The list in a YAML or JSON file; an empty file is an empty list.

    Raises OSError, or BadRequest that says what is wrong with it.
    """
    text = path.read_bytes()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = _yaml(text)
    if not isinstance(found, list):
        raise BadRequest("The file is not a list.")
    return found


def _yaml(text: bytes) -> object:
    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise BadRequest(f"The file is neither YAML nor JSON{where}.") from None
    return [] if found is None else found


class WatchedList(Generic[Item]):
    """Gives the list of a file away at start and after each change of it."""

    def __init__(
        self,
        path: str,
        parse: Callable[[list[object]], Item],
        take: Callable[[Item], None],
    ) -> None:
        """`parse`: makes sense of the entries, raises BadRequest, runs in a thread.
        `take`: is given the outcome, on the loop."""
        self._path = Path(path)
        self._parse = parse
        self._take = take
        self._seen: _Stamp | None = None
        self._task: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Reads it. Raises OSError, also for a file that is bad."""
        try:
            await self._read()
        except BadRequest as error:
            raise OSError(f"{self._path}: {error.message}") from None

    async def start(self) -> None:
        """Reads it, and again whenever it changes. Raises what `read` raises."""
        await self.read()
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Looks no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def look(self) -> None:
        """Reads it if it has changed since it was last read."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        try:
            await self._read()
        except OSError as error:
            self._stays(error.strerror)
        except BadRequest as error:
            self._stays(error.message)
        else:
            _log.info("file read again", extra={"file": str(self._path)})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def _read(self) -> None:
        # First the stamp: what is written while it is read is seen the next time.
        self._seen = self._stamp()
        self._take(await asyncio.to_thread(self._load))

    def _load(self) -> Item:
        return self._parse(read_list(self._path))

    def _stamp(self) -> _Stamp | None:
        """None: it cannot be seen, which is a change to be told of, too."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _stays(self, reason: str | None) -> None:
        _log.error(
            "file is bad, its last good list stays",
            extra={"file": str(self._path), "reason": reason},
        )
