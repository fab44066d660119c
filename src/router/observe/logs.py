"""Logs: where lines go and what they look like.

Owns the two formats (text for people, JSON for machines) and the access line. A log
event is a constant message with fields (`extra=`), never a formatted sentence, so that
it can be counted. No line per request unless the access log is on, and no line longer
than MAX_LINE, whatever a worker or client sent.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import TextIO

#: Characters of a line (of an exception's text, too).
MAX_LINE = 8_192
ACCESS = "router.access"

#: What every record has; whatever else it has was given as a field.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")  # printable ASCII but blank, `"`, `=`, `\`


def setup(level: str, form: str, stream: TextIO, *, access_log: bool = False) -> None:
    """Sends the logs of the whole process to `stream`.

    `level`: of the router's own loggers (debug, info, warning, error, critical); other
    packages are heard from warning on. `form`: text or json. `access_log`: a line per
    request, whatever the level.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    own = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(own, logging.WARNING))
    logging.getLogger("router").setLevel(own)
    access = logging.getLogger(ACCESS)
    access.setLevel(logging.INFO)
    access.disabled = not access_log
    # What its parser refuses is answered; a traceback for each would let clients fill
    # the log. What fails behind the parser is told by our own loggers.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info router.fleet.health: worker ready worker=w-1`"""

    def format(self, record: logging.LogRecord) -> str:
        message = _one_line(record.getMessage())
        head = f"{_time(record)} {record.levelname.lower()} {record.name}: {message}"
        fields = (f" {name}={_shown(value)}" for name, value in _fields(record))
        line = _cut(head + "".join(fields))
        return (
            line if record.exc_info is None else f"{line}\n{_exception(self, record)}"
        )


class JSONFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and the fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        for name, value in _fields(record):
            entry.setdefault(name, _cut(value) if isinstance(value, str) else value)
        if record.exc_info is not None:
            entry["exception"] = _exception(self, record)
        line = json.dumps(entry, default=str)
        if len(line) > 2 * MAX_LINE:
            line = json.dumps({**dict(list(entry.items())[:4]), "truncated": True})
        return line


def _fields(record: logging.LogRecord) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(record).items() if name not in _OWN]


def _time(record: logging.LogRecord) -> str:
    """UTC, to the millisecond."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _shown(value: object) -> str:
    """A field's value, in quotes if it could be read as more than one."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _one_line(text: str) -> str:
    """Control characters escaped, so that nobody can forge a line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}..."


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    exc_info = record.exc_info
    return _cut(formatter.formatException(exc_info)) if exc_info else ""


class AccessLog:
    """Writes the access line of a request. Only made when the access log is on."""

    __slots__ = ("_logger",)

    def __init__(self) -> None:
        self._logger = logging.getLogger(ACCESS)

    def __call__(
        self,
        *,
        request_id: str,
        client: str,
        method: str | None,
        path: str | None,
        status: int,
        seconds: float,
        sent: int,
        model: str | None,
        worker: str | None,
        attempts: int,
    ) -> None:
        """One request is over.

        `path`: without its query, which may hold a key; None, as `method`, for what
        was refused since it is no request. `status`: of the answer that
        the client got; 499 if it left before there was one. `sent`: bytes of the
        answer, its head included. `worker`: the id of the one asked last. `attempts`:
        how often one was asked.
        """
        self._logger.info(
            "request",
            extra={
                "request_id": request_id,
                "client": client,
                "method": method,
                "path": path,
                "status": status,
                "seconds": seconds,
                "sent": sent,
                "model": model,
                "worker": worker,
                "attempts": attempts,
            },
        )
