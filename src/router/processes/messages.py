"""What the control process and a data process say to each other.

Owns the messages and how a worker is written in them. Slots are named by number and
generation, which are the same in every process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from router._core import Slot
from router.fleet.worker import Status, Worker
from router.observe.tally import Tally

#: Seconds between two times that a data process tells what it counted, be it nothing:
#: as much as a crash loses, and how the control process knows that it does not hang.
HEARTBEAT_SECONDS = 1.0

# --- to a data process ----------------------------------------------------------------


class Boot(msgspec.Struct, frozen=True, tag=True):
    """What a data process begins with. Numbers of descriptors are those it inherits."""

    #: Its row of the memory, and how many there are.
    row: int
    processes: int
    #: Pid of the control process.
    parent: int
    memory: int
    #: Takes connections to the admin application.
    door: int
    #: Its own listening sockets.
    listeners: tuple[int, ...]
    settings: bytes


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """A worker that is new or not as it was."""

    number: int
    generation: int
    #: As `encode_worker` wrote it.
    worker: bytes


class Publication(msgspec.Struct, frozen=True, tag=True):
    """What one publication of the registry changed; the first that is sent: all."""

    version: int
    counts: dict[Status, int]
    placed: list[Placed]
    #: Numbers of slots.
    removed: list[int]


class Ask(msgspec.Struct, frozen=True, tag=True):
    """What was counted is wanted now."""

    number: int


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Take no new connections, finish within so many seconds, and end."""

    within: float


Down = Publication | Ask | Drain

# --- to the control process -----------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Ready for the index."""


class Serving(msgspec.Struct, frozen=True, tag=True):
    """Takes connections."""


class Applied(msgspec.Struct, frozen=True, tag=True):
    """Requests go by this publication now."""

    version: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The worker's port was found closed."""

    number: int
    generation: int
    reason: str


class ModelMissing(msgspec.Struct, frozen=True, tag=True):
    """The worker answered 404 for a model that it is listed for."""

    number: int
    generation: int


class Counted(msgspec.Struct, frozen=True, tag=True):
    """What was counted since the last time. `asked`: the Ask it answers; 0: none."""

    tally: Tally
    asked: int


Up = Hello | Serving | Applied | Refused | ModelMissing | Counted

# --- workers --------------------------------------------------------------------------

_FIELDS = tuple(
    field.name for field in dataclasses.fields(Worker) if field.name != "slot"
)
#: A Worker without its slot, which is an object of one process.
_Fields = msgspec.defstruct(
    "_Fields",
    [(name, get_type_hints(Worker)[name]) for name in _FIELDS],
    frozen=True,
    array_like=True,
)


def plain(value: object) -> object:
    """What msgspec does not write by itself: read-only views of mappings."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"a message cannot hold {type(value)}")


_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_Fields)


def place(worker: Worker) -> Placed:
    """A worker as it is sent."""
    fields = _Fields(*(getattr(worker, name) for name in _FIELDS))
    slot = worker.slot
    return Placed(slot.number, slot.generation, _encoder.encode(fields))


def fields_of(placed: Placed) -> Any:
    """The fields of a worker but its slot, as attributes."""
    return _decoder.decode(placed.worker)


def worker_of(fields: Any, slot: Slot) -> Worker:
    """The worker of these fields, with its slot in this process."""
    return Worker(**{name: getattr(fields, name) for name in _FIELDS}, slot=slot)
