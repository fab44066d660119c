"""Log lines: one event a line, in text or JSON, whatever was sent."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from router.observe.logs import ACCESS, MAX_LINE, AccessLog, setup


@pytest.fixture
def _restored() -> Iterator[None]:
    """Whatever `setup` changes of the process's logging is put back."""
    root, names = logging.getLogger(), ("router", ACCESS)
    before = (root.handlers[:], root.level, [logging.getLogger(n).level for n in names])
    yield
    root.handlers[:], root.level = before[0], before[1]
    for name, level in zip(names, before[2], strict=True):
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).disabled = False


pytestmark = pytest.mark.usefixtures("_restored")
FLEET = logging.getLogger("router.fleet.health")


def logged(form: str, level: str = "info", *, access_log: bool = False) -> io.StringIO:
    stream = io.StringIO()
    setup(level, form, stream, access_log=access_log)
    return stream


def test_a_text_line_holds_time_level_logger_message_and_fields() -> None:
    stream = logged("text")
    FLEET.info("worker ready", extra={"worker": "w-1", "seconds": 0.25, "why": "a b"})
    time, rest = stream.getvalue().split(" ", 1)
    assert rest == (
        'info router.fleet.health: worker ready worker=w-1 seconds=0.25 why="a b"\n'
    )
    assert len(time) == len("2026-01-31T12:00:00.123Z")


def test_a_json_line_holds_the_same() -> None:
    stream = logged("json")
    FLEET.warning("worker lost", extra={"worker": "w-1", "tries": 3, "level": "mine"})
    entry = json.loads(stream.getvalue())
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "warning",
        "logger": "router.fleet.health",
        "message": "worker lost",
        "worker": "w-1",
        "tries": 3,
    }


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("nasty", ["a\nb", "a\r\nb", "\x1b[31m", "\u2028", 'a" b="c'])
def test_nobody_can_forge_a_line(form: str, nasty: str) -> None:
    stream = logged(form)
    FLEET.info(f"said {nasty}", extra={"error": nasty})
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_is_bounded(form: str) -> None:
    stream = logged(form)
    FLEET.info("said", extra={"error": "x" * 1_000_000, "list": ["y"] * 1_000_000})
    assert len(stream.getvalue()) < 3 * MAX_LINE


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_told_with_where_it_was_raised(form: str) -> None:
    stream = logged(form)
    try:
        raise ValueError("broken")
    except ValueError:
        FLEET.exception("probe failed")
    assert "test_logs.py" in stream.getvalue()
    assert "ValueError: broken" in stream.getvalue()


def test_the_level_is_that_of_the_routers_own_loggers() -> None:
    """At debug the libraries still say warnings only."""
    stream = logged("text", "debug")
    FLEET.debug("ours")
    logging.getLogger("asyncio").info("theirs")
    logging.getLogger("asyncio").warning("their warning")
    said = [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()]
    assert said == ["ours", "their warning"]


REQUEST = {
    "request_id": "r-1",
    "client": "10.0.0.9",
    "method": "POST",
    "path": "/v1/chat/completions",
    "status": 200,
    "seconds": 1.5,
    "sent": 300,
    "model": "m",
    "worker": "w-1",
    "attempts": 2,
}


def test_the_access_log_writes_a_line_per_request_at_any_level() -> None:
    stream = logged("json", "error", access_log=True)
    AccessLog()(**REQUEST)  # type: ignore[arg-type]
    entry = json.loads(stream.getvalue())
    assert entry.items() >= REQUEST.items()
    assert entry["logger"] == "router.access"


def test_without_it_there_is_no_line_per_request() -> None:
    stream = logged("text", "debug")
    AccessLog()(**REQUEST)  # type: ignore[arg-type]
    assert stream.getvalue() == ""


def test_setting_up_twice_writes_each_line_once() -> None:
    logged("text")
    stream = logged("text")
    FLEET.info("once")
    assert len(stream.getvalue().splitlines()) == 1
