"""The fixtures that several files here use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.edge.fleet import Admin, running_admin


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    """An admin application without a key."""
    async with running_admin() as running:
        yield running
