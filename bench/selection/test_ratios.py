"""The claims about selection, as ratios within one run: what CI holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.selection.fleets import Core, FullScan, ModelIndex, Router, make_fleet
from bench.selection.policies import PlainPolicies, core_round, plain_round
from bench.selection.ratios import Round, compare

Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print whether or not the test passes."""

    def line(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end=" ")

    return line


def best_of_three(
    slow: Round, fast: Round, models: list[str], floor: float, say: Say, what: str
) -> float:
    """The ratio; the highest of up to three when the first is below the floor."""
    ratio = 0.0
    for _ in range(3):
        a, b = compare(slow, fast, models)
        ratio = max(ratio, a / b)
        say(f"{what}: {a:,.0f} ns / {b:,.0f} ns = {a / b:,.2f} (floor {floor:,})")
        if ratio >= floor:
            break
    return ratio


@pytest.mark.parametrize(
    ("baseline", "workers", "models", "floor"),
    [
        (FullScan, 512, 32, 100),
        (FullScan, 512, 1, 300),
        (FullScan, 10_000, 1, 5_000),
        (ModelIndex, 512, 32, 10),
        (ModelIndex, 512, 1, 200),
    ],
)
def test_least_load_takes_a_fraction_of_what_plain_python_takes(
    baseline: type[FullScan | ModelIndex],
    workers: int,
    models: int,
    floor: float,
    say: Say,
) -> None:
    fleet = make_fleet(workers, models)
    slow: Router = baseline(make_fleet(workers, models))
    what = f"{baseline.__name__}, {workers} workers in pools of {fleet.pool}"
    fast = Core(fleet)
    assert (
        best_of_three(slow.round, fast.round, fleet.models, floor, say, what) >= floor
    )


@pytest.mark.parametrize(
    ("workers", "models", "most"),
    [
        (10_000, 1, 1.5),  # one pool, 625 times as large
        (2_000, 125, 1.5),  # the pool as before, in a large fleet
    ],
)
def test_least_load_does_not_depend_on_the_size_of_pool_or_fleet(
    workers: int, models: int, most: float, say: Say
) -> None:
    """Against a fleet of 16 workers in one pool; requests are for one model."""
    large, small = Core(make_fleet(workers, models)), Core(make_fleet(16, 1))
    what = f"16 workers, {workers} in pools of {large.fleet.pool}"
    floor = round(1 / most, 2)
    ratio = best_of_three(
        small.round, large.round, small.fleet.models, floor, say, what
    )
    assert ratio >= floor


@pytest.mark.parametrize(
    ("policy", "workers", "floor"),
    [
        ("random", 16, 1.5),
        ("power_of_two", 16, 3),
        ("round_robin", 16, 1.5),
        ("consistent_hash", 16, 10),
        ("consistent_hash", 512, 100),
    ],
)
def test_a_policy_takes_a_fraction_of_what_plain_python_takes(
    policy: str, workers: int, floor: float, say: Say
) -> None:
    """Against the same policy over a per-model index."""
    fleet = make_fleet(workers, 1)
    slow = plain_round(PlainPolicies(fleet), policy)
    fast = core_round(Core(make_fleet(workers, 1)), policy)
    what = f"{policy} in plain Python, pool of {workers}"
    assert best_of_three(slow, fast, fleet.models, floor, say, what) >= floor


@pytest.mark.parametrize(
    ("policy", "workers", "most"),
    [
        ("random", 16, 1.5),
        ("power_of_two", 16, 1.5),
        ("round_robin", 16, 1.5),
        ("round_robin", 10_000, 2),
        ("consistent_hash", 16, 2.5),
        ("consistent_hash", 64, 2.5),
    ],
)
def test_a_policy_costs_about_what_least_load_costs(
    policy: str, workers: int, most: float, say: Say
) -> None:
    core = Core(make_fleet(workers, 1))
    one, least = core_round(core, policy), core_round(core, "least_load")
    floor = round(1 / most, 2)
    what = f"least_load, {policy}, pool of {workers}"
    assert best_of_three(least, one, core.fleet.models, floor, say, what) >= floor
