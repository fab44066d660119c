"""What a worker serves: one pure function of what was said and what was read.

Owns the precedence between what a registration gave, what the worker's own list says
and the aliases on top. Everything that decides candidates is decided here, once per
change; a request only looks a name up. Knows no other worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from router.fleet.worker import PLACEHOLDER, WILDCARD, ModelCard, Registration


@dataclass(frozen=True, slots=True)
class Served:
    """The fields of the same names of a Worker."""

    models: tuple[ModelCard, ...]
    aliases: Mapping[str, str | None]
    names: frozenset[str]
    renames: Mapping[str, str]
    wildcard: bool


class GlobalAliases:
    """Aliases of models wherever these are served (--model-alias)."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        """`aliases`: alias -> model, or another alias.

        Raises ValueError for a circle and for a name that is none.
        """
        self._by_model: dict[str, list[str]] = {}
        for alias in aliases:
            seen = [alias]
            while (model := aliases[seen[-1]]) in aliases:
                if model in seen:
                    raise ValueError(f"model alias {alias!r} leads back to itself")
                seen.append(model)
            if {alias, model} & {PLACEHOLDER, WILDCARD, ""}:
                raise ValueError(f"model alias {alias!r} = {model!r} is no alias")
            self._by_model.setdefault(model, []).append(alias)

    def of(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """(alias, model) of each alias of these models."""
        if not self._by_model:
            return []
        return [(alias, n) for n in names for alias in self._by_model.get(n, ())]

    def all(self) -> list[tuple[str, str]]:
        """(alias, model) of each alias."""
        return self.of(self._by_model)


def serve(
    registration: Registration,
    cards: tuple[ModelCard, ...] | None,
    global_aliases: GlobalAliases,
    *,
    unlisted_wildcard: bool,
) -> Served:
    """What a worker serves.

    `cards`: the worker's own list; None while it was not read. An empty one counts as
    a wildcard's if `unlisted_wildcard`.
    """
    models = given(registration) if cards is None else cards
    ids = {card.id for card in models}
    wildcard = WILDCARD in registration.models or (unlisted_wildcard and cards == ())
    base = _first_base(models)
    aliases = {
        alias: base if model is None else model
        for alias, model in registration.aliases.items()
    }
    # An alias stays whatever the list says, but it leads nowhere while the list names
    # models and not its own.
    anything = wildcard or not models
    live = {a: m for a, m in aliases.items() if anything or m is None or m in ids}
    renames = {a: m for a, m in live.items() if m and m != a and a not in ids}
    names = ids | live.keys()
    for alias, model in global_aliases.all() if wildcard else global_aliases.of(names):
        if alias not in names:
            renames[alias] = renames.get(model, model)
    return Served(
        models=models,
        aliases=aliases,
        names=frozenset(names | renames.keys()),
        renames=renames,
        wildcard=wildcard,
    )


def given(registration: Registration) -> tuple[ModelCard, ...]:
    """The models that a registration itself names, as cards.

    `model_id` counts where no `models` are given; the placeholder never does.
    """
    names = registration.models or (registration.model_id or PLACEHOLDER,)
    return tuple(
        ModelCard(name)
        for name in dict.fromkeys(names)
        if name not in (PLACEHOLDER, WILDCARD)
    )


def listed(cards: Iterable[ModelCard]) -> tuple[ModelCard, ...]:
    """A worker's list, each id once and without the ids that cannot be models."""
    unique: dict[str, ModelCard] = {}
    for card in cards:
        if card.id not in (PLACEHOLDER, WILDCARD, ""):
            unique.setdefault(card.id, card)
    return tuple(unique.values())


def _first_base(models: tuple[ModelCard, ...]) -> str | None:
    return next((card.id for card in models if card.parent is None), None)
