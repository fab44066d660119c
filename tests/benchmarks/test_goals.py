"""What a run's records say of the goals."""

from __future__ import annotations

import re

import pytest
from bench.goals import Results, goals, report
from bench.rig.scenarios import SCENARIOS
from bench.suite import PARTS


def records(**cpu: float) -> dict[str, list[dict[str, object]]]:
    """Three rounds of S1 at 64 connections."""
    row = {"scenario": "S1", "row": "64 connections"}
    rounds = (0.9, 1.0, 5.0)
    return {
        "ends": [
            {"system": system.replace("_", "-"), **row, "cpu_us": value * drift}
            for drift in rounds
            for system, value in cpu.items()
        ]
    }


@pytest.mark.parametrize(
    ("ours", "line"), [(12.0, "| 1.2 | 1.3 | yes |"), (14.0, "| 1.4 | 1.3 | **no** |")]
)
def test_a_goal_is_about_medians(ours: float, line: str) -> None:
    text = report(Results(records(fleetrouter=ours, nginx=10.0)))
    assert f"| S1, 64 connections: CPU / nginx {line}" in text


def test_a_goal_without_records_has_no_figure() -> None:
    assert set(
        re.findall(r"\| ([^|]*) \| [\d.]+ \| ([^|]*)\|\n", report(Results({})))
    ) == {("-", " ")}


def test_streams_must_all_be_whole() -> None:
    rounds = [
        {"streams": 10, "whole": 10, "rss_mb": [9.0, 60.0], "liveness_ms": [1.0, 2.0]},
        {"streams": 10, "whole": 7, "rss_mb": [9.0, 70.0], "liveness_ms": [1.0, 2.0]},
    ]
    found = {g.what: g.figure(Results({"streams": rounds})) for g in goals()}
    assert found["4,500 streams: not relayed whole"] == 3
    assert found["4,500 streams: RSS MB of the largest process"] == 70


def test_the_supervisor_is_no_process_that_serves() -> None:
    row = {"system": "fleetrouter-2", "row": "64 connections"}
    shares = [{**row, "shares": [0.01, 0.33, 0.66]}]
    found = {g.what: g.figure(Results({"processes": shares})) for g in goals()}
    assert found["64 connections: CPU, busier process / other"] == pytest.approx(2)


def test_a_goal_is_about_rows_that_the_rig_has() -> None:
    rows = {row.label for scenario in SCENARIOS.values() for row in scenario.rows}
    named = re.findall(r"^S\d, ([^:]+):", "\n".join(g.what for g in goals()), re.M)
    assert named
    assert set(named) <= rows


def test_the_parts_name_systems_that_the_rig_has() -> None:
    for part in PARTS.values():
        assert part.systems == "" or "fleetrouter" in part.systems.split(",")
