"""The garbage collector beside the loop: the old are put aside, garbage is found."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from router.app import collector as module
from router.app.collector import Collector


class Ring:
    """Garbage that only the collector finds, once nobody holds it."""

    def __init__(self) -> None:
        self.ring = self


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def test_what_lives_long_is_not_looked_at_again() -> None:
    collector = Collector()
    collector.start()
    try:
        before = gc.get_freeze_count()
        kept = [Ring() for _ in range(2000)]
        gc.collect(1)
        assert gc.get_freeze_count() >= before + len(kept)
        assert not any(isinstance(held, Ring) for held in gc.get_objects())
    finally:
        collector.stop()


async def test_young_garbage_is_found() -> None:
    collector = Collector()
    collector.start()
    try:
        gone = weakref.ref(Ring())
        gc.collect(0)
        assert gone() is None
    finally:
        collector.stop()


async def test_old_garbage_is_found_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ASIDE", 1000)
    collector = Collector()
    collector.start()
    try:
        ring = Ring()
        gone = weakref.ref(ring)
        gc.collect(1)
        del ring
        gc.collect(1)
        assert gone() is not None, "put aside"
        kept = [Ring() for _ in range(1000)]
        gc.collect(1)
        await asyncio.sleep(0)
        assert gone() is None
        assert len(kept) == 1000
    finally:
        collector.stop()
