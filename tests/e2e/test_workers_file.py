"""--workers-file: the fleet follows a file while the router runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.support.router_process import RouterProcess

A, B, C = (f"http://127.0.0.1:{port}" for port in (1, 2, 3))


def urls(router: RouterProcess) -> set[str]:
    return {worker["url"] for worker in router.workers()}


def comes_to(router: RouterProcess, wanted: set[str]) -> bool:
    deadline = monotonic() + 15
    while urls(router) != wanted and monotonic() < deadline:
        sleep(0.05)
    return urls(router) == wanted


def logs_come_to(router: RouterProcess, text: str) -> bool:
    deadline = monotonic() + 15
    while text not in router.logs() and monotonic() < deadline:
        sleep(0.05)
    return text in router.logs()


def replace_by(path: Path, text: str) -> None:
    """As editors, rsync and Kubernetes do: written beside it and renamed over it."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_fleet_follows_the_file_and_a_bad_edit_changes_nothing(
    tmp_path: Path, processes: str
) -> None:
    path = tmp_path / "workers.yaml"
    path.write_text(f"- {A}\n- url: {B}\n  weight: 2\n")
    flags = ("--workers-file", str(path), "--processes", processes)
    with RouterProcess(*flags) as router:
        assert urls(router) == {A, B}
        assert router.call("POST", "/workers", {"url": C})[0] == 201

        path.write_text(json.dumps([B]))
        assert comes_to(router, {B, C})

        path.write_text("- url: [hidden-key\n")
        assert logs_come_to(router, "its last good list stays")
        replace_by(path, f"- {A}\n- url: {B}\n  weihgt: 2\n")
        assert logs_come_to(router, "weihgt")
        path.unlink()
        assert logs_come_to(router, "No such file")
        assert urls(router) == {B, C}
        assert "hidden-key" not in router.logs()

        replace_by(path, f"- {A}\n")
        assert comes_to(router, {A, C})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("url: http://a", "not a list"),
        ("- ftp://a", "Entry 1"),
        ("- 'http://a\n", "neither YAML nor JSON"),
        ("\x00\x01", "neither YAML nor JSON"),
    ],
)
def test_a_file_that_is_bad_at_start_is_refused(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    path = tmp_path / "workers.yaml"
    if text is not None:
        path.write_text(text)
    router = RouterProcess("--workers-file", str(path))
    ended = subprocess.run(router.command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert reason in ended.stderr
