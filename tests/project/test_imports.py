"""Imports point downwards only, as docs/design.md "Rooms" says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.project.source import CYTHON, dotted, imports, imports_in, modules

#: Room -> what its modules may import of ours, besides the room itself. A name allows
#: what is below it too. Nothing is above `app` but the ways to start it.
ALLOWED: dict[str, set[str]] = {
    "": set(),
    "errors": set(),
    "_core": set(),
    "http1": set(),
    "settings": {"errors", "fleet.address"},
    "fleet": {"errors", "_core", "http1"},
    "policy": {"errors", "_core"},
    "proxy": {
        "errors",
        "_core",
        "http1",
        "policy",
        "fleet.snapshot",
        "fleet.worker",
    },
    "observe": {"errors", "fleet"},
    "admin": {"errors", "_core", "fleet", "observe"},
    # What several processes share and tell: the index is made again by the fleet's own
    # Assembly, and what is counted is the observers' Tally. Neither planes nor HTTP: it
    # is given what to start, and whom to give a message or a connection.
    "processes": {"errors", "_core", "fleet", "observe"},
    "simulate": {"errors"},
    "app": {
        "__version__",
        "errors",
        "_core",
        "http1",
        "settings",
        "fleet",
        "policy",
        "proxy",
        "observe",
        "admin",
        "processes",
    },
    # The start of a data process, as `cli` is that of a router.
    "data_process": {"app"},
    "cli": {"__version__", "errors", "settings", "app", "simulate"},
    "__main__": {"cli"},
}

MODULES = modules("src/router")
#: What a running router is made of, once each.
PARTS = {
    "AdminDoor",
    "Chooser",
    "Connections",
    "Exchange",
    "Health",
    "HoldQueue",
    "Index",
    "Metrics",
    "ModelReader",
    "Memory",
    "Mirror",
    "Publisher",
    "Registry",
    "Server",
    "Slots",
    "Supervisor",
}

HEALTH = {"fleet.health.Health"}
HEAD_PARSE = "proxy.head.parse"


def room(path: Path) -> str:
    return room_of(dotted(path))


def room_of(name: str) -> str:
    """The first part of a dotted name; `_core` is made of several files."""
    first = name.split(".")[0]
    return "_core" if re.match("_[a-z]", first) else first


def allowed(path: Path, name: str) -> bool:
    if room_of(name) == room(path):
        return True
    rooms = ALLOWED[room(path)]
    return any(name == base or name.startswith(f"{base}.") for base in rooms)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.name))
def test_a_module_imports_only_from_the_rooms_below_it(path: Path) -> None:
    assert sorted(name for name in imports(path) if not allowed(path, name)) == []


def test_every_room_has_its_rule_and_every_rule_its_room() -> None:
    rooms = {room(path) for path in MODULES}
    assert rooms - ALLOWED.keys() == set()


def test_only_settings_reads_the_environment() -> None:
    readers = set()
    for path in MODULES:
        if path.suffix in CYTHON:
            text = path.read_text()
            found = "environ" in text or "getenv" in text
        else:
            found = any(
                getattr(node, "attr", getattr(node, "id", "")) in {"environ", "getenv"}
                for node in ast.walk(ast.parse(path.read_text()))
            )
        if found:
            readers.add(dotted(path))
    assert readers <= {"settings"}


def test_only_app_builds_the_parts_of_a_router() -> None:
    """Elsewhere they are given, so that a test can give others."""
    builders = {
        room(path)
        for path in MODULES
        if path.suffix == ".py" and room(path) != "simulate"  # has none of these
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in PARTS
    }
    assert builders == {"app"}


def test_nothing_is_global_and_mutable() -> None:
    """No `global` statement, and no list, dict or set at module level but constants."""
    found = []
    for path in modules("src/router"):
        if path.suffix in CYTHON:
            continue
        tree = ast.parse(path.read_text())
        found += [
            f"{dotted(path)}: global {', '.join(node.names)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Global)
        ]
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    pass
                case _:
                    continue
            constant = name.isupper() or name == "__all__"
            if isinstance(value, ast.List | ast.Dict | ast.Set) and not constant:
                found.append(f"{dotted(path)}: {name}")
    assert found == []


@pytest.mark.parametrize(
    ("source", "cython", "expected"),
    [
        ("import router.fleet.health", False, {"fleet.health"}),
        ("from router.fleet import health", False, {"fleet.health"}),
        ("def f():\n    from router.fleet.health import Health", False, HEALTH),
        ("from .registry import Registry as R", False, {"proxy.registry.Registry"}),
        ("from ..fleet.health import Health", False, HEALTH),
        ("from .. import errors", False, {"errors"}),
        ("import os, router.app as a\nfrom routers import x", False, {"app"}),
        ("from router.fleet.health cimport Health  # why", True, HEALTH),
        ("cimport router.fleet.health", True, {"fleet.health"}),
        ("from ..fleet.health import (\n    Health,\n)\nx = 1", True, HEALTH),
        ("from .head cimport Head, parse\n", True, {"proxy.head.Head", HEAD_PARSE}),
        ("from cpython.bytes cimport PyBytes_GET_SIZE", True, set()),
    ],
)
def test_an_import_is_seen_however_it_is_written(
    source: str, cython: bool, expected: set[str]
) -> None:
    assert imports_in(source, "router.proxy", cython=cython) == expected
