"""A fleet of simulated vLLM workers: `router simulate`, `router demo`, the tests.

What a worker answers, and how it fails, follows real vLLM servers. Nothing here knows
the router: it is the other side of the wire, and talks HTTP only.
"""

from .fleet import SimulatedFleet
from .switches import ModelList, Switches
from .worker import SimulatedWorker

__all__ = ["ModelList", "SimulatedFleet", "SimulatedWorker", "Switches"]
