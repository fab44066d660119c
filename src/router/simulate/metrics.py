"""What GET /metrics of a simulated worker says: vLLM's names, labels and types.

Reads engines, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from .engine import Engine

SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


class EngineCollector(Collector):
    """The families of one worker's engines (one series a rank) at one moment."""

    def __init__(
        self, model_name: str, engines: Sequence[Engine], loras: Mapping[str, str]
    ) -> None:
        """loras: adapters that were asked for, empty before the first such request."""
        self._engines = engines
        self._labels = [[str(rank), model_name] for rank in range(len(engines))]
        self._loras = loras

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._histograms()

    def _gauge(self, name: str, text: str, values: Iterable[float]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=["engine", "model_name"])
        for labels, value in zip(self._labels, values, strict=True):
            family.add_metric(labels, value)
        return family

    def _gauges(self) -> Iterator[Metric]:
        yield self._gauge(
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            [len(engine.running) for engine in self._engines],
        )
        yield self._gauge(
            "vllm:num_requests_waiting",
            "Number of requests waiting to be processed.",
            [len(engine.queue) for engine in self._engines],
        )
        yield self._waiting_by_reason()
        yield self._sleep_state()
        yield self._gauge(
            "vllm:kv_cache_usage_perc",
            "KV-cache usage. 1 means 100 percent usage.",
            [
                min(1.0, engine.kv_tokens / engine.KV_CAPACITY)
                for engine in self._engines
            ],
        )
        yield self._cache_config()
        if self._loras:
            yield self._lora_info()

    def _waiting_by_reason(self) -> Metric:
        family = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            labels=["engine", "model_name", "reason"],
        )
        for labels, engine in zip(self._labels, self._engines, strict=True):
            family.add_metric([*labels, "capacity"], len(engine.queue))
            family.add_metric([*labels, "deferred"], 0)
        return family

    def _sleep_state(self) -> Metric:
        family = GaugeMetricFamily(
            "vllm:engine_sleep_state",
            "Engine sleep state.",
            labels=["engine", "model_name", "sleep_state"],
        )
        for labels, engine in zip(self._labels, self._engines, strict=True):
            now = SLEEP_STATES[1] if engine.asleep else SLEEP_STATES[0]
            for state in SLEEP_STATES:
                family.add_metric([*labels, state], float(state == now))
        return family

    def _cache_config(self) -> Metric:
        family = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            labels=["block_size", "engine", "num_gpu_blocks"],
        )
        for rank, engine in enumerate(self._engines):
            family.add_metric(["16", str(rank), str(engine.KV_CAPACITY // 16)], 1.0)
        return family

    def _lora_info(self) -> Metric:
        family = GaugeMetricFamily(
            "vllm:lora_requests_info",
            "Running stats on lora requests.",
            labels=["max_lora", "running_lora_adapters", "waiting_lora_adapters"],
        )
        family.add_metric(["8", ",".join(self._loras), ""], 1.0)
        return family

    def _counter(self, name: str, text: str, values: Iterable[float]) -> Metric:
        family = CounterMetricFamily(name, text, labels=["engine", "model_name"])
        for labels, value in zip(self._labels, values, strict=True):
            family.add_metric(labels, value)
        return family

    def _counters(self) -> Iterator[Metric]:
        engines = self._engines
        yield self._counter(
            "vllm:prompt_tokens",
            "Number of prefill tokens processed.",
            [engine.prompt_tokens for engine in engines],
        )
        yield self._counter(
            "vllm:generation_tokens",
            "Number of generation tokens processed.",
            [engine.generation_tokens for engine in engines],
        )
        yield self._counter(
            "vllm:prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            [engine.prompt_tokens for engine in engines],
        )
        yield self._counter(
            "vllm:prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            [0 for _ in engines],
        )
        yield self._counter(
            "vllm:num_preemptions",
            "Cumulative number of preemption from the engine.",
            [0 for _ in engines],
        )
        yield self._by_reason(
            "vllm:request_success",
            "Count of successfully processed requests.",
            "finished_reason",
            [engine.finished for engine in engines],
        )
        yield self._by_reason(
            "vllm:admission_rejections",
            "Requests refused by admission control.",
            "reason",
            [{"num_queued_reqs": engine.rejections} for engine in engines],
        )

    def _by_reason(
        self, name: str, text: str, label: str, counts: Iterable[Mapping[str, int]]
    ) -> Metric:
        family = CounterMetricFamily(name, text, labels=["engine", "model_name", label])
        for labels, reasons in zip(self._labels, counts, strict=True):
            for reason, count in reasons.items():
                family.add_metric([*labels, reason], count)
        return family

    def _histograms(self) -> Iterator[Metric]:
        for name, text, histograms in (
            (
                "vllm:time_to_first_token_seconds",
                "Histogram of time to first token in seconds.",
                [engine.first_token for engine in self._engines],
            ),
            (
                "vllm:inter_token_latency_seconds",
                "Histogram of inter-token latency in seconds.",
                [engine.inter_token for engine in self._engines],
            ),
            (
                "vllm:e2e_request_latency_seconds",
                "Histogram of e2e request latency in seconds.",
                [engine.end_to_end for engine in self._engines],
            ),
        ):
            family = HistogramMetricFamily(name, text, labels=["engine", "model_name"])
            for labels, histogram in zip(self._labels, histograms, strict=True):
                family.add_metric(labels, histogram.buckets(), histogram.total)
            yield family


def render(
    model_name: str, engines: Sequence[Engine], loras: Mapping[str, str]
) -> bytes:
    """The metrics page in Prometheus' text format."""
    return generate_latest(EngineCollector(model_name, engines, loras))
