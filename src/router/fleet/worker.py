"""Workers as frozen values: who they are, what they serve, what is known of them.

Owns the values the rest of the fleet reads and passes on, and their JSON form. Knows
nothing of how they come about or change: the registry alone makes new ones, and a
Worker that was read stays what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from router._core import Slot

#: What vllm-router writes where it does not know a model yet. Never a model here.
PLACEHOLDER = "unknown"
#: In `models` of a registration: serves every model.
WILDCARD = "*"
#: `priority` of a worker that was given none.
DEFAULT_PRIORITY = 50


class Status(StrEnum):
    """What the router thinks of a worker. Only a ready one is given requests."""

    PENDING = "pending"  # never was ready, or its models are not known
    READY = "ready"
    UNHEALTHY = "unhealthy"  # was ready once; its models stay known
    DRAINING = "draining"  # no new requests; goes when empty


class Circuit(StrEnum):
    """State of a worker's breaker, as shown to operators."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One entry of a worker's /v1/models."""

    id: str
    #: Id of the base model if this is a LoRA adapter, else None.
    parent: str | None = None
    root: str | None = None
    #: Tokens; vLLM gives none for an adapter.
    max_model_len: int | None = None
    #: Seconds since the epoch, as the worker first said it (vLLM says "now").
    created: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a worker is reached: the parts of its base URL."""

    #: Name or address to connect to; an IPv6 address without its brackets.
    host: str
    port: int
    tls: bool
    #: Value of the Host header: brackets kept, the scheme's default port left out.
    authority: str


@dataclass(frozen=True, slots=True)
class Registration:
    """What POST /workers, a flag or a discovery source says about a base URL.

    `registration.parse` makes one from outside data and refuses what is wrong;
    `url` is in the normal form of `address.parse`.
    """

    url: str
    model_id: str | None = None
    models: tuple[str, ...] = ()
    #: alias -> model; None: the worker's first base model, whichever that is.
    aliases: Mapping[str, str | None] = field(default_factory=dict)
    weight: float = 1.0
    #: Requests in flight at most; 0: no limit.
    max_concurrency: int = 0
    provider: str | None = None
    api_key: str | None = field(default=None, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Data-parallel ranks behind the URL, each a worker; None: one worker, no rank.
    dp_size: int | None = None
    #: Number of the first rank.
    dp_start_rank: int = 0
    #: Failover tier, higher preferred.
    priority: int = DEFAULT_PRIORITY


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of a worker by PATCH /workers/{id}; None leaves a field alone."""

    weight: float | None = None
    priority: int | None = None
    labels: Mapping[str, str] | None = None
    models: tuple[str, ...] | None = None
    aliases: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker as it is now: a server, or one data-parallel rank of a server."""

    #: Opaque, new for each registration, without an address in it.
    id: str
    #: base_url, with @rank behind it for a data-parallel rank.
    url: str
    base_url: str
    endpoint: Endpoint
    dp_rank: int | None
    #: A label only; `unknown` if none was given.
    model_id: str
    #: What it serves now: its own list, or what was given until that was read.
    models: tuple[ModelCard, ...]
    #: Its own aliases -> model; None while the model is not known.
    aliases: Mapping[str, str | None]
    #: Every name it is a candidate of beside being a wildcard: models and aliases.
    names: frozenset[str]
    #: Name a client uses -> name in the forwarded body, where they differ.
    renames: Mapping[str, str]
    wildcard: bool
    status: Status
    circuit: Circuit
    weight: float
    max_concurrency: int
    provider: str | None
    api_key: str | None = field(repr=False)
    labels: Mapping[str, str]
    priority: int
    #: Seconds since the epoch.
    registered_at: float
    #: When it last became ready; None: never yet.
    ready_at: float | None
    #: Why the last probe or model read failed; None once it succeeded.
    last_error: str | None
    #: Its place in the core for its whole life; `slot.owner` is the newest Worker.
    slot: Slot = field(repr=False, compare=False)

    @property
    def available(self) -> bool:
        """Whether picks may give it."""
        return self.status is Status.READY and self.circuit is not Circuit.OPEN

    def __hash__(self) -> int:
        return hash(self.id)


def to_json(worker: Worker, load: int) -> dict[str, object]:
    """The worker as the admin API shows it. Secrets are left out.

    `load`: its requests in flight, which the core counts.
    """
    return {
        "id": worker.id,
        "url": worker.url,
        "base_url": worker.base_url,
        "dp_rank": worker.dp_rank,
        "model_id": worker.model_id,
        "models": [card.id for card in worker.models],
        "aliases": dict(worker.aliases),
        "status": str(worker.status),
        "is_healthy": worker.status is Status.READY,
        "circuit": str(worker.circuit),
        "load": load,
        "weight": worker.weight,
        "max_concurrency": worker.max_concurrency,
        "worker_type": "regular",
        "connection_mode": "http",
        "provider": worker.provider,
        "labels": dict(worker.labels),
        "priority": worker.priority,
        "registered_at": worker.registered_at,
        "ready_at": worker.ready_at,
        "last_error": worker.last_error,
    }
