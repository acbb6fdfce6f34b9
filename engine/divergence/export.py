"""The outcome of a check as gauges for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdeck.engine.divergence.compare import CLASSES
from specdeck.engine.metrics.exposition import Exposition


class CheckGauges(Exposition):
    """The last check as Prometheus gauges; None is no sample, not 0."""

    def __init__(self, engine: str) -> None:
        from prometheus_client import Gauge

        super().__init__()
        self._engine = engine

        def gauge(name: str, help_: str, *labels: str) -> Gauge:
            return Gauge(
                f"specdeck_check_{name}", help_, ("engine", *labels), registry=self.registry
            )

        self._rate = gauge("mismatch_rate", "Share of prompts whose outputs differ.")
        self._floor = gauge("noise_floor_rate", "The same of an arm against itself.", "arm")
        self._prompts = gauge("prompts", "Prompts that both arms answered.")
        self._cases = gauge("cases", "Differing outputs by class.", "kind")
        self._verdict = gauge("verdict", "1 for the last verdict, 0 for others.", "verdict")
        self._ended = gauge("last_run_timestamp_seconds", "Unix time of the last finished check.")
        self._up = gauge("up", "Whether the last check could be done.")

    def mark_failed(self) -> None:
        """The check could not be done; the last figures stay."""
        self._up.labels(self._engine).set(0)

    def show(self, data: Mapping[str, Any], t: float) -> None:
        """The outcome of a check that ended at Unix time `t`."""
        name, floor = self._engine, data["noise_floor"]
        self._up.labels(name).set(1)
        self._ended.labels(name).set(t)
        self._prompts.labels(name).set(data["prompts"])
        if data["mismatch_rate"] is not None:
            self._rate.labels(name).set(data["mismatch_rate"])
            self._floor.labels(name, "reference").set(floor["rate"])
            self._floor.labels(name, "serving").set(floor["serving"]["rate"])
        for kind in CLASSES:
            self._cases.labels(name, kind).set(data["classes"][kind])
        for word in ("pass", "fail", "inconclusive"):
            self._verdict.labels(name, word).set(data["verdict"] == word)
