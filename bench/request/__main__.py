"""What a request costs inside the router's process.

    python -m bench.request                     CPU time
    python -m bench.request --against ../old    and beside another checkout, built
    python -m bench.request --instructions      instructions, exactly (valgrind)
    python -m bench.request --profile "300 B"   and which functions they are spent in

No socket is involved and no kernel: bytes go in where a transport would give them, and
are taken where it would send them. A request counts from its first byte to the end of
its answer, metrics included, and so do 0.2 us of the benchmark's own.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from bench.request import counting, timing
from bench.request.cases import cases
from bench.request.wires import WireLoop


def main() -> int:
    """Runs what the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.request",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rounds", type=int, default=30)
    add("--count", type=int, default=2000, help="requests of a case in a round")
    add("--against", type=Path, help="another checkout, built: ratios to it")
    add("--instructions", action="store_true", help="count them, under valgrind")
    add("--profile", metavar="CASE", help="count by function for this case")
    add("--json", action="store_true", help=argparse.SUPPRESS)
    add("--marked", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.instructions or args.profile:
        print(counting.report(args.count, args.profile))
    elif args.against:
        print(timing.compared(args.against.resolve(), args.rounds, args.count))
    else:
        measured(args)
    return 0


def measured(args: argparse.Namespace) -> None:
    """Measures in this process."""
    loop = WireLoop()

    async def run() -> None:
        async with cases(loop) as ready:
            # Requests leave no cycles behind, and a look at old objects is no part.
            gc.collect()
            gc.disable()
            if args.marked:
                counting.run_marked(ready, args.count)
                return
            figures = timing.rounds(ready, args.rounds, args.count)
            print(timing.to_json(figures) if args.json else timing.table(figures))

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


if __name__ == "__main__":
    sys.exit(main())
