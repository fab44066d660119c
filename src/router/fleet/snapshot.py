"""The published index: model name -> who can serve it.

Owns the value a request reads once per attempt (`index.current`). It never changes:
what a mutation touched is replaced in the next one. What may change under it between
two publications, and is therefore never copied into it, lives with the slots: load,
availability, and through `slot.owner` each worker's newest value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router._core import Pool, Slot
from router.fleet.catalogue import Catalogue
from router.fleet.worker import ModelCard, Status, Worker


@dataclass(frozen=True, slots=True)
class ModelReadiness:
    """How much of a model's pool is ready."""

    ready: int
    total: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Who is there and who serves what, as of one publication."""

    #: Counts publications.
    version: int
    #: Known name -> its pool: the workers that serve it, and the wildcards, each once.
    #: A name is known as long as a worker of it is registered, whatever its status.
    pools: Mapping[str, Pool]
    #: Pool of an unknown name; None: no wildcard worker is registered.
    wildcards: Pool | None
    #: Every worker: for a request without a model.
    everyone: Pool
    #: The fleet's only base model, for a request that could name one and does not.
    default_model: str | None
    #: Workers whose models are not known yet: an unknown model may be theirs.
    pending: int
    #: Workers by status; every status has a count.
    counts: Mapping[Status, int]
    #: Name of a provider -> its number in the core, from 1.
    providers: Mapping[str, int]
    #: A slot for each worker, in registration order.
    slots: tuple[Slot, ...]
    #: Bit words over slot numbers: the workers that are ready.
    ready: NDArray[np.uint64]

    def pool(self, model: str) -> Pool | None:
        """Candidates of `model`; None: nobody could serve it."""
        return self.pools.get(model, self.wildcards)

    def knows(self, model: str) -> bool:
        """Whether a registered worker names `model`; wildcards do not count."""
        return model in self.pools

    def provider(self, name: str) -> int | None:
        """The provider's number for picks; None: no worker is of it."""
        return self.providers.get(name)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Newest value of each worker of this publication, in registration order."""
        return tuple(owner(slot) for slot in self.slots)

    def workers_of(self, model: str) -> tuple[Worker, ...]:
        """All candidates of `model`, whatever their status, in registration order."""
        pool = self.pool(model)
        if pool is None:
            return ()
        numbers = set(pool.numbers().tolist())
        return tuple(owner(slot) for slot in self.slots if slot.number in numbers)

    def models(self) -> tuple[ModelCard, ...]:
        """What ready workers serve, as `Catalogue.cards` has it."""
        catalogue = Catalogue()
        for worker in self.workers:
            catalogue.add(worker)
        return catalogue.cards()

    def model(self, name: str) -> ModelCard | None:
        """The entry of this name among `models`; None: there is none."""
        catalogue = Catalogue()
        for worker in self.workers_of(name):
            catalogue.add(worker)
        return next((card for card in catalogue.cards() if card.id == name), None)

    def readiness(self) -> Iterator[tuple[str, ModelReadiness]]:
        """Each known name, and how much of its pool is ready."""
        for name, pool in self.pools.items():
            yield name, ModelReadiness(pool.among(self.ready), len(pool))


def owner(slot: Slot) -> Worker:
    """The newest value of the worker that has the slot."""
    worker = slot.owner
    assert isinstance(worker, Worker)
    return worker
