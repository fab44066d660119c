"""Measures everything that docs/performance.md tells, unattended.

    python -m bench                    all parts, in about 35 minutes
    python -m bench ends streams       some of them
    python -m bench --list
    python -m bench --report           what the last results say of the goals

The machine should have nothing else to do. Needs two cores, gcc and wrk; routers that
are not installed are left out. Results stay in bench/results.
"""

from __future__ import annotations

import argparse
import sys

from bench.goals import Results, report
from bench.suite import PARTS, RESULTS, run


def main() -> int:
    """Runs parts, then prints the goals; 1 where a part failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    add("--rounds", type=int, default=3)
    add("--list", action="store_true", help="print the parts")
    add("--report", action="store_true", help="run nothing")
    args = parser.parse_args()
    if unknown := [name for name in args.parts if name not in PARTS]:
        parser.error(f"unknown: {', '.join(unknown)}")
    if args.list:
        for name, part in PARTS.items():
            print(f"{name:10s} {part.title}")
        return 0
    failed = []
    if not args.report:
        failed = [name for name in args.parts or PARTS if run(name, args.rounds) != 0]
    print(report(Results.read(RESULTS)))
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
