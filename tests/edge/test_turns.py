"""Long pages: written in turns, once for all who ask, and never of an older fleet."""

from __future__ import annotations

import asyncio

import pytest

from router.admin import turns
from router.admin.turns import Page, in_turns
from router.fleet.snapshot import Snapshot
from tests.fleet.fleets import join, make_registry


async def test_what_is_done_in_turns_is_done_in_order() -> None:
    assert await in_turns(str, range(1234)) == [str(number) for number in range(1234)]
    assert await in_turns(str, []) == []


async def test_others_run_between_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_SECS", 0.0)
    done = list[int]()
    seen = set[int]()

    async def look() -> None:
        while len(done) < 1000:
            seen.add(len(done))
            await asyncio.sleep(0)

    await asyncio.gather(in_turns(done.append, range(1000)), look())
    assert len(seen) > 5


async def test_a_page_is_written_once_for_a_publication() -> None:
    registry = make_registry()
    written = list[int]()

    async def write(snapshot: Snapshot) -> bytes:
        written.append(snapshot.version)
        await asyncio.sleep(0)
        return b"%d" % len(snapshot.slots)

    page = Page(write)
    asked = [page.of(registry.snapshot) for _ in range(3)]
    assert await asyncio.gather(*asked) == [b"0"] * 3
    assert len(written) == 1
    old = registry.snapshot
    join(registry, 1, "a")
    assert await page.of(registry.snapshot) == b"1"
    assert await page.of(old) == b"1", "never of an older fleet than was shown"
    assert len(written) == 2
