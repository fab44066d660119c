"""What the registry knows of one worker between publications.

Owns the facts as they come in (registration, list, health, breaker, drain) and the
rules that make a status and a Worker value of them. A record is changed under the
registry's lock only and never leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from router._core import Slot
from router.fleet import address
from router.fleet.address import Address
from router.fleet.assembly import Kind
from router.fleet.served import Served, given, listed
from router.fleet.worker import (
    PLACEHOLDER,
    Circuit,
    ModelCard,
    Patch,
    Registration,
    Status,
    Worker,
)

#: Why a healthy worker whose list was read is not ready.
EMPTY_LIST = "model list: it names no model"


@dataclass(slots=True, eq=False)
class Record:
    """A worker's life: from its registration to its removal or replacement."""

    registration: Registration
    #: Its newest value, and the one the published snapshot shows.
    worker: Worker
    published: Worker | None
    #: Where the candidate sets have it, and the core's group as of the publication.
    kind: Kind
    group: int

    #: Its own list; None: not read yet in this life, or overruled by a PATCH.
    cards: tuple[ModelCard, ...] | None = None
    #: The list was read since the last outage.
    list_fresh: bool = False
    list_error: str | None = None
    healthy: bool = False
    probe_error: str | None = None
    circuit: Circuit = Circuit.CLOSED
    draining: bool = False
    #: On the monotonic clock.
    drain_deadline: float | None = None

    @property
    def slot(self) -> Slot:
        return self.worker.slot

    @property
    def available(self) -> bool:
        """Whether picks may give it."""
        return self.worker.available

    def take_list(self, cards: Sequence[ModelCard] | None) -> None:
        """The worker's list was read; None: it has none, which leaves what was given.

        vLLM says `created` anew each time: the first one stays, so that an unchanged
        list changes nothing.
        """
        self.list_fresh = True
        self.list_error = None
        if cards is None:
            if self.cards is None and given(self.registration):
                return
            cards = ()
        known = {card.id: card for card in self.cards or ()}
        self.cards = tuple(_since(card, known.get(card.id)) for card in listed(cards))

    def miss_list(self, error: str) -> None:
        """The list could not be read."""
        self.list_error = error

    def take_health(self, healthy: bool, error: str | None) -> None:
        """The probes' verdict."""
        self.healthy = healthy
        self.probe_error = None if healthy else error
        if not healthy:
            self.list_fresh = False

    def take_circuit(self, circuit: Circuit) -> None:
        """The breaker's verdict."""
        self.circuit = circuit

    def drain(self, deadline: float | None) -> None:
        """No new requests. `deadline`: on the monotonic clock; None: as long as any."""
        self.draining = True
        self.drain_deadline = deadline

    def patch(self, patch: Patch) -> None:
        """Settings changed. Given models serve anew until the list is read again."""
        fields = {name: getattr(patch, name) for name in patch.__slots__}
        changes = {name: value for name, value in fields.items() if value is not None}
        self.registration = replace(self.registration, **changes)
        if patch.models is not None:
            self.cards = None

    def renewed(self, served: Served, now: float) -> Worker:
        """The worker's value after what has changed."""
        status = self._status(served)
        became_ready = status is Status.READY and self.worker.status is not Status.READY
        return replace(
            self.worker,
            models=served.models,
            aliases=served.aliases,
            names=served.names,
            renames=served.renames,
            wildcard=served.wildcard,
            status=status,
            circuit=self.circuit,
            weight=self.registration.weight,
            labels=self.registration.labels,
            priority=self.registration.priority,
            ready_at=now if became_ready else self.worker.ready_at,
            last_error=self._error(status),
        )

    def _error(self, status: Status) -> str | None:
        """What keeps it from being ready, or went wrong last."""
        error = self.probe_error or self.list_error
        if error is None and status is Status.PENDING and self.list_fresh:
            return EMPTY_LIST
        return error

    def _status(self, served: Served) -> Status:
        if self.draining:
            return Status.DRAINING
        # Another model may be served there after an outage. Where the list was never
        # read there is only what was given, before the outage and after it.
        known = self.list_fresh or self.cards is None
        if self.healthy and known and (served.names or served.wildcard):
            return Status.READY
        if self.worker.ready_at is None or (self.healthy and known):
            return Status.PENDING
        return Status.UNHEALTHY


def _since(card: ModelCard, before: ModelCard | None) -> ModelCard:
    """The card as it has been since it was first seen."""
    if before is None:
        return card
    same = (card.parent, card.root, card.max_model_len) == (
        before.parent,
        before.root,
        before.max_model_len,
    )
    return before if same else replace(card, created=before.created)


def worker_of(
    registration: Registration,
    rank: int | None,
    served: Served,
    base: Address,
    *,
    worker_id: str,
    slot: Slot,
    now: float,
) -> Worker:
    """A new worker, pending. `rank`: of data parallelism; None: it has none.

    `base`: the registration's URL, parsed.
    """
    return Worker(
        id=worker_id,
        url=url_of(registration, rank),
        base_url=base.url,
        endpoint=base.endpoint,
        dp_rank=rank,
        model_id=registration.model_id or PLACEHOLDER,
        models=served.models,
        aliases=served.aliases,
        names=served.names,
        renames=served.renames,
        wildcard=served.wildcard,
        status=Status.PENDING,
        circuit=Circuit.CLOSED,
        weight=registration.weight,
        max_concurrency=registration.max_concurrency,
        provider=registration.provider,
        api_key=registration.api_key,
        labels=registration.labels,
        priority=registration.priority,
        registered_at=now,
        ready_at=None,
        last_error=None,
        slot=slot,
    )


def url_of(registration: Registration, rank: int | None) -> str:
    """The worker's own URL: the base URL, with the rank behind it if it has one."""
    url = registration.url
    return url if rank is None else address.rank_url(url, rank)


def kind_of(registration: Registration, served: Served) -> Kind:
    """The group of like workers it belongs to."""
    return Kind(
        names=served.names,
        bases=frozenset(card.id for card in served.models if card.parent is None),
        wildcard=served.wildcard,
        weight=registration.weight,
        tier=registration.priority,
        provider=registration.provider,
        limit=registration.max_concurrency,
    )
