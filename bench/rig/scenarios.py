"""What is measured: scenarios of rows, each row one run of wrk. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One run of wrk: its load, and how the mock engines answer it."""

    label: str
    connections: int
    seconds: int
    #: Options for chat.lua, such as "size=300 stream=1".
    options: str = ""
    #: Pause before each request of a connection (0: none).
    think_ms: int = 0
    #: Chunks of a stream, the gap between two, and the delay of the first byte.
    chunks: int = 50
    gap_us: int = 0
    delay_us: int = 0
    #: Whether interpreter-bound routers are given this row too.
    slow: bool = True
    #: Whether the session header is sent.
    key: bool = False
    #: Whether all requests are for the first of the models.
    one_model: bool = False

    @property
    def stream(self) -> bool:
        """Whether the answers are SSE streams, measured by the chunk."""
        return "stream=1" in self.options


@dataclass(frozen=True, slots=True)
class Scenario:
    """Rows that are measured in one run of a router under one policy."""

    title: str
    #: "rr", "sticky" or "cache"; systems.py has each router's word for it.
    policy: str
    rows: tuple[Row, ...]


SCENARIOS = {
    "S1": Scenario(
        "Non-stream, 300 B body, 16 workers, round robin",
        "rr",
        (
            Row("1 connection", 1, 2, "size=300"),
            Row("64 connections", 64, 4, "size=300"),
            Row("512 connections", 512, 4, "size=300"),
            Row(
                "about 1000 req/s offered",
                64,
                3,
                "size=300",
                think_ms=64,
                slow=False,
            ),
        ),
    ),
    "S2": Scenario(
        "Session header, 1,000 keys, 300 B body, 16 workers, sticky policy",
        "sticky",
        (Row("64 connections", 64, 4, "size=300 keys=1000", key=True),),
    ),
    "S3": Scenario(
        "Cache-aware policy, 16 workers, 16 shared system prompts",
        "cache",
        (
            Row(
                "300 B, 1,000 distinct prompts",
                64,
                4,
                "size=300 prompts=shared keys=1000",
            ),
            Row(
                "8 KB, 1,000 distinct prompts",
                64,
                4,
                "size=8192 prompts=shared keys=1000",
            ),
            Row("8 KB, every prompt new", 64, 5, "size=8192 prompts=fresh"),
        ),
    ),
    "S4": Scenario(
        "Non-stream, large bodies, 16 workers, round robin",
        "rr",
        (
            Row("8 KB body", 64, 4, "size=8192"),
            Row("64 KB body", 64, 4, "size=65536"),
        ),
    ),
    "S5": Scenario(
        "SSE stream of 50 chunks, 16 workers, round robin",
        "rr",
        (
            Row("no gap, 64 streams", 64, 4, "size=300 stream=1"),
            Row("10 ms gap, 64 streams", 64, 4, "size=300 stream=1", gap_us=10000),
            Row("10 ms gap, 256 streams", 256, 4, "size=300 stream=1", gap_us=10000),
        ),
    ),
}

#: (workers, models) of S6, S9, S10 and, with one model, of S8.
FLEETS = [(n, k) for k in (1, 8) for n in (16, 128, 512, 2000)]
FLEET_TITLES = {
    "S6": "Fleet size: round robin, 300 B body, 64 connections",
    "S7": "Idle: 512 workers registered, no traffic, health checks every 10 s",
    "S8": "Fleet size under the cache-aware policy: 300 B body, 1,000 distinct "
    "prompts, 64 connections",
    "S9": "One model in a growing fleet: round robin, 300 B body, 64 connections, "
    "requests for one of the models only",
    "S10": "Fleet size at little load: round robin, 300 B body, 200 requests a second, "
    "engines that take 5 ms",
}
FLEET_ROWS = {
    "S6": Row("", 64, 3, "size=300"),
    "S8": Row("", 64, 3, "size=300 prompts=shared keys=1000"),
    "S9": Row("", 64, 3, "size=300", one_model=True),
    # A connection's turn is the pause and the 5 ms.
    "S10": Row("", 16, 8, "size=300", think_ms=75, delay_us=5000),
}
#: The fleet that S7 leaves idle, and S8's largest.
IDLE_FLEET = (512, 1)
CACHE_WORKERS = 512
