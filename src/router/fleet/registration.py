"""What clients of the admin API may say about a worker, checked field by field.

Owns the shapes of POST /workers and PATCH /workers/{id}. Every mistake is a BadRequest
that names the field, an unknown field too: one that is taken and does nothing would
hide a typing error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from router.errors import BadRequest
from router.fleet import address
from router.fleet.worker import (
    DEFAULT_PRIORITY,
    PLACEHOLDER,
    WILDCARD,
    Patch,
    Registration,
)

#: Model ids are often paths; this is far above any seen.
_Name = Annotated[
    str, Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")
]
_Names = Annotated[list[_Name], Meta(max_length=10_000)]
_Aliases = dict[_Name, _Name] | list[_Name]
_Weight = Annotated[float, Meta(gt=0, le=1_000_000)]
_Priority = Annotated[int, Meta(ge=0, le=1_000_000)]
_Label = str | int | float | bool
_Labels = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=256)], _Label],
    Meta(max_length=64),
]
#: Visible ASCII: it stands in a header.
_Key = Annotated[str, Meta(max_length=4096, pattern=r"^[\x21-\x7e]+$")]
_Provider = Annotated[str, Meta(max_length=256, pattern=r"^[\x21-\x7e]+$")]

_PATH = re.compile(r" - at `\$\.(\w+)")
_FIELD = re.compile(r"(?:unknown|required) field `(\w+)`")

_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class _Post(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    model_id: _Name | None = None
    models: _Names | None = None
    aliases: _Aliases | None = None
    weight: _Weight = 1.0
    max_concurrency: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    provider: _Provider | None = None
    api_key: _Key | None = None
    labels: _Labels | None = None
    dp_size: Annotated[int, Meta(ge=1, le=4096)] | None = None
    priority: _Priority = DEFAULT_PRIORITY
    #: vllm-router's; it decides nothing there and nothing here.
    cost: _Label | None = None


class _Patch(msgspec.Struct, forbid_unknown_fields=True):
    weight: _Weight | None = None
    priority: _Priority | None = None
    labels: _Labels | None = None
    models: _Names | None = None
    aliases: _Aliases | None = None


def parse(body: object) -> Registration:
    """The registration in a decoded JSON body. Raises BadRequest."""
    post = _convert(body, _Post)
    labels = _labels(post.labels or {})
    if post.cost is not None:
        labels.setdefault("cost", _label(post.cost))
    return Registration(
        url=address.parse(post.url).url,
        model_id=post.model_id,
        models=tuple(post.models or ()),
        aliases=_aliases(post.aliases or {}),
        weight=post.weight,
        max_concurrency=post.max_concurrency,
        provider=post.provider,
        api_key=post.api_key,
        labels=labels,
        dp_size=post.dp_size,
        priority=post.priority,
    )


def parse_patch(body: object) -> Patch:
    """The change in a decoded JSON body. Raises BadRequest."""
    patch = _convert(body, _Patch)
    return Patch(
        weight=patch.weight,
        priority=patch.priority,
        labels=None if patch.labels is None else _labels(patch.labels),
        models=None if patch.models is None else tuple(patch.models),
        aliases=None if patch.aliases is None else _aliases(patch.aliases),
    )


def _convert(body: object, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        message = str(error)
        field = _PATH.search(message) or _FIELD.search(message)
        raise BadRequest(f"{message}.", param=field[1] if field else None) from error


def _aliases(given: Mapping[str, str] | list[str]) -> dict[str, str | None]:
    """alias -> model; in a list the model is the worker's first base model."""
    aliases: dict[str, str | None] = (
        dict.fromkeys(given) if isinstance(given, list) else dict(given)
    )
    for name in (*aliases, *aliases.values()):
        if name in (PLACEHOLDER, WILDCARD):
            raise BadRequest(f"`{name}` cannot be part of an alias.", param="aliases")
    return aliases


def _labels(given: Mapping[str, _Label]) -> dict[str, str]:
    return {name: _label(value) for name, value in given.items()}


def _label(value: _Label) -> str:
    """A label's text: what JSON would show."""
    return str(value).lower() if isinstance(value, bool) else str(value)
