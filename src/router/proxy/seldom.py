"""Warnings whose cause may come back with every request.

Owns how often they are told. Knows nothing of what they say.
"""

from __future__ import annotations

import logging
from time import monotonic


class Seldom:
    """Logs a warning now, or leaves it out if the last one was just now.

    `pause`: seconds between two. How many were left out is told with the next one.
    """

    def __init__(self, log: logging.Logger, message: str, *, pause: float = 10) -> None:
        self._log = log
        self._message = message
        self._pause = pause
        self._again = 0.0
        self._left_out = 0

    def warn(self, **fields: object) -> None:
        """`fields` are those of the line."""
        now = monotonic()
        if now < self._again:
            self._left_out += 1
            return
        if self._left_out:
            fields["left_out"] = self._left_out
        self._log.warning(self._message, extra=fields)
        self._again = now + self._pause
        self._left_out = 0
