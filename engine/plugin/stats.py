"""vLLM's stat logger plugin and a counter of our own: what vLLM's /metrics page lacks.

vLLM counts accepted tokens per position but not how many drafts *had* that position, so
with k moving the page alone understates deep positions. The figure exists inside vLLM
(SpecDecodingStats.num_draft_tokens_per_pos); this publishes it. Requests under exact names
are pinned in the same process, and counted there. What finished requests drafted by cohort is
the engine core's to tell, and published when a page is asked for.

Imported by vLLM's API server process only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from prometheus_client import Counter, Gauge
from vllm.v1.metrics.loggers import StatLoggerBase

from specdeck.engine.protocol.cohorts import CohortCounts, Cohorts


class DraftedPerPosition(StatLoggerBase):  # type: ignore[misc]  # vLLM is untyped here
    """Counts drafts that had a token at each position."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._engine = str(engine_index)
        self._model = str(vllm_config.model_config.served_model_name)
        self._positions: list[Any] = []
        if vllm_config.speculative_config is not None:
            counter = _shared_counter(
                "specdeck:draft_tokens_per_position",
                "Drafts that had a token at this position.",
                *("model_name", "engine", "position"),
            )
            count = vllm_config.speculative_config.num_speculative_tokens or 0
            self._positions = [
                counter.labels(self._model, self._engine, str(position))
                for position in range(count)
            ]

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """Called by vLLM after every step."""
        stats = getattr(scheduler_stats, "spec_decoding_stats", None)
        drafted = getattr(stats, "num_draft_tokens_per_pos", None)
        if drafted:
            for counter, count in zip(self._positions, drafted, strict=False):
                counter.inc(count)

    def log_engine_initialized(self) -> None:
        """vLLM's own loggers say it already."""


@cache
def _shared_counter(name: str, help_: str, *labels: str) -> Any:
    """One for the process: Prometheus refuses a second counter of the same name."""
    return Counter(name, help_, labels)


def exact_requests(model: str) -> Callable[[], None]:
    """Counts a request under an exact name of the engine that serves `model`."""
    counter = _shared_counter(
        "specdeck:exact_requests", "Requests under exact names: target-only.", "model_name"
    )
    count: Callable[[], None] = counter.labels(model).inc
    return count


_COHORT_LABELS = ("model_name", "engine", "by", "cohort")
_COHORT_FIGURES: dict[str, tuple[str, Callable[[CohortCounts], int]]] = {
    "specdeck:cohort_requests": ("Finished requests.", lambda counts: counts.requests),
    "specdeck:cohort_drafts": ("Drafts of finished requests.", lambda counts: counts.drafts),
    "specdeck:cohort_draft_tokens": (
        "Tokens drafted for finished requests.", lambda counts: counts.drafted,
    ),
    "specdeck:cohort_accepted_tokens": (
        "Drafted tokens of finished requests that were accepted.", lambda counts: counts.accepted,
    ),
}  # fmt: skip


@cache
def _cohort_gauge(name: str) -> tuple[Any, set[tuple[str, ...]]]:
    """A gauge, and the labels that it has.

    Not a counter: each of several API servers tells the whole, of which the largest is the latest.
    """
    help_ = _COHORT_FIGURES[name][0]
    return Gauge(name, help_, _COHORT_LABELS, multiprocess_mode="max"), set()


def publish_cohorts(model: str, ranks: Sequence[Cohorts]) -> None:
    """Shows finished requests by each dimension of their cohorts, of each data-parallel rank.

    A request is counted once in each dimension (`by`), under its word there (`cohort`).
    """
    found = {
        (model, str(rank), *pair): counts
        for rank, each in enumerate(ranks)
        for pair, counts in each.by_word().items()
    }
    removable = "PROMETHEUS_MULTIPROC_DIR" not in os.environ
    for name, (_, count) in _COHORT_FIGURES.items():
        gauge, shown = _cohort_gauge(name)
        for labels in shown - found.keys() if removable else ():
            gauge.remove(*labels)  # an adapter that lost its word
            shown.discard(labels)
        for labels, counts in found.items():
            gauge.labels(*labels).set(count(counts))
            shown.add(labels)


_CPU_FIGURES = {
    "watched": ("specdeck:cpu_watched_seconds", "Time over which threads were watched."),
    "core_ran": ("specdeck:core_cpu_seconds", "CPU time of the engine core's step thread."),
    "core_waited": (
        "specdeck:core_cpu_waiting_seconds", "Time that it was ready to run and had no CPU.",
    ),
    "worker_ran": ("specdeck:worker_cpu_seconds", "CPU time of a worker's busiest thread."),
    "worker_waited": (
        "specdeck:worker_cpu_waiting_seconds",
        "Time that a thread of it that computes was ready to run and had no CPU.",
    ),
    "throttled": (
        "specdeck:cpu_throttled_seconds", "Time that a quota kept the engine from running.",
    ),
}  # fmt: skip


@cache
def _cpu_gauge(name: str) -> Any:
    """Not a counter, as that of a cohort."""
    series, help_ = _CPU_FIGURES[name]
    return Gauge(series, help_, ("model_name", "engine"), multiprocess_mode="max")


def publish_cpu_times(model: str, ranks: Sequence[Mapping[str, float | None]]) -> None:
    """Shows how long threads of each data-parallel rank waited for a CPU; nothing that is not
    known of a rank."""
    for rank, found in enumerate(ranks):
        for name in _CPU_FIGURES:
            seconds = found.get(name)
            if seconds is not None:
                _cpu_gauge(name).labels(model, str(rank)).set(seconds)
