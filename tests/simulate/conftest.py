"""A client session and small ways to ask, for all tests of the simulator."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
}


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def events(body: bytes) -> list[Any]:
    """The data of an SSE body, JSON decoded, "[DONE]" as itself."""
    assert body.endswith(b"\n\n")
    found = []
    for block in body.decode().removesuffix("\n\n").split("\n\n"):
        (data,) = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
        found.append(data if data == "[DONE]" else json.loads(data))
    return found
