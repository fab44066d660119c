"""The project's files as the tests here read them. Knows no rule about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "router"

#: Modules, what other modules may cimport of them, parts that are included in them.
CYTHON = {".pyx", ".pxd", ".pxi"}
#: Made by tools, not written by anybody.
_GENERATED = {"build", "dist", "results", "run", "__pycache__"}
#: (base, names) of `from base import names`, or (plain) of `import plain`.
_CYTHON_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\S+)[ \t]+c?import[ \t]+([^#\n]+)"
    r"|c?import[ \t]+([^#\n]+))",
    re.MULTILINE,
)
_BRACKETS = re.compile(r"(import[ \t]*)\(([^()]*)\)")


def written_files(top: Path = ROOT) -> Iterator[Path]:
    """Every file that somebody wrote, below `top`."""
    for path in sorted(top.iterdir()):
        if path.name in _GENERATED or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            if path.name in {".ci", ".github"} or not path.name.startswith("."):
                yield from written_files(path)
        else:
            yield path


def sources(top: str, *suffixes: str) -> list[Path]:
    """The files below this directory of the project that end so."""
    return [path for path in written_files(ROOT / top) if path.suffix in suffixes]


def modules(*tops: str) -> list[Path]:
    """The Python and Cython files below these directories of the project."""
    kinds = {".py", ".pyi", *CYTHON}
    return [path for top in tops for path in sources(top, *kinds)]


def dotted(path: Path) -> str:
    """`fleet.health` for src/router/fleet/health.py; `` for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> set[str]:
    """What of ours a module imports: see `imports_in`."""
    package = ".".join(["router", *path.relative_to(PACKAGE).parent.parts])
    return imports_in(path.read_text(), package, cython=path.suffix in CYTHON)


def imports_in(source: str, package: str, *, cython: bool = False) -> set[str]:
    """The names below `router` that a source text of `package` imports.

    `from router.fleet import registry` counts as `fleet.registry`, whether `registry`
    is a module or a name in one; relative imports and cimports count like any other.
    """
    found = _cython_imports(source) if cython else _python_imports(source)
    absolute = {_absolute(name, package) for name in found}
    return {
        name.removeprefix("router").lstrip(".")
        for name in absolute
        if name.split(".")[0] == "router"
    }


def _python_imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from (_below(base, alias.name) for alias in node.names)


def _cython_imports(source: str) -> Iterator[str]:
    flat = _BRACKETS.sub(lambda m: m[1] + m[2].replace("\n", " "), source)
    for base, names, plain in _CYTHON_IMPORT.findall(flat):
        words = [
            name.split()[0] for name in (names or plain).split(",") if name.strip()
        ]
        yield from (_below(base, word) if base else word for word in words)


def _below(base: str, name: str) -> str:
    return base + name if base.endswith(".") else f"{base}.{name}"


def _absolute(name: str, package: str) -> str:
    """`router.fleet.worker` for `.worker` written in a module of router.fleet."""
    level = len(name) - len(name.lstrip("."))
    if level == 0:
        return name
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - level + 1], name[level:]])
