"""What Prometheus reads: each series once, and none that outlives its subject."""

from __future__ import annotations

from collections import Counter

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from router.admin import build_metrics
from router.observe.exposition import BOUNDS, Histogram, family, labels
from router.observe.metrics import RETRY_REASONS, UPSTREAM_ERRORS
from router.proxy.meter import Meter
from tests.edge.fleet import Admin, Fleet, make_fleet
from tests.edge.test_admin_workers import A, B

NEWLINE = "1\n2"
Series = tuple[str, frozenset[tuple[str, str]]]


def parsed(text: str) -> dict[Series, float]:
    """Every series and its value, as Prometheus' own parser reads them."""
    families = list(text_string_to_metric_families(text))
    names = Counter(family.name for family in families)
    samples = [sample for family in families for sample in family.samples]
    series = Counter((s.name, frozenset(s.labels.items())) for s in samples)
    assert [name for name, count in names.items() if count > 1] == []
    assert [one for one, count in series.items() if count > 1] == []
    return {(s.name, frozenset(s.labels.items())): s.value for s in samples}


def value(fleet: Fleet, name: str, **given: str) -> float | None:
    """Of one series now; None: there is none."""
    series = parsed(fleet.metrics.render())
    return series.get((f"fleetrouter_{name}", frozenset(given.items())))


async def test_a_workers_series_begin_with_it_and_end_with_it() -> None:
    fleet = make_fleet()
    worker = fleet.add(A)
    assert value(fleet, "worker_healthy", worker=A) == 0
    assert value(fleet, "worker_in_flight", worker=A) == 0
    fleet.is_ready(worker.slot, "m")
    fleet.registry.snapshot.everyone.least_load()
    assert value(fleet, "worker_healthy", worker=A) == 1
    assert value(fleet, "worker_in_flight", worker=A) == 1
    assert value(fleet, "workers", status="ready") == 1
    fleet.metrics.attempted(worker.id, 200)
    fleet.metrics.attempted(worker.id, 503)
    fleet.metrics.attempted(worker.id, 0)
    for status in ("2xx", "5xx", "none"):
        given = {"worker": A, "status": status}
        assert value(fleet, "worker_attempts_total", **given) == 1
    fleet.registry.remove(worker.id)
    fleet.registry.flush()
    fleet.metrics.attempted(worker.id, 200)
    assert A not in fleet.metrics.render()


async def test_a_replaced_worker_begins_anew() -> None:
    fleet = make_fleet()
    old = fleet.add(A, "m")
    fleet.metrics.attempted(old.id, 200)
    fleet.add(A, "m")
    assert value(fleet, "worker_attempts_total", worker=A, status="2xx") is None
    assert value(fleet, "worker_healthy", worker=A) == 1


async def test_a_models_series_begin_with_it_and_end_with_it() -> None:
    fleet = make_fleet()
    worker = fleet.add(A, "m")
    fleet.add(B, "n")
    fleet.metrics.answered("m", 200, 0.1, 0.02)
    assert value(fleet, "requests_total", model="m", status="2xx") == 1
    assert value(fleet, "model_workers", model="m") == 1
    assert value(fleet, "model_ready_workers", model="m") == 1
    fleet.registry.remove(worker.id)
    fleet.registry.flush()
    fleet.metrics.answered("m", 404, 0.1, 0.02)
    assert value(fleet, "requests_total", model="m", status="2xx") is None
    assert value(fleet, "model_workers", model="m") is None
    assert value(fleet, "requests_total", model="other", status="4xx") == 1


async def test_names_that_clients_make_up_are_counted_together() -> None:
    fleet = make_fleet()
    fleet.add(A, "m")
    lines = len(fleet.metrics.render().splitlines())
    for number in range(1000):
        fleet.metrics.answered(f"made-up-{number}", 404, 0.1, 0.02)
    fleet.metrics.answered(None, 200, 0.1, 0.02)
    assert value(fleet, "requests_total", model="other", status="4xx") == 1000
    assert value(fleet, "requests_total", model="none", status="2xx") == 1
    assert len(fleet.metrics.render().splitlines()) == lines + 2


@pytest.mark.parametrize("model", ["other", "none"])
async def test_a_model_of_a_name_that_is_used_here_makes_no_series_twice(
    model: str,
) -> None:
    fleet = make_fleet()
    worker = fleet.add(A, model)
    fleet.metrics.answered(model, 200, 0.1, 0.02)
    fleet.metrics.answered("made-up", 200, 0.1, 0.02)
    fleet.metrics.answered(None, 200, 0.1, 0.02)
    parsed(fleet.metrics.render())
    fleet.registry.remove(worker.id)
    fleet.registry.flush()
    fleet.metrics.answered("made-up", 200, 0.1, 0.02)
    fleet.metrics.answered(None, 200, 0.1, 0.02)
    parsed(fleet.metrics.render())


