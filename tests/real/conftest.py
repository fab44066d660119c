"""Two real vLLM servers for all tests here, started one after the other as needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.real.servers import Router, VllmServer, until
from tests.real.tiny_model import make_adapter, make_model

Note = Callable[[str], None]

# Without the official client (group `real`) these tests cannot even be read.
collect_ignore_glob = [] if find_spec("openai") else ["test_*.py"]

_NOTES = pytest.StashKey[list[str]]()


@dataclass(frozen=True, slots=True)
class Fleet:
    """The two servers, and the folder of an adapter that each could load."""

    first: VllmServer
    second: VllmServer
    adapter: Path

    async def ensure_ready(self) -> None:
        """Both run and answer."""
        await self.first.ensure_ready()
        await self.second.ensure_ready()

    async def joined(self, router: Router) -> None:
        """Wait until the router counts both as ready."""
        await until(lambda: self._ready_in(router))

    async def _ready_in(self, router: Router) -> bool:
        statuses = [await router.status(s) for s in (self.first, self.second)]
        return statuses == ["ready", "ready"]

    def flags(self) -> tuple[str, ...]:
        """Both, as `router serve` takes them."""
        return ("--worker-urls", self.first.url, self.second.url)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two servers that do not run yet; whatever happens, none is left at the end."""
    venv = Path(os.environ["VLLM_VENV"])
    folder = tmp_path_factory.mktemp("vllm")
    make_model(folder / "tiny")
    make_adapter(folder / "sql", folder / "tiny")
    first = VllmServer(venv, folder / "tiny", folder / "first.log")
    second = VllmServer(venv, folder / "tiny", folder / "second.log")
    try:
        yield Fleet(first, second, folder / "sql")
    finally:
        first.stop()
        second.stop()


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Keep a line of what was seen for the summary at the end of the run."""
    notes = request.config.stash.setdefault(_NOTES, [])
    return lambda text: notes.append(text)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """What was seen, below the results."""
    notes = config.stash.get(_NOTES, [])
    if notes:
        terminalreporter.section("seen")
        for text in notes:
            terminalreporter.write_line(text)
