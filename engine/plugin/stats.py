"""vLLM's stat logger plugin and a counter of our own: what vLLM's /metrics page lacks.

vLLM counts accepted tokens per position but not how many drafts *had* that position, so
with k moving the page alone understates deep positions. The figure exists inside vLLM
(SpecDecodingStats.num_draft_tokens_per_pos); this publishes it. Requests under exact names
are pinned in the same process, and counted there.

Imported by vLLM's API server process only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from prometheus_client import Counter
from vllm.v1.metrics.loggers import StatLoggerBase


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
