"""The table of settings: one line of `router serve` each.

Owns the names, defaults, bounds and help of all settings. Flags, environment names,
file keys, the help and `router check` are all derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TypeVar

from router.settings.kinds import (
    Aliases,
    Choice,
    HeaderName,
    Integer,
    Kind,
    Number,
    Processes,
    Secret,
    Switch,
    Text,
    Words,
    WorkerURL,
)
from router.settings.sources import Flag

POLICIES = (
    "least_load",
    "round_robin",
    "random",
    "power_of_two",
    "consistent_hash",
)

_YEAR = 365 * 86_400
_SECONDS = Number(0, _YEAR, above=True)
_SECONDS_OR_NONE = Number(0, _YEAR)
_PORT = Integer(0, 65_535)
_COUNT = Integer(1, 1_000)
_BYTES = Integer(1, 1 << 50)
_HOST = Text(r"[0-9A-Za-z.:_%-]+", "a host name or address", "HOST")


_Value = TypeVar("_Value")


def _setting(default: _Value, kind: Kind, help: str) -> _Value:
    """A field of Settings, with what the sources and the help need to know of it."""
    return field(
        default_factory=lambda: default,
        metadata={"kind": kind, "help": help, "default": default},
        repr=not kind.secret,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a router runs by: frozen, every value within its bounds.

    Times are in seconds unless the name says otherwise, sizes in bytes. Keys are left
    out of the repr.
    """

    config: str | None = _setting(
        None, Text(".+", "a path", "FILE"), "read settings from this YAML or TOML file"
    )
    host: str = _setting("127.0.0.1", _HOST, "address to listen at")
    port: int = _setting(30_000, _PORT, "port to listen at; 0: any free one")

    processes: int = _setting(
        1, Processes(), "that serve; above 1 there is one more, which controls them"
    )

    worker_urls: tuple[str, ...] = _setting(
        (), Words(WorkerURL()), "workers at start; late ones join by themselves"
    )
    workers_file: str | None = _setting(
        None,
        Text(".+", "a path", "FILE"),
        "a YAML or JSON list of workers, read again when it changes",
    )
    api_key: str | None = _setting(
        None, Secret(), "sent to workers: requests, probes, model lists"
    )
    intra_node_data_parallel_size: int = _setting(
        1, Integer(1, 1_024), "each URL becomes so many logical workers URL@RANK"
    )
    dp_start_rank: int | None = _setting(
        None,
        Integer(0, 65_535),
        "the URLs are nodes of one deployment whose ranks go on from here",
    )
    model_alias: Mapping[str, str] = _setting(
        MappingProxyType({}), Aliases(), "another name for a model"
    )
    unlisted_workers: str = _setting(
        "wait",
        Choice(("wait", "wildcard")),
        "what a healthy worker with an empty model list counts as",
    )
    model_refresh_checks: int = _setting(
        5, _COUNT, "checks between two reads of a settled worker's model list"
    )
    worker_startup_timeout_secs: float = _setting(
        0.0, _SECONDS_OR_NONE, "drop a worker that is not up by then; 0: wait for ever"
    )
    min_ready_workers: int = _setting(
        1, Integer(0, 1_000_000), "/readiness and /health are 503 until so many are"
    )

    policy: str = _setting("least_load", Choice(POLICIES), "how a worker is chosen")
    session_headers: tuple[str, ...] = _setting(
        (
            "x-session-id",
            "x-smg-routing-key",
            "x-user-id",
            "x-tenant-id",
            "x-correlation-id",
        ),
        Words(HeaderName()),
        "where a session is named: the first present; then the body",
    )
    balance_factor: float = _setting(
        1.25,
        Number(0, 1_000),
        "a key leaves a worker above this times the pool's mean load; 0: never",
    )
    balance_abs: float = _setting(
        4.0, Number(0, 1_000_000), "and so many requests above the mean"
    )

    health_check_interval_secs: float = _setting(
        10.0, _SECONDS, "between two checks of a ready worker"
    )
    health_check_timeout_secs: float = _setting(5.0, _SECONDS, "for a check's answer")
    health_check_endpoint: str = _setting(
        "/health", Text(r"/[!-~]*", "a path like /health", "PATH"), "path of the checks"
    )
    health_failure_threshold: int = _setting(
        3, _COUNT, "failed checks in a row until a worker is out"
    )
    health_success_threshold: int = _setting(
        1, _COUNT, "good checks in a row until it is back"
    )

    hold_timeout_secs: float = _setting(
        0.0, _SECONDS_OR_NONE, "how long a request waits for a worker; 0: not"
    )
    hold_queue_size: int = _setting(
        1_024, Integer(1, 1_000_000), "requests that may wait at once"
    )
    retry_max_retries: int = _setting(
        3, Integer(0, 100), "further attempts on other workers"
    )
    retry_initial_backoff_ms: int = _setting(
        50, Integer(0, 3_600_000), "before the first retry"
    )
    retry_max_backoff_ms: int = _setting(
        2_000, Integer(0, 3_600_000), "before any retry"
    )
    retry_backoff_multiplier: float = _setting(
        1.5, Number(1, 100), "growth from one retry to the next"
    )
    retry_jitter_factor: float = _setting(
        0.2, Number(0, 1), "share of a backoff that is random"
    )
    disable_retries: bool = _setting(False, Switch(), "one attempt only")
    retry_statuses: tuple[int, ...] = _setting(
        (500, 502, 503, 504),
        Words(Integer(400, 599)),
        "answers that another worker may do better",
    )

    connect_timeout_secs: float = _setting(5.0, _SECONDS, "to connect to a worker")
    header_timeout_secs: float = _setting(
        30.0, _SECONDS, "for a client's whole head, and between pieces of its body"
    )
    request_timeout_secs: float = _setting(
        1_800.0, _SECONDS_OR_NONE, "until the answer's head; 0: no limit"
    )
    stream_idle_timeout_secs: float = _setting(
        600.0, _SECONDS, "between two chunks of an answer"
    )
    upstream_idle_timeout_secs: float = _setting(
        4.0, _SECONDS, "until an idle worker connection is closed; vLLM does at 5"
    )
    drain_timeout_secs: float = _setting(
        60.0, _SECONDS_OR_NONE, "for running requests after SIGTERM or SIGINT"
    )
    max_payload_size: int = _setting(
        536_870_912, _BYTES, "bytes a request's body may have"
    )
    max_buffered_bytes: int = _setting(
        1_073_741_824, _BYTES, "bytes of bodies held at once, all together"
    )

    client_api_keys_file: str | None = _setting(
        None,
        Text(".+", "a path", "FILE"),
        "a YAML or JSON list of clients' keys, read again when it changes",
    )
    admin_api_key: str | None = _setting(
        None, Secret(), "asked for on admin routes; none: writes from loopback only"
    )
    request_id_headers: tuple[str, ...] = _setting(
        ("x-request-id", "x-correlation-id", "x-trace-id", "request-id"),
        Words(HeaderName(), least=1),
        "where a request's id is found: the first present",
    )
    prometheus_host: str = _setting("127.0.0.1", _HOST, "address of --prometheus-port")
    prometheus_port: int | None = _setting(
        None, _PORT, "serve /metrics at a port of its own, too"
    )
    log_level: str = _setting(
        "info", Choice(("debug", "info", "warning", "error", "critical")), "what to log"
    )
    log_format: str = _setting("text", Choice(("text", "json")), "how to log it")
    access_log: bool = _setting(False, Switch(), "log a line per request")


#: The field that opens a group of the help -> the group's heading.
_GROUPS = {
    "config": "Listening",
    "worker_urls": "Workers",
    "policy": "Choice of a worker",
    "health_check_interval_secs": "Health checks",
    "hold_timeout_secs": "Holding and retries",
    "connect_timeout_secs": "Limits",
    "client_api_keys_file": "Operation",
}


def _flags() -> tuple[Flag, ...]:
    flags, group = [], ""
    for item in fields(Settings):
        group = _GROUPS.get(item.name, group)
        flags.append(Flag(name=item.name, group=group, **item.metadata))
    return tuple(flags)


#: All settings, in the order of the help.
FLAGS = _flags()
