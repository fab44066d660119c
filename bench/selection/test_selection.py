"""Per-model selection: the core, a full scan and a per-model index in plain Python.

A round is 1,000 requests, so a column in microseconds reads as nanoseconds a request
and one in milliseconds as microseconds. What CI holds is in test_ratios.py.
"""

from __future__ import annotations

import random
from time import thread_time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.selection.fleets import Core, FullScan, ModelIndex, Router, make_fleet

REQUESTS = 1000


@pytest.mark.parametrize("way", [Core, ModelIndex, FullScan])
@pytest.mark.parametrize("models", [1, 8, 1000])
@pytest.mark.parametrize("workers", [16, 512, 2000, 10_000])
@pytest.mark.benchmark(timer=thread_time, min_rounds=5, max_time=0.5, warmup=True)
def test_selection(
    benchmark: BenchmarkFixture,
    way: type[Core | ModelIndex | FullScan],
    workers: int,
    models: int,
) -> None:
    """Model name in, worker out, counted, and counted off again."""
    fleet = make_fleet(workers, models)
    router: Router = way(fleet)
    benchmark.group = f"{workers} workers, {models} models: pools of {fleet.pool}"
    benchmark(router.round, random.Random(2).choices(fleet.models, k=REQUESTS))
