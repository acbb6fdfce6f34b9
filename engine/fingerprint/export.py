"""The last verification as Prometheus gauges; what is not known has no sample."""

from __future__ import annotations

from specdeck.engine.fingerprint.compare import WORDS, Comparison
from specdeck.engine.metrics.exposition import Exposition


class Gauges(Exposition):
    """Of one engine, for one process."""

    def __init__(self, engine: str) -> None:
        from prometheus_client import Counter, Gauge

        super().__init__()
        self._engine = self.label(engine)

        def gauge(name: str, help_: str, *labels: str) -> Gauge:
            full = f"specdeck_fingerprint_{name}"
            return Gauge(full, help_, ("engine", *labels), registry=self.registry)

        self._drift = gauge("drift", "1 where a layer differs from the pin, else 0.", "layer")
        self._verdict = gauge("verdict", "1 for what changed since the pin, else 0.", "kind")
        self._info = gauge("info", "Always 1; the names are labels.", "build", "path", "behaviour")
        self._verified = gauge("verified_timestamp_seconds", "Unix time of the last comparison.")
        self._up = gauge("up", "Whether the last comparison could be made.")
        self._drifts = Counter(
            "specdeck_fingerprint_drifts",
            "Times that the engine came to differ from its pin.",
            ("engine",),
            registry=self.registry,
        )
        self._drifts.labels(self._engine)

    def show_failure(self) -> None:
        """The engine could not be compared; the last figures stay."""
        self._up.labels(self._engine).set(0)

    def show(self, found: Comparison, t: float) -> None:
        """A comparison at Unix time `t`."""
        name = self._engine
        self._up.labels(name).set(1)
        self._verified.labels(name).set(t)
        self._drift.clear()
        for layer, moved in found.layers.items():
            if moved is not None:
                self._drift.labels(name, layer).set(moved)
        kinds = {kind for kind, _ in found.verdicts}
        for kind in WORDS:
            self._verdict.labels(name, kind).set(kind in kinds)
        self._info.clear()
        self._info.labels(name, *map(self.label, found.after.names.values())).set(1)

    def count_drift(self) -> None:
        """The engine came to differ from its pin, or to differ in another way."""
        self._drifts.labels(self._engine).inc()
