"""The targets of the fuzzer, with whatever hypothesis makes of their seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.bodies import BODIES
from tests.hostile.heads import HEADS
from tests.http1.targets import TARGETS, one
from tests.http1.test_any_bytes import ANSWERS, REQUESTS

SEEDS = [
    *(case.data for cases in (HEADS | BODIES).values() for case in cases),
    *ANSWERS,
    *REQUESTS,
    b'{"a":[{"model":"n"}],"model":"m","\\u006dodel":"k"}',
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_a_target_takes_every_seed(target: Callable[[bytes], None]) -> None:
    for seed in SEEDS:
        for size in (0, 6, 255):
            one(bytes([TARGETS.index(target)]) + bytes([size]) + seed)


@given(
    st.integers(0, len(TARGETS) - 1),
    st.sampled_from([seed for seed in SEEDS if len(seed) < 500]),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3), st.binary(max_size=3))),
)
def test_a_target_takes_damaged_seeds(
    target: int, seed: bytes, damage: list[tuple[int, int, bytes]]
) -> None:
    data = b"\x10" + seed
    for at, length, new in damage:
        at %= len(data)
        data = data[:at] + new + data[at + length :]
    one(bytes([target]) + data)
