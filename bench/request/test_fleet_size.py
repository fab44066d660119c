"""A request costs about the same in a large fleet: what CI holds.

Of the way of a request inside the process only, as ratios within one run; what sockets
and health checks add is the rig's to tell.
"""

from __future__ import annotations

import pytest

from bench.request import timing
from bench.request.cases import Case, chat, client
from bench.request.wires import WireLoop

_ROUNDS, _REQUESTS = 10, 2000


@pytest.mark.parametrize(
    ("models", "most"),
    [
        (125, 1.5),  # requests for one model of 16 workers
        (1, 2.0),  # all 2,000 in turn: more memory is touched
    ],
)
def test_a_request_does_not_depend_on_the_size_of_the_fleet(
    models: int, most: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """2,000 workers against 16."""
    loop = WireLoop()

    async def run() -> float:
        async with (
            client(loop, "round_robin", 16) as small,
            client(loop, "round_robin", 2000, models) as large,
        ):
            requests = [chat(300)]
            figures = timing.rounds(
                [
                    Case("16", small.exchange(requests)),
                    Case("2,000", large.exchange(requests)),
                ],
                _ROUNDS,
                _REQUESTS,
            )
        least = {name: min(seen) for name, seen in figures.items()}
        ratio = least["2,000"] / least["16"]
        with capsys.disabled():
            print(
                f"\n  {models} models, us: {least}: {ratio:.2f} (most {most})", end=" "
            )
        return ratio

    try:
        assert loop.run_until_complete(run()) <= most
    finally:
        loop.close()