async def test_names_are_escaped() -> None:
    fleet = make_fleet()
    name = 'a "quoted\\ name'
    fleet.add(A, name)
    fleet.metrics.answered(name, 200, 0.1, 0.02)
    assert value(fleet, "requests_total", model=name, status="2xx") == 1
    sample = f"x{{{labels(a=NEWLINE)}}} 1"
    text = "\n".join(family("x", "gauge", "h", [sample, ""]))
    assert parsed(text) == {("x", frozenset({("a", NEWLINE)})): 1}


async def test_the_plain_counters_are_read_as_they_are() -> None:
    fleet = make_fleet()
    metrics = fleet.metrics
    metrics.gauge("client_connections", "Open now.", lambda: 4)
    metrics.aborts += 6
    metrics.resends += 7
    metrics.held += 9
    metrics.hold_timeouts += 10
    metrics.hold_rejections += 11
    series = parsed(metrics.render())
    for name, count in {
        "client_connections": 4,
        "client_aborts_total": 6,
        "resends_total": 7,
        "held_total": 9,
        "hold_timeouts_total": 10,
        "hold_rejections_total": 11,
    }.items():
        assert series[f"fleetrouter_{name}", frozenset()] == count


async def test_the_data_plane_counts_with_it() -> None:
    """And a client that left before there was an answer is no answer of any class."""
    fleet = make_fleet()
    meter: Meter = fleet.metrics
    meter.held += 2
    meter.answered(None, 0, 0.5, 0.02)
    assert value(fleet, "held_total") == 2
    assert value(fleet, "requests_total", model="none", status="none") == 1


async def test_reasons_and_kinds_are_a_closed_set() -> None:
    fleet = make_fleet()
    for reason in (*RETRY_REASONS, "unforeseen"):
        fleet.metrics.retried(reason)
    for kind in (*UPSTREAM_ERRORS, "unforeseen"):
        fleet.metrics.upstream_failed(kind)
    assert value(fleet, "retries_total", reason="connect") == 1
    assert value(fleet, "retries_total", reason="other") == 2
    assert value(fleet, "upstream_errors_total", kind="refused") == 1
    assert value(fleet, "upstream_errors_total", kind="other") == 2
    assert "unforeseen" not in fleet.metrics.render()


async def test_durations_fall_into_buckets() -> None:
    fleet = make_fleet()
    for seconds in (0.0005, 0.001, 0.3, 10_000.0):
        fleet.metrics.answered(None, 200, seconds, 0.02)
    name = "request_duration_seconds"
    assert value(fleet, f"{name}_bucket", le="0.001") == 2
    assert value(fleet, f"{name}_bucket", le="0.25") == 2
    assert value(fleet, f"{name}_bucket", le="0.5") == 3
    assert value(fleet, f"{name}_bucket", le="600") == 3
    assert value(fleet, f"{name}_bucket", le="+Inf") == 4
    assert value(fleet, f"{name}_count") == 4
    assert value(fleet, f"{name}_sum") == pytest.approx(10_000.3015)
    assert value(fleet, "first_byte_seconds_count") == 4


def test_a_value_at_a_bound_is_below_it() -> None:
    histogram = Histogram()
    for bound in BOUNDS:
        histogram.observe(bound)
    assert histogram.counts == [*([1] * len(BOUNDS)), 0]


async def test_what_runs_and_its_process_are_told() -> None:
    fleet = make_fleet()
    series = parsed(fleet.metrics.render())
    names = {name for name, _ in series}
    assert "python_gc_collections_total" in names
    build = [given for name, given in series if name == "fleetrouter_build_info"]
    assert ("version", "1.2.3") in build[0]


async def test_the_page_is_served_in_prometheus_text(admin: Admin) -> None:
    for number in range(400):
        admin.fleet.add(f"http://worker-{number}")
    status, text, headers = await admin.full("GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    workers = [name for name, _ in parsed(text) if name.endswith("worker_healthy")]
    assert len(workers) == 400


async def test_a_port_of_its_own_serves_the_page_and_nothing_else() -> None:
    app = build_metrics(make_fleet().metrics)
    async with TestClient(TestServer(app)) as client:
        for path, status in (("/metrics", 200), ("/workers", 404), ("/health", 404)):
            async with client.get(path) as response:
                assert response.status == status
