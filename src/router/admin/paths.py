"""Which paths are the router's own.

Owns the list; the data plane is given `is_admin_path` and asks it before anything
else, so it costs one look in a set and two comparisons.
"""

from __future__ import annotations

#: Answered by the admin application; everything else goes to a worker.
EXACT = frozenset(
    (
        b"/liveness",
        b"/readiness",
        b"/health",
        b"/metrics",
        b"/v1/models",
        b"/workers",
        b"/finish_session",
        b"/add_worker",
        b"/remove_worker",
        b"/list_workers",
        b"/get_loads",
        b"/flush_cache",
    )
)
PREFIXES = (b"/v1/models/", b"/workers/")

#: Asked for by machines that have no key: balancers, Prometheus, OpenAI clients.
OPEN = frozenset(("/liveness", "/readiness", "/health", "/metrics", "/v1/models"))
OPEN_PREFIX = "/v1/models/"


def is_admin_path(path: bytes) -> bool:
    """Whether the router itself answers this path (as sent, without its query)."""
    return path in EXACT or path.startswith(PREFIXES)


def is_open(path: str) -> bool:
    """Whether a path of the router is open to everybody."""
    return path in OPEN or path.startswith(OPEN_PREFIX)
