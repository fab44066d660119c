"""Every test of the wire runs on uvloop and on the loop of the standard library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.http1.relay import RECEIVE, Limits, Relay, Wire
from tests.support.raw_worker import RawWorker, Script


@pytest.fixture(params=["uvloop", "asyncio"])
def wire(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[Wire]:
    """Starts workers and relays; at the end all is closed, the relays checked.

    The loop must have had nothing to complain of, such as writing to what is closed.
    """
    with ExitStack() as stack:

        def start(script: Script, **limits: float) -> Relay:
            worker = stack.enter_context(RawWorker(script, receive=RECEIVE))
            relay = Relay(worker, Limits(**limits), loop=request.param)
            return stack.enter_context(relay)

        yield start
    assert [record.getMessage() for record in caplog.records] == []
