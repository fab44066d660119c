"""The command line: what is asked rightly runs, what is not exits with 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import router.cli
from router import __version__
from router.cli import cli
from router.settings import FLAGS, Settings


def command(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "router", *argv],
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_version_is_that_of_the_package() -> None:
    done = command("--version")
    assert (done.returncode, done.stdout.split()[-1]) == (0, __version__)


@pytest.mark.parametrize(
    "argv",
    [
        ("serve", "--no-such-flag"),
        ("serve", "--port", "x"),
        ("serve", "extra"),
        ("serve", "--balance-factor", "2"),
        ("check", "--port", "x"),
        ("workers", "remove"),
        ("workers", "list", "--no-such-flag"),
        ("no-such-command",),
    ],
)
def test_what_is_not_asked_rightly_exits_with_2(argv: tuple[str, ...]) -> None:
    done = command(*argv)
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_serve_names_every_mistake_at_once() -> None:
    done = command("serve", "--prot", "1", "--host", "a b", FLEETROUTER_POLICY="best")
    for mistake in ("--prot: no such flag", "--host: 'a b'", "FLEETROUTER_POLICY: "):
        assert mistake in done.stderr


def test_check_prints_every_setting_and_where_it_comes_from() -> None:
    done = command("check", "--port", "8000", FLEETROUTER_HOST="::1")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [flag.option for flag in FLAGS]
    told = {line.split()[0]: line.split()[1:] for line in lines}
    assert told["--port"] == ["8000", "(--port)"]
    assert told["--host"] == ["::1", "(FLEETROUTER_HOST)"]
    assert told["--policy"] == ["least_load", "(default)"]


def test_check_prints_the_good_settings_beside_the_mistakes() -> None:
    done = command("check", "--port", "8000", "--policy", "best")
    assert done.returncode == 2
    assert "8000  (--port)" in done.stdout
    assert done.stderr == (
        "Error: --policy: 'best' is none of least_load, round_robin, random, "
        "power_of_two, consistent_hash\n"
    )


def test_check_never_prints_a_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-secret\n")
    done = command("check", "--api-key", "sk-secret", "--admin-api-key", f"@{key}")
    assert done.returncode == 0
    assert "sk-secret" not in done.stdout + done.stderr
    assert done.stdout.count("set (not shown)") == 2


def test_the_help_of_serve_names_every_flag() -> None:
    help_text = CliRunner().invoke(cli, ["serve", "--help"]).output
    assert [flag.option for flag in FLAGS if flag.option not in help_text] == []


def test_serve_runs_by_its_settings_and_exits_with_what_the_router_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Settings] = []

    def run(settings: Settings) -> int:
        seen.append(settings)
        return 7

    monkeypatch.setattr(router.cli, "run", run)
    argv = ["serve", "--worker-urls", "http://a", "http://b", "--port", "1"]
    result = CliRunner().invoke(cli, argv)
    assert result.exit_code == 7
    assert seen == [Settings(worker_urls=("http://a", "http://b"), port=1)]
