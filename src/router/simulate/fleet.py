"""Many simulated workers in one process.

Owns their common start and end; what one of them does is its own affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from .switches import Switches
from .worker import SimulatedWorker


class SimulatedFleet:
    """`workers` simulated workers, an async context manager, iterable, indexed."""

    def __init__(
        self,
        workers: int = 1,
        *,
        models: Sequence[str | Sequence[str]] = ("simulated",),
        host: str = "127.0.0.1",
        first_port: int = 0,
        loras: Mapping[int, Sequence[str]] | Sequence[str] = (),
        dp_size: int = 1,
        max_num_seqs: int = 256,
        max_num_queued_reqs: int = 0,
        max_model_len: int = 131072,
        api_key: str | None = None,
        keep_alive_secs: float = 5.0,
        switches: Switches | None = None,
    ) -> None:
        """Binds all the ports; nothing listens before `start`.

        models: taken in turn by the workers; an item that is itself a sequence is one
        worker's several served names. loras: adapters of every worker, or by its
        place. first_port: the others follow it; 0: free ones. Raises OSError if a port
        is taken.
        """
        if workers < 1 or not models:
            raise ValueError("a fleet has at least one worker and one model")
        self.workers: list[SimulatedWorker] = []
        try:
            for place in range(workers):
                model = models[place % len(models)]
                adapters = loras.get(place, ()) if isinstance(loras, Mapping) else loras
                worker = SimulatedWorker(
                    *((model,) if isinstance(model, str) else model),
                    host=host,
                    port=first_port + place if first_port else 0,
                    loras=adapters,
                    dp_size=dp_size,
                    max_num_seqs=max_num_seqs,
                    max_num_queued_reqs=max_num_queued_reqs,
                    max_model_len=max_model_len,
                    api_key=api_key,
                    keep_alive_secs=keep_alive_secs,
                    switches=switches,
                    seed=place,
                )
                self.workers.append(worker)
        except OSError:
            for worker in self.workers:
                worker.release()
            raise

    @property
    def urls(self) -> list[str]:
        return [worker.url for worker in self.workers]

    @property
    def running(self) -> int:
        """Requests in the engines of all workers, waiting ones included."""
        return sum(w.state.running + w.state.waiting for w in self.workers)

    async def start(self) -> None:
        for worker in self.workers:
            await worker.start()

    async def close(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self.workers))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __getitem__(self, place: int) -> SimulatedWorker:
        return self.workers[place]

    def __len__(self) -> int:
        return len(self.workers)

    def __iter__(self) -> Iterator[SimulatedWorker]:
        return iter(self.workers)
