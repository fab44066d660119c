"""Composition root: builds the objects, starts and stops them in order."""

from __future__ import annotations

from router.settings import Settings


def run(settings: Settings) -> int:
    """Runs a router until it is told to stop; the process's exit code."""
    raise NotImplementedError(f"no router for {settings} yet")
