"""What `--processes auto` goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.settings.cores import cores

V1_QUOTA, V1_PERIOD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({}, 1000),
        ({"cpu.max": "max 100000\n"}, 1000),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "190000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "nonsense\n"}, 1000),
        ({V1_QUOTA: "-1\n", V1_PERIOD: "100000\n"}, 1000),
        ({V1_QUOTA: "100000\n", V1_PERIOD: "99000\n"}, 1),
    ],
)
def test_no_more_cores_are_used_than_a_container_may(
    tmp_path: Path, files: dict[str, str], most: int
) -> None:
    unlimited = cores(tmp_path / "none")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == min(unlimited, most)
