"""A fleet without servers: workers that are ready because a test says so."""

from __future__ import annotations

from router._core import Index, Slots
from router.fleet.registry import Registry
from router.fleet.worker import ModelCard, Registration, Worker


class Fleet:
    """A registry over its own index, with a shortcut for ready workers."""

    def __init__(self) -> None:
        self.index = Index(Slots(seed=1))
        self.registry = Registry(self.index)

    def add(self, name: str, *models: str, **fields: object) -> Worker:
        """A ready worker that serves `models`; without any it stays pending."""
        registration = Registration(url=f"http://{name}:8000", **fields)  # type: ignore[arg-type]
        worker = self.registry.register(registration).workers[0]
        if models:
            self.registry.sync_models(worker.slot, [ModelCard(m) for m in models])
            self.registry.set_health(worker.slot, True)
        return self.registry.find(worker.id)

    def down(self, worker: Worker) -> None:
        """The worker is unhealthy from now on."""
        self.registry.set_health(worker.slot, False, "down")

    def up(self, worker: Worker, *models: str) -> None:
        """The worker is back, with these models."""
        self.registry.sync_models(worker.slot, [ModelCard(m) for m in models])
        self.registry.set_health(worker.slot, True)

    def load(self, worker: Worker) -> int:
        """Its requests in flight."""
        return self.index.slots.load_of(worker.slot)


class Counts:
    """A meter that only counts."""

    def __init__(self) -> None:
        self.aborts = self.resends = 0
        self.held = self.hold_timeouts = self.hold_rejections = 0

    def answered(
        self, model: str | None, status: int, seconds: float, first_byte: float
    ) -> None:
        pass

    def attempted(self, worker_id: str, status: int) -> None:
        pass

    def retried(self, reason: str) -> None:
        pass

    def upstream_failed(self, kind: str) -> None:
        pass
