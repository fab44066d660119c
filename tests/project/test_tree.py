"""What holds for every file of the project."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.project.source import CYTHON, ROOT, modules, sources, written_files

MAX_LINES = 400
#: Path -> why it is longer. Empty is right; an entry needs an argument.
LONGER: dict[str, str] = {}

#: Paths of one machine, and notes to one another, have no place in the project. The
#: patterns are written so that this file does not match itself.
FORBIDDEN = re.compile(
    "|".join(
        [
            r"/[w]ork/",
            r"/[r]oot/",
            r"/[h]ome/",
            r"/[o]pt/",
            r"(?<![\w/])[.]{2}/shared\b",
            r"[I]NTERFACES",
            r"\b[i]ssue #?\d",
            r"\b[h]elper [A-Z]{3}",
        ]
    )
)

MODULES = modules("src", "tests", "bench", "fuzz")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstring(path: Path) -> str | None:
    text = path.read_text()
    if path.suffix not in CYTHON:
        return ast.get_docstring(ast.parse(text))
    if path.suffix == ".pxi":  # in the middle of a module: a comment has to do
        match = re.match(r"#[^\n]+", text)
        return match[0] if match else None
    code = re.sub(r"\A(?:\s*#[^\n]*\n)*\s*", "", text)
    match = re.match(r'[rR]?"""(.+?)"""', code, re.DOTALL)
    return match[1] if match else None


@pytest.mark.parametrize(
    "path",
    # The docstring of a compiled module stands in its source, not in its stub.
    [path for path in MODULES if path.suffix != ".pyi" and path.read_text().strip()],
    ids=relative,
)
def test_a_module_opens_with_what_it_is(path: Path) -> None:
    assert docstring(path)


@pytest.mark.parametrize(
    "path", [*MODULES, *sources("bench", ".c", ".h")], ids=relative
)
def test_a_file_fits_a_sitting(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES or LONGER[relative(path)]


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    found = []
    for path in written_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{relative(path)}: {match[0]}" for match in FORBIDDEN.finditer(text)]
    assert found == []
