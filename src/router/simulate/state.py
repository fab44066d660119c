"""What one simulated worker is between two requests: models, adapters, engines.

Owned by the worker, read and changed by its routes. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from .engine import Engine
from .shapes import Json, model_card
from .switches import Switches


class State:
    """The models, the engines (one a rank), the switches and the counts of a worker."""

    def __init__(
        self,
        served: Sequence[str],
        *,
        loras: Mapping[str, str],
        dp_size: int,
        max_num_seqs: int,
        max_num_queued_reqs: int,
        max_model_len: int,
        api_key: str | None,
        switches: Switches,
        seed: int,
    ) -> None:
        """served: names of the base model. loras: adapter name to path.

        Raises ValueError if no model is served or a size is below 1.
        """
        if not served or min(dp_size, max_num_seqs, max_model_len) < 1:
            raise ValueError("a worker serves a model and its sizes are at least 1")
        #: What the answers call this worker: its port, once it has one.
        self.name = ""
        self.served = tuple(served)
        self.loras = dict(loras)
        #: Adapters that were asked for since the start: vLLM reports only these.
        self.used_loras: dict[str, str] = {}
        self.max_model_len = max_model_len
        self.api_key = api_key
        #: Requests for the engine that were taken or refused since the start.
        self.requests = 0
        self._loras_at_start = dict(loras)
        self._switches = switches
        self._new_engine: Callable[[int], Engine] = lambda rank: Engine(
            max_num_seqs=max_num_seqs,
            max_num_queued_reqs=max_num_queued_reqs,
            random=Random(seed * 1009 + rank),
        )
        self.engines: tuple[Engine, ...] = ()
        self.boot(dp_size)

    def boot(self, dp_size: int | None = None) -> None:
        """Begins a new life: fresh engines, the adapters of the start, counts at 0."""
        ranks = len(self.engines) if dp_size is None else dp_size
        self.engines = tuple(self._new_engine(rank) for rank in range(ranks))
        self.loras = dict(self._loras_at_start)
        self.used_loras = {}
        self.requests = 0
        self.switches = self._switches

    @property
    def switches(self) -> Switches:
        return self._switches

    @switches.setter
    def switches(self, switches: Switches) -> None:
        self._switches = switches
        for engine in self.engines:
            engine.switches = switches
            engine.wake_all()

    @property
    def running(self) -> int:
        """Requests in the running batch, over all ranks."""
        return sum(len(engine.running) for engine in self.engines)

    @property
    def waiting(self) -> int:
        """Requests waiting for a seat, over all ranks."""
        return sum(len(engine.queue) for engine in self.engines)

    def knows(self, model: str) -> bool:
        return model in self.served or model in self.loras

    def cards(self) -> list[Json]:
        """The items of GET /v1/models: served names first, then the adapters."""
        base = [
            model_card(
                name,
                root=self.served[0],
                parent=None,
                max_model_len=self.max_model_len,
            )
            for name in self.served
        ]
        adapters = [
            model_card(name, root=path, parent=self.served[0], max_model_len=None)
            for name, path in self.loras.items()
        ]
        return base + adapters

    def least_busy_rank(self) -> int:
        """The rank vLLM's own balancing would give a request without a rank."""
        return min(
            range(len(self.engines)),
            key=lambda rank: (
                len(self.engines[rank].running) + len(self.engines[rank].queue)
            ),
        )
