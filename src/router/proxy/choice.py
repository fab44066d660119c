"""Which worker gets a request: from what it asks for to a slot, or to why not.

Owns the rules between a wish and a pool: requests without a model, unknown models,
providers, data-parallel ranks, waiting. Knows the fleet as a snapshot only, and
nothing of HTTP.
"""

from __future__ import annotations

import re

from router._core import Index, Pool, Slot, Slots
from router.errors import (
    BadRequest,
    ModelNotFound,
    ModelRequired,
    NoAvailableWorkers,
    RouterError,
)
from router.fleet.snapshot import Snapshot
from router.fleet.worker import Worker
from router.policy import Policy, Tried
from router.proxy.hold import HoldQueue, Kind
from router.proxy.meter import Meter
from router.proxy.wish import Wish

#: What the number of a rank looks like.
_RANK = re.compile(r"[0-9]{1,9}")


class Chooser:
    """Picks workers. A slot that is given is counted: whoever has it lets go of it."""

    def __init__(
        self, index: Index, policy: Policy, hold: HoldQueue, meter: Meter
    ) -> None:
        self._index = index
        self._slots = index.slots
        self._policy = policy
        self._hold = hold
        self._meter = meter

    @property
    def holds(self) -> bool:
        """Whether requests may wait for a worker at all."""
        return self._hold.timeout > 0

    def model_of(self, wish: Wish) -> str | None:
        """The model that is asked for: the fleet's only one, where a body names none.

        None: that cannot be told.
        """
        if wish.model is None and wish.has_body:
            snapshot: Snapshot = self._index.current
            return snapshot.default_model
        return wish.model

    async def wait(self, wish: Wish) -> Slot:
        """A slot for a request that found none, if it may wait for one.

        Raises NoAvailableWorkers, or what `now` raises.
        """
        if self._hold.full:
            if self.holds:
                self._meter.hold_rejections += 1
            raise _nobody(wish)
        self._meter.held += 1
        kind = Kind(wish.model, wish.provider, wish.rank, wish.has_body)
        slot = await self._hold.wait(kind, lambda: self.now(wish, ()), self.release)
        if slot is None:
            self._meter.hold_timeouts += 1
            raise _nobody(wish)
        return slot

    def now(self, wish: Wish, tried: Tried) -> Slot | None:
        """A slot that was not tried yet, or None; it does not wait.

        Raises ModelNotFound, ModelRequired or BadRequest where no waiting would help.
        """
        snapshot: Snapshot = self._index.current
        pool = _pool(snapshot, wish)
        if pool is None:
            return None
        provider = 0
        if wish.provider is not None:
            number = snapshot.provider(wish.provider)
            if number is None:
                return None
            provider = number
        if wish.rank is not None:
            tried += _other_ranks(self._slots, pool, wish.rank)
        return self._policy(pool, wish.session, tried, provider)

    def release(self, slot: Slot) -> None:
        """Lets go of a slot; the first request that waits for it has it."""
        self._slots.release(slot)
        if len(self._hold):
            self._hand_on(slot.owner)

    def _hand_on(self, worker: Worker) -> None:
        """The worker has one request less."""
        # For one without a limit nobody waits; one that is out takes nobody.
        if worker.max_concurrency:
            self._hold.wake(
                most=1,
                who=lambda kind: (
                    kind.model is None or kind.model in worker.names or worker.wildcard
                ),
            )


def _pool(snapshot: Snapshot, wish: Wish) -> Pool | None:
    """The candidates, or None while it is not known that there can be none."""
    model = wish.model
    if model is None:
        if not wish.has_body:
            return snapshot.everyone
        model = snapshot.default_model
        if model is None:
            if snapshot.pools:
                raise ModelRequired(
                    "The request names no model and this fleet serves several. "
                    "Name one in `model`; GET /v1/models lists them."
                )
            return snapshot.wildcards
    pool = snapshot.pool(model)
    if pool is None and not snapshot.pending:
        raise ModelNotFound(
            f"The model `{model}` does not exist. GET /v1/models lists those that do."
        )
    return pool


def _other_ranks(slots: Slots, pool: Pool, rank: str) -> Tried:
    """Slots that are logical workers of another rank than the one the client wants.

    A worker without ranks of its own is none of them: it gets the wish as it is.
    """
    wanted = int(rank) if _RANK.fullmatch(rank) else -1
    members = [slot for n in pool.numbers().tolist() if (slot := slots.at(n))]
    others = tuple(slot for slot in members if slot.owner.dp_rank not in (None, wanted))
    if others and len(others) == len(members):
        raise BadRequest(
            f"X-data-parallel-rank {rank} does not exist for this model.",
            param="X-data-parallel-rank",
        )
    return others


def _nobody(wish: Wish) -> RouterError:
    what = f"the model `{wish.model}`" if wish.model else "this request"
    return NoAvailableWorkers(f"No worker is available for {what} now. Try again soon.")
