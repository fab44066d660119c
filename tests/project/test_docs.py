"""What the project's pages promise is so."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import tomllib
from itertools import groupby
from pathlib import Path

import click
import pytest

from router.cli import cli
from router.cli.flags import SettingsCommand
from router.settings import FLAGS, read
from tests.project.source import ROOT, modules, written_files
from tests.support.router_process import RouterProcess

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [path for path in written_files() if path.suffix == ".md"]
#: Import name -> distribution, where they differ.
DISTRIBUTIONS = {"prometheus_client": "prometheus-client", "yaml": "pyyaml"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands(page: Path) -> list[list[str]]:
    """What the page tells a reader to type, as words, without its comments."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in typed]


COMMANDS = [words for page in PAGES for words in commands(page)]
ROUTER_COMMANDS = [words[1:] for words in COMMANDS if words[0] == "router"]
MAKE_TARGETS = sorted({words[1] for words in COMMANDS if words[0] == "make"})


def test_the_newest_heading_of_the_changelog_is_the_version() -> None:
    headings = re.findall(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == PROJECT["version"]


@pytest.mark.parametrize("words", ROUTER_COMMANDS, ids=shlex.join)
def test_a_router_command_on_a_page_is_one_that_the_router_takes(
    words: list[str],
) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, *words = words
        command = command.commands[name]
    if isinstance(command, SettingsCommand):
        assert not read(words).mistakes
    else:
        command.make_context(name, words)


@pytest.mark.parametrize("target", MAKE_TARGETS)
def test_a_make_target_on_a_page_is_in_the_makefile(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_a_link_between_pages_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_page_for_operators_lists_the_flags_as_they_are() -> None:
    lines = []
    for group, flags in groupby(FLAGS, key=lambda flag: flag.group):
        lines += [f"**{group}**", "", "| flag | default | meaning |", "|---|---|---|"]
        for flag in flags:
            default = flag.kind.show(flag.default)
            lines.append(f"| `{flag.option}` | {default} | {flag.help} |")
        lines.append("")
    assert "\n".join(lines) in (ROOT / "docs" / "operate.md").read_text()


def test_the_page_for_operators_lists_the_metrics_as_they_are() -> None:
    with RouterProcess() as router:
        _, served = router.get("/metrics")
    page = (ROOT / "docs" / "operate.md").read_text()
    listed = re.findall(r"^\| `(fleetrouter_\w+)` \| (\w+) \|", page, re.M)
    assert listed == re.findall(r"^# TYPE (fleetrouter_\w+) (\w+)$", served, re.M)


@pytest.mark.parametrize("room", ["http1", "fleet", "proxy", "processes"])
def test_the_design_names_every_module_of_the_way_of_a_request(room: str) -> None:
    page = (ROOT / "docs" / "design.md").read_text().partition("Imports point")[0]
    stems = {path.stem for path in modules(f"src/router/{room}") if path.is_file()}
    named = set(re.findall(r"\w+", page))
    assert stems - named - {"__init__", "static", "errors"} == set()


def test_every_dependency_is_used_and_said_why() -> None:
    imported = set[str]()
    for path in modules("src"):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    imported.add(str(node.module).split(".")[0])
    used = {DISTRIBUTIONS.get(name, name) for name in imported}
    needed = {re.split(r"[<>=~!]", line)[0] for line in PROJECT["dependencies"]}
    explained = set(
        re.findall(r"^\| (\S+) \|", (ROOT / "docs" / "design.md").read_text(), re.M)
    )
    foreign = used - sys.stdlib_module_names - {"router", "yarl"}  # yarl is aiohttp's
    assert foreign == needed
    assert needed - explained == set()
