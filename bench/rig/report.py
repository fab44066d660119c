"""Tables in Markdown of what was measured: medians over the rounds. Values only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.rig.scenarios import FLEET_TITLES, SCENARIOS, Row
from bench.rig.systems import SYSTEMS

Record = dict[str, Any]

#: Title -> record key for plain rows, for streams, unit in that key, direct too?
_SUMMARIES = {
    "CPU us per request (S5: per chunk)": ("cpu_us", "chunk_us", 1.0, False),
    "Requests per second": ("rps", "rps", 1.0, True),
    "p50 ms": ("p50_us", "p50_us", 1e3, True),
    "p99 ms": ("p99_us", "p99_us", 1e3, True),
}


def report(records: Sequence[Record], systems: Sequence[str] = ()) -> str:
    """The tables of these records, for these systems (all if none are named)."""
    order = [name for name in SYSTEMS if not systems or name in systems]
    parts = [_summary(records, order)]
    for scenario in SCENARIOS:
        parts += _rows(records, order, scenario)
    for scenario in ("S6", "S8", "S9", "S10"):
        parts += _fleets(records, order, scenario)
    parts += [_idle(records, order)]
    failed = [r for r in records if r["scenario"] == "failed"]
    if failed:
        lines = [f"- {r['system']}: {r['row']}: {r['error']}" for r in failed]
        parts.append("Failed:\n\n" + "\n".join(lines) + "\n")
    return "\n".join(part for part in parts if part)


def _pick(records: Sequence[Record], **wanted: object) -> list[Record]:
    return [r for r in records if all(r.get(k) == v for k, v in wanted.items())]


def _median(records: Sequence[Record], key: str) -> float | None:
    values = [r[key] for r in records if r.get(key) is not None]
    return statistics.median(values) if values else None


def _number(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.0f}"


def _fixed(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _range(records: Sequence[Record], key: str) -> str:
    values = [r[key] for r in records if r.get(key) is not None]
    return f"{_number(min(values))}-{_number(max(values))}" if values else "-"


def _table(lines: Sequence[dict[str, str]]) -> str:
    """Lines with the same columns in the same order, the first one to the left."""
    head = list(lines[0])
    rows = [head, *([line[name] for name in head] for line in lines)]
    drawn = ["| " + " | ".join(row) + " |" for row in rows]
    drawn.insert(1, "|---|" + "---:|" * (len(head) - 1))
    return "\n".join(drawn)


def _summary(records: Sequence[Record], order: Sequence[str]) -> str:
    """One matrix a figure: a line a system, a column a row of S1-S5."""
    columns = [
        (name, row)
        for name, scenario in SCENARIOS.items()
        for row in scenario.rows
        if _pick(records, scenario=name, row=row.label)
    ]
    parts = []
    for title, (plain, stream, unit, direct) in _SUMMARIES.items():
        lines = []
        for system in order:
            if system == "direct" and not direct:
                continue
            cells = {}
            for name, row in columns:
                found = _pick(records, system=system, scenario=name, row=row.label)
                value = _median(found, stream if row.stream else plain)
                text = _number(value / unit if value is not None else None)
                cells[f"{name} {row.label}"] = text
            if any(text != "-" for text in cells.values()):
                lines.append({"system": SYSTEMS[system].title} | cells)
        if lines:
            parts.append(f"{title}:\n\n{_table(lines)}\n")
    return "### Summary (medians)\n\n" + "\n".join(parts) if parts else ""


def _rows(records: Sequence[Record], order: Sequence[str], name: str) -> list[str]:
    if not _pick(records, scenario=name):
        return []
    parts = [f"### {name}. {SCENARIOS[name].title}\n"]
    for row in SCENARIOS[name].rows:
        direct = _median(
            _pick(records, scenario=name, row=row.label, system="direct"), "p50_us"
        )
        lines = []
        for system in order:
            found = _pick(records, scenario=name, row=row.label, system=system)
            if found:
                lines.append(_row_line(system, found, row, direct))
        if lines:
            parts.append(f"{name}, {row.label}:\n\n{_table(lines)}\n")
    return parts


def _row_line(
    system: str, found: Sequence[Record], row: Row, direct: float | None
) -> dict[str, str]:
    routed = system != "direct"
    p50, p99 = _median(found, "p50_us"), _median(found, "p99_us")
    kernel = [
        {"share": 100 * r["sys_us"] / r["cpu_us"]}
        for r in found
        if r.get("sys_us") is not None and r["cpu_us"]
    ]
    added = p50 - direct if routed and p50 is not None and direct is not None else None
    cpu = {
        "CPU us/request": _number(_median(found, "cpu_us")) if routed else "-",
        "range": _range(found, "cpu_us") if routed else "-",
        "kernel %": _number(_median(kernel, "share"), 2) if routed else "-",
    }
    if row.stream:
        per_chunk = _number(_median(found, "chunk_us")) if routed else "-"
        cpu["CPU us/chunk"] = per_chunk
    return {
        "system": SYSTEMS[system].title,
        **cpu,
        "req/s": _number(_median(found, "rps")),
        "p50 ms": _fixed(p50 / 1e3 if p50 is not None else None, 3),
        "p99 ms": _fixed(p99 / 1e3 if p99 is not None else None, 3),
        "added p50 us": _number(added),
        "router cores": _fixed(_median(found, "router_cores"), 2) if routed else "-",
        "by process": _by_process(found) if routed else "-",
        "load cores": _fixed(_median(found, "load_cores"), 2),
        "foreign": _fixed(_median(found, "foreign_cores"), 2),
        "new upstream conns/1k": _number(_median(found, "conns_per_1k"), 2),
        "spread": _number(_median(found, "spread")),
        "RSS MB": _number(_median(found, "rss_mb")),
        "errors": str(sum(r["errors"] for r in found)),
        "n": str(len(found)),
    }


def _by_process(found: Sequence[Record]) -> str:
    """Cores used by each process that served, in the last round."""
    return " + ".join(_fixed(cores, 2) for cores in found[-1].get("process_cores", ()))


def _fleets(records: Sequence[Record], order: Sequence[str], name: str) -> list[str]:
    of_scenario = _pick(records, scenario=name)
    if not of_scenario:
        return []
    parts = [f"### {name}. {FLEET_TITLES[name]}\n"]
    for models in sorted({r["models"] for r in of_scenario}):
        lines = []
        for system in order:
            its = _pick(of_scenario, system=system, models=models)
            for workers in sorted({r["n"] for r in its}):
                found = _pick(its, n=workers)
                lines.append(_fleet_line(system, workers, found))
        if lines:
            plural = "s" if models > 1 else ""
            parts.append(f"{name}, {models} model{plural}:\n\n{_table(lines)}\n")
    return parts


def _fleet_line(system: str, workers: int, found: Sequence[Record]) -> dict[str, str]:
    p50, p99 = _median(found, "p50_us"), _median(found, "p99_us")
    return {
        "system": SYSTEMS[system].title,
        "workers": str(workers),
        "CPU us/request": _number(_median(found, "cpu_us")),
        "range": _range(found, "cpu_us"),
        "idle % of a core": _fixed(_median(found, "idle_pct"), 2),
        "req/s": _number(_median(found, "rps")),
        "p50 ms": _fixed(p50 / 1e3 if p50 is not None else None, 2),
        "p99 ms": _fixed(p99 / 1e3 if p99 is not None else None, 2),
        "all routable after s": _number(_median(found, "start_s")),
        "CPU s to start": _number(_median(found, "start_cpu_s")),
        "GET /workers ms": _number(_median(found, "workers_ms")),
        "RSS MB at start": _number(_median(found, "rss_start_mb")),
        "RSS MB after load": _number(_median(found, "rss_mb")),
        "workers used": _number(_median(found, "workers_used"), 4),
        "new conns/1k": _number(_median(found, "conns_per_1k"), 2),
        "errors": str(sum(r["errors"] for r in found)),
        "n": str(len(found)),
    }


def _idle(records: Sequence[Record], order: Sequence[str]) -> str:
    lines = []
    for system in order:
        found = _pick(records, scenario="S7", system=system)
        if found:
            lines.append(
                {
                    "system": SYSTEMS[system].title,
                    "CPU % of a core": _fixed(_median(found, "idle_pct"), 2),
                    "range": _range(found, "idle_pct"),
                    "health checks": _number(_median(found, "health"), 4),
                    "other polls": _number(_median(found, "other"), 4),
                    "RSS MB": _number(_median(found, "rss_mb")),
                    "threads": _number(_median(found, "threads")),
                    "n": str(len(found)),
                }
            )
    return f"### S7. {FLEET_TITLES['S7']}\n\n{_table(lines)}\n" if lines else ""
