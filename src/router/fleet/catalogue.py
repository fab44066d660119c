"""What the fleet can be asked for, as /v1/models lists it.

Owns how the lists of ready workers become one. Knows no other worker than those it is
given, one by one: a large fleet is gone through in several turns of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from router.fleet.worker import ModelCard, Status, Worker


class Catalogue:
    """What ready workers serve, aliases included, each name once."""

    def __init__(self) -> None:
        self._cards: dict[str, ModelCard] = {}
        self._aliases: dict[str, ModelCard] = {}

    def add(self, worker: Worker) -> None:
        """Takes up what the worker serves if it is ready; the first card stays."""
        if worker.status is not Status.READY:
            return
        for card in worker.models:
            self._cards.setdefault(card.id, card)
        # Names beyond its models are its aliases, and few.
        if len(worker.names) > len(worker.models):
            own = {card.id: card for card in worker.models}
            for name in worker.names - own.keys():
                if name not in self._aliases:
                    self._aliases[name] = alias_card(name, worker, own)

    def cards(self) -> tuple[ModelCard, ...]:
        """All of it, in an order that no worker's coming or going changes.

        Base models, adapters, aliases, and by name within each. Clients take the first
        for "the" model.
        """
        cards = self._cards
        bases = [card for card in cards.values() if card.parent is None]
        adapters = [card for card in cards.values() if card.parent is not None]
        others = [card for name, card in self._aliases.items() if name not in cards]
        return tuple(
            card
            for kind in (bases, adapters, others)
            for card in sorted(kind, key=attrgetter("id"))
        )


def alias_card(name: str, worker: Worker, own: Mapping[str, ModelCard]) -> ModelCard:
    """An alias is listed as its model under another name."""
    model = worker.renames.get(name, name)
    return replace(own.get(model, ModelCard(model, root=model)), id=name)
