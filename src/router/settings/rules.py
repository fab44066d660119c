"""What settings ask of one another.

Owns the rules that no single value can break: a flag that does nothing in this mode is
refused, and so are values that contradict each other. A rule is looked at only when
the values that it reads are good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from router.settings.sources import Given
from router.settings.table import Settings


@dataclass(frozen=True, slots=True)
class Rule:
    """Flags that mean something only while a condition holds.

    `reads` are the other settings that the condition looks at.
    """

    flags: tuple[str, ...]
    reads: tuple[str, ...]
    holds: Callable[[Settings], bool]
    otherwise: str


_RETRIES = (
    "retry_initial_backoff_ms",
    "retry_max_backoff_ms",
    "retry_backoff_multiplier",
    "retry_jitter_factor",
    "retry_statuses",
)

RULES = (
    Rule(
        ("session_headers", "balance_factor", "balance_abs"),
        ("policy",),
        lambda settings: settings.policy == "consistent_hash",
        "does nothing without --policy consistent_hash",
    ),
    Rule(
        ("balance_abs",),
        ("policy", "balance_factor"),
        lambda settings: settings.balance_factor > 0,
        "does nothing with --balance-factor 0",
    ),
    Rule(
        ("retry_max_retries", *_RETRIES),
        ("disable_retries",),
        lambda settings: not settings.disable_retries,
        "does nothing with --disable-retries",
    ),
    Rule(
        _RETRIES,
        ("retry_max_retries",),
        lambda settings: settings.retry_max_retries > 0,
        "does nothing with --retry-max-retries 0",
    ),
    Rule(
        ("retry_max_backoff_ms", "retry_initial_backoff_ms"),
        ("retry_max_backoff_ms", "retry_initial_backoff_ms"),
        lambda settings: (
            settings.retry_max_backoff_ms >= settings.retry_initial_backoff_ms
        ),
        "--retry-max-backoff-ms is below --retry-initial-backoff-ms",
    ),
    Rule(
        ("hold_queue_size",),
        ("hold_timeout_secs",),
        lambda settings: settings.hold_timeout_secs > 0,
        "does nothing without --hold-timeout-secs",
    ),
    Rule(
        ("prometheus_host",),
        ("prometheus_port",),
        lambda settings: settings.prometheus_port is not None,
        "does nothing without --prometheus-port",
    ),
    Rule(
        ("prometheus_port",),
        ("port",),
        lambda settings: (
            settings.prometheus_port in (None, 0)
            or settings.prometheus_port != settings.port
        ),
        "is the same as --port",
    ),
)


def broken(
    settings: Settings, given: Mapping[str, Given], bad: Collection[str]
) -> Iterator[str]:
    """What is wrong with the settings as a whole.

    given: the settings that were written somewhere. bad: those whose value was
    refused and is not in `settings`.
    """
    for rule in RULES:
        known = not any(name in bad for name in rule.reads)
        if known and not rule.holds(settings):
            named = [given[name].place for name in rule.flags if name in given]
            if named:
                yield f"{', '.join(named)}: {rule.otherwise}"
