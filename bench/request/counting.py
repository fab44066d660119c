"""Instructions of the cases, counted by valgrind's callgrind: the same in every run.

Callgrind writes what it has counted whenever a certain C function is entered; the
benchmark calls one that nothing else uses before and after each case. What is counted
are instructions of user space; there is nothing else.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.request.cases import Case

#: The C function of `os.ctermid`.
_MARK = "ctermid"
#: Functions listed in a profile.
_MOST_FUNCTIONS = 40
#: "1,234 ( 5.6%)  file:function'2 [object]"
_ROW = re.compile(r" *([\d,]+) \( *[\d.]+%\)  [^:]+:([^\s']+)")


def run_marked(cases: Sequence[Case], requests: int) -> None:
    """Runs each case between two marks; the names, in order, to stdout."""
    mark = os.ctermid
    for case in cases:
        case.run(100)
    mark()
    for case in cases:
        case.run(requests)
        mark()
        print(case.name)


def report(requests: int, profiled: str | None) -> str:
    """Markdown: instructions a request; for one case also function by function."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "counts"
        argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        argv += [f"--dump-before={_MARK}", "--dump-instr=no", "--", sys.executable]
        argv += ["-m", "bench.request", "--marked", "--count", str(requests)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        names = done.stdout.splitlines()
        written = sorted(out.parent.glob("counts.*"), key=lambda p: int(p.suffix[1:]))
        dumps = dict(zip(names, written[-len(names) :], strict=True))
        lines = ["| | instructions |", "|---|---:|"]
        for name, dump in dumps.items():
            lines.append(f"| {name} | {total(dump.read_text()) // requests:,} |")
        if profiled is not None:
            lines += ["", *_functions(dumps[profiled], requests)]
    return "\n".join(lines)


def total(dump: str) -> int:
    """All instructions of one of callgrind's files."""
    found = re.search(r"^(?:totals|summary): (\d+)", dump, re.M)
    if found is None:
        raise ValueError("not a file of callgrind's")
    return int(found[1])


def _functions(dump: Path, requests: int) -> list[str]:
    argv = ["callgrind_annotate", "--threshold=100", str(dump)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    lines = ["| function | instructions | % |", "|---|---:|---:|"]
    whole = total(dump.read_text())
    for name, count in functions(done.stdout, whole)[:_MOST_FUNCTIONS]:
        lines.append(f"| {name} | {count // requests:,} | {100 * count / whole:.1f} |")
    return lines


def functions(annotated: str, whole: int) -> list[tuple[str, int]]:
    """(function, instructions of its own), the most first.

    `annotated`: what callgrind_annotate prints; `whole`: all instructions of the file.
    A function counts with what was inlined into it, and with its recursions.
    """
    found = Counter[str]()
    for line in annotated.splitlines():
        if row := _ROW.match(line):
            count = int(row[1].replace(",", ""))
            # Those that ran from before the first mark have the whole added to theirs.
            found[row[2]] += count - whole if count >= whole else count
    return [(name, count) for name, count in found.most_common() if count]
