"""fleetrouter: one address in front of a large fleet of vLLM servers.

Owns the version and nothing else; start reading at `router.proxy.exchange` (the way
of a request) or `router.fleet.registry` (the way of a worker).
"""

from importlib.metadata import version

__version__ = version("fleetrouter")

__all__ = ["__version__"]
