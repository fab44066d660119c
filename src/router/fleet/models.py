"""Reading the workers' /v1/models: late joiners, LoRA adapters, other models.

Owns the reads in flight and what an answer means. When a list is read is decided by
the checks it is told of and by `reads`; what a list changes, by the registry, which
drops it if the worker's life is over by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from router._core import Slot
from router.fleet.client import Answer, Client, Failure
from router.fleet.reads import Reads
from router.fleet.registry import Registry
from router.fleet.target import Target
from router.fleet.worker import ModelCard

PATH = "/v1/models"
#: Entries of a list at most: far above any seen, for the index must stay bounded.
MOST_MODELS = 10_000
_LONGEST_ID = 512
SLOW = "model list: no answer in time"


@dataclass(slots=True)
class _State:
    #: The list was read since the server last came up.
    read: bool = False
    #: Good checks since it was last asked for.
    checks: int = 0


class ModelReader:
    """Reads the list of each server when its checks say so. Lives on one event loop."""

    def __init__(
        self,
        registry: Registry,
        client: Client,
        *,
        refresh_checks: int = 5,
        timeout: float = 5.0,
        api_key: str | None = None,
    ) -> None:
        """`refresh_checks`: a settled server's list is read at every so many checks.

        `timeout`: seconds for a read.
        `api_key`: bearer for servers without a key of their own.
        """
        self._registry = registry
        self._client = client
        self._refresh_checks = refresh_checks
        self._timeout = timeout
        self._api_key = api_key
        self._loop = asyncio.get_running_loop()
        self._reads: Reads[Target] = Reads()
        self._states: dict[Target, _State] = {}
        self._targets: dict[Slot, Target] = {}
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        #: Broken off, not ended yet.
        self._ending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, target: Target) -> None:
        """A server that is new."""
        self._states[target] = _State()
        self._reads.add(target)
        self._targets.update(dict.fromkeys(target.workers, target))

    def forget(self, slot: Slot) -> None:
        """A worker that has gone."""
        self._targets.pop(slot, None)

    def discard(self, target: Target) -> None:
        """A server that has gone with its last worker."""
        self._break_off(target)
        self._reads.discard(target)
        del self._states[target]
        self._pump()

    def due(self, target: Target) -> bool:
        """Whether the next check that the server passes has its list read."""
        state = self._states[target]
        due = state.checks + 1 >= self._refresh_checks
        return due or not state.read or target.unlisted

    def checked(self, target: Target) -> None:
        """The server passed a check: read its list if it is time."""
        due = self.due(target)
        self._states[target].checks += 1
        if due:
            self._ask(target)

    def lost(self, target: Target) -> None:
        """The server is down: its list is to be read anew when it is back."""
        self._states[target] = _State()
        self._break_off(target)
        self._reads.add(target)
        self._pump()

    def missing(self, slot: Slot) -> None:
        """The worker answered 404 for a model it was listed for: read it now."""
        target = self._targets.get(slot)
        if target is not None:
            self._ask(target)

    async def stop(self) -> None:
        """Ends all reads."""
        for target in list(self._tasks):
            self._break_off(target)
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _ask(self, target: Target) -> None:
        state = self._states[target]
        if self._reads.ask(target, self._loop.time(), first=not state.read):
            state.checks = 0
            self._pump()

    def _pump(self) -> None:
        """Starts what may start; breaks off what others wait for; comes back to it."""
        now = self._loop.time()
        for target in self._reads.overdue(now):
            self._break_off(target)
            self._timed_out(target)
        for target in self._reads.start(now):
            self._tasks[target] = self._loop.create_task(self._read(target))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (again := self._reads.next_overdue()) is not None:
            self._timer = self._loop.call_at(again, self._pump)

    def _break_off(self, target: Target) -> None:
        """Ends the server's read if one is in flight; its outcome counts no more."""
        task = self._tasks.pop(target, None)
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    def _timed_out(self, target: Target) -> None:
        self._reads.finished(target, self._loop.time(), timed_out=True)
        self._each(target, lambda s: self._registry.sync_failed(s, SLOW))

    async def _read(self, target: Target) -> None:
        answer = await self._client.get(
            target.endpoint,
            PATH,
            timeout=self._timeout,
            api_key=target.api_key or self._api_key,
        )
        del self._tasks[target]
        if answer.failure is Failure.TIMED_OUT:
            self._timed_out(target)
        else:
            self._reads.finished(target, self._loop.time(), timed_out=False)
            self._apply(target, answer)
        self._pump()

    def _apply(self, target: Target, answer: Answer) -> None:
        if answer.failure is Failure.OURS:
            return
        try:
            cards = None if answer.status == 404 else parse(answer)
        except UnreadableList as error:
            reason = f"model list: {error}"
            self._each(target, lambda s: self._registry.sync_failed(s, reason))
            return
        self._states[target].read = True
        self._each(target, lambda s: self._registry.sync_models(s, cards))

    def _each(self, target: Target, tell: Callable[[Slot], object]) -> None:
        with self._registry.together():
            for slot in target.workers:
                tell(slot)


class UnreadableList(Exception):
    """The answer is no model list; says why."""


class _Entry(msgspec.Struct):
    """What is used of an entry. A field of a wrong type is as good as none."""

    id: str
    parent: object = None
    root: object = None
    max_model_len: object = None
    created: object = None


class _List(msgspec.Struct):
    data: list[_Entry]


def parse(answer: Answer) -> tuple[ModelCard, ...]:
    """The entries of an OpenAI model list. Raises UnreadableList."""
    if answer.failure is not None:
        raise UnreadableList(answer.reason)
    if answer.status in (401, 403):
        raise UnreadableList(
            f"HTTP {answer.status}; give the worker's key with `api_key` or --api-key"
        )
    if not answer.good:
        raise UnreadableList(f"HTTP {answer.status}")
    try:
        entries = msgspec.json.decode(answer.body, type=_List).data
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableList("not the JSON of a model list") from error
    if len(entries) > MOST_MODELS:
        raise UnreadableList(f"more than {MOST_MODELS} entries")
    return tuple(_card(entry) for entry in entries if len(entry.id) <= _LONGEST_ID)


def _card(entry: _Entry) -> ModelCard:
    return ModelCard(
        id=entry.id,
        parent=entry.parent if isinstance(entry.parent, str) else None,
        root=entry.root if isinstance(entry.root, str) else None,
        max_model_len=_whole(entry.max_model_len),
        created=_whole(entry.created) or 0,
    )


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)
