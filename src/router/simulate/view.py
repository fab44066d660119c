"""How the demo looks: a live table on a terminal, a line now and then elsewhere.

Values in, text out. Asks nobody anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .traffic import Counts

_COLOURS = {"ready": "green", "pending": "yellow", "unhealthy": "red"}


@dataclass(frozen=True, slots=True)
class Moment:
    """What the demo shows at one time."""

    seconds: float
    #: Workers as GET /workers of the router lists them.
    workers: Sequence[Mapping[str, Any]]
    #: By worker URL: whether the server runs, requests it took, what is done to it.
    up: Mapping[str, bool]
    taken: Mapping[str, int]
    notes: Mapping[str, str]
    counts: Counts

    @property
    def ready(self) -> int:
        return sum(worker["status"] == "ready" for worker in self.workers)

    @property
    def in_flight(self) -> int:
        return sum(int(worker["load"]) for worker in self.workers)


def line(moment: Moment) -> str:
    """One line, for a log or a pipe."""
    counts = moment.counts
    return (
        f"{moment.seconds:4.0f} s  ready {moment.ready}/{len(moment.workers)}  "
        f"in flight {moment.in_flight}  {_summary(counts)}"
    )


def screen(moment: Moment) -> Group:
    """The table and the counts, for a terminal."""
    table = Table(title=f"{moment.seconds:.0f} s", title_justify="left")
    for name in ("worker", "server", "status", "models"):
        table.add_column(name, no_wrap=name != "models")
    for name in ("load", "requests"):
        table.add_column(name, justify="right")
    table.add_column("")
    for worker in moment.workers:
        status = str(worker["status"])
        url = str(worker["url"])
        table.add_row(
            url.removeprefix("http://"),
            Text("up") if moment.up.get(url) else Text("down", style="red"),
            Text(status, style=_COLOURS.get(status, "")),
            " ".join(map(str, worker["models"])),
            str(worker["load"]),
            str(moment.taken.get(url, "")),
            moment.notes.get(url, ""),
        )
    return Group(table, Text(_summary(moment.counts)))


def _summary(counts: Counts) -> str:
    kept = f"{100 * counts.kept / counts.turns:.0f}%" if counts.turns else "-"
    return (
        f"answered {counts.answered}  failed {counts.failed}  "
        f"streams cut by a death {counts.cut}  sessions kept their worker {kept}"
    )
