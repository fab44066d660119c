"""What the project's pages promise is so."""

from __future__ import annotations

import re
import tomllib

from tests.project.source import ROOT


def test_the_newest_heading_of_the_changelog_is_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    headings = re.findall(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == project["version"]
