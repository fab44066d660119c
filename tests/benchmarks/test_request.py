"""The benchmark of a request inside the router's process."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import pytest
from bench.request import counting, timing
from bench.request.cases import Case, cases
from bench.request.wires import WireLoop

DUMP = """# callgrind format
part: 2
events: Ir
summary: 181127463

fn=(1) main
"""
ANNOTATED = """
181,000 (100.0%)  PROGRAM TOTALS
Ir                    file:function
238,000 (131.5%)  /python/ceval.c:eval'2 [/lib/libpython.so]
181,000 (100.0%)  /python/main.c:main [/bin/python]
  5,520 ( 3.05%)  /python/obmalloc.c:free [/lib/libpython.so]
  3,548 ( 1.96%)  ???:router_take [/src/fields.so]
  1,000 ( 0.50%)  /python/frame.h:eval'2
"""


def test_every_case_goes_through_a_router_to_its_end() -> None:
    loop = WireLoop()
    names = list[str]()

    async def run() -> None:
        async with cases(loop) as ready:
            for case in ready:
                case.run(40)
                names.append(case.name)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    assert len(names) == 5


def test_rounds_alternate_between_the_cases() -> None:
    log = list[tuple[str, int]]()
    both = [Case(name, partial(lambda *run: log.append(run), name)) for name in "ab"]
    figures = timing.rounds(both, 2, 7)
    assert log == [("a", 7), ("b", 7)] * 3  # once to warm up
    assert [len(seen) for seen in figures.values()] == [2, 2]


def test_a_table_of_times_has_the_least_and_the_median() -> None:
    assert (
        timing.table({"a": [3.0, 1.0, 2.0]}).splitlines()[-1] == "| a | 1.00 | 2.00 |"
    )


def test_the_total_of_a_dump_is_found() -> None:
    assert counting.total(DUMP) == 181_127_463


def test_what_is_no_dump_is_refused() -> None:
    with pytest.raises(ValueError, match="callgrind"):
        counting.total("")


def test_functions_count_with_what_is_inlined_and_without_the_callers_of_all() -> None:
    assert counting.functions(ANNOTATED, 181_000) == [
        ("eval", 58_000),
        ("free", 5_520),
        ("router_take", 3_548),
    ]


def test_cases_are_run_between_marks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = list[tuple[str, int]]()
    monkeypatch.setattr(os, "ctermid", lambda: log.append(("mark", 0)))
    both = [Case(name, partial(lambda *run: log.append(run), name)) for name in "ab"]
    counting.run_marked(both, 5)
    mark = ("mark", 0)
    assert log[2:] == [mark, ("a", 5), mark, ("b", 5), mark]
    assert capsys.readouterr().out == "a\nb\n"


def test_the_loop_of_wires_connects_to_nobody_else() -> None:
    loop = WireLoop()

    async def run() -> None:
        transport, _ = await loop.create_connection(asyncio.Protocol, "nowhere", 1)
        transport.write(b"x")
        assert loop.opened[0].written() == b"x"

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
