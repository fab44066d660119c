"""What the log says of the fleet."""

from __future__ import annotations

import pytest

from router.fleet import journal
from router.fleet.worker import Registration
from tests.fleet.fleets import cards, join, make_registry, url


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(record.levelname, record.message) for record in caplog.records]
    caplog.clear()
    return found


def test_a_workers_life_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "router.fleet")
    registry = make_registry()
    registry.subscribe(journal.write)
    worker = join(registry, 1, "a")
    assert lines(caplog) == [
        ("DEBUG", "worker registered"),
        ("INFO", "worker ready"),
        ("INFO", "worker's models changed"),
    ]
    registry.sync_models(worker.slot, cards("a", "a/sql"))
    (record,) = caplog.records
    assert vars(record)["came"] == ["sql"]
    assert vars(record)["went"] == []
    caplog.clear()
    registry.set_health(worker.slot, False, "connection refused")
    (record,) = caplog.records
    assert vars(record)["reason"] == "connection refused"
    assert vars(record)["worker"] == worker.id
    assert lines(caplog) == [("WARNING", "worker unhealthy")]
    registry.drain(worker.id)
    registry.tick()
    assert lines(caplog) == [("INFO", "worker draining"), ("INFO", "worker removed")]


def test_what_says_nothing_new_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    registry = make_registry()
    worker = join(registry, 1, "a")
    registry.subscribe(journal.write)
    caplog.set_level("DEBUG", "router.fleet")
    registry.sync_failed(worker.slot, "HTTP 500")
    registry.sync_models(worker.slot, cards("a"))
    registry.set_health(worker.slot, True)
    assert lines(caplog) == []


def test_a_key_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "router.fleet")
    registry = make_registry()
    registry.subscribe(journal.write)
    registration = Registration(url(1), api_key="sk-secret")
    registry.set_health(join(registry, 1, "a", registration=registration).slot, False)
    assert "sk-secret" not in "".join(str(vars(r)) for r in caplog.records)


def test_of_very_many_models_some_are_named(caplog: pytest.LogCaptureFixture) -> None:
    registry = make_registry()
    registry.subscribe(journal.write)
    caplog.set_level("INFO", "router.fleet")
    join(registry, 1, *(f"m{number:04}" for number in range(5000)))
    came = vars(caplog.records[-1])["came"]
    assert (came[0], came[-1]) == ("m0000", "5000 in all")
    assert len(came) == journal.MOST_NAMED + 1
