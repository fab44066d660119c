"""A warning that would come with every request comes now and then."""

from __future__ import annotations

import logging

import pytest

from router.proxy.seldom import Seldom

LOG = logging.getLogger("router.proxy")


def test_only_the_first_of_many_is_told(caplog: pytest.LogCaptureFixture) -> None:
    warnings = Seldom(LOG, "trouble", pause=3600)
    for number in range(100):
        warnings.warn(number=number)
    assert [record.__dict__["number"] for record in caplog.records] == [0]


def test_what_was_left_out_is_told_with_the_next_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = 100.0
    monkeypatch.setattr("router.proxy.seldom.monotonic", lambda: time)
    warnings = Seldom(LOG, "trouble", pause=10)
    for time in (100.0, 105.0, 109.0, 110.0, 120.0):
        warnings.warn(number=time)
    told = [record.__dict__ for record in caplog.records]
    assert [record["number"] for record in told] == [100, 110, 120]
    assert [record.get("left_out") for record in told] == [None, 2, None]
