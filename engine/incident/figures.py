"""What an engine did over some minutes, from its recorded counters: for before, after and now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from specdeck.engine.blackbox.history import History
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import quantile
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import EngineState

STRETCH_S: Final = 300.0
"""Seconds before and after a moment that are told."""
_SETTINGS: Final = (
    "k", "k_set", "mode", "fallback", "policy", "breaker", "trial", "model", "method", "k_max",
    "instance", "vllm", "plugin", "fingerprint", "system_fingerprint", "alarm", "policy_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stretch:
    """Figures of one stretch of time; None is not known."""

    label: str
    start: float
    """Unix time, seconds; so is `end`."""
    end: float
    seconds: float | None = None
    """Between the two samples that the rates are taken of."""
    tokens_per_second: float | None = None
    acceptance: float | None = None
    mean_acceptance_length: float | None = None
    observed_k: float | None = None
    output_from_drafts: float | None = None
    acceptance_per_position: tuple[float | None, ...] | None = None
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    itl_p50_s: float | None = None
    itl_p99_s: float | None = None
    prefix_hit_rate: float | None = None
    preemptions: float | None = None
    running: float | None = None
    """Requests, on average."""
    waiting: float | None = None
    kv_cache_usage: float | None = None
    step_s: float | None = None
    """What a scheduler step took on average, while requests ran."""
    readings: int = 0
    down: int = 0
    """Readings of an engine that did not answer."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__}

    def accepted_of_first(self, depth: int) -> float | None:
        """What was accepted of the first `depth` tokens of drafts, as a share; None where that is
        not known of each of them."""
        rates = (self.acceptance_per_position or ())[:depth]
        known = [rate for rate in rates if rate is not None]
        return sum(known) / depth if len(known) == depth else None


def measure(history: History, label: str, start: float, end: float) -> Stretch:
    """The figures from `start` to `end`, within the last life of the engine that answers there."""
    readings = list(history.readings(start, end))
    began = start
    for reading in readings:
        if reading.restarted:
            began = reading.t
    alive = [one for one in readings if one.up and one.t >= began]
    window = None
    if len(alive) >= 2:
        window = history.window(alive[0].t, alive[-1].t)
    samples = [one.sample for one in alive if one.sample is not None]
    down = sum(not one.up for one in readings)
    return Stretch(
        label, start, end,
        running=_mean([one.running for one in samples]),
        waiting=_mean([one.waiting for one in samples]),
        kv_cache_usage=_mean([one.kv_cache_usage for one in samples]),
        step_s=_mean_step(alive),
        readings=len(readings), down=down,
        **({} if window is None else _rates(window)),
    )  # fmt: skip


def _rates(window: Window) -> dict[str, Any]:
    """The figures of a window by the names of a stretch's."""
    found: dict[str, Any] = {
        "seconds": window.seconds,
        "tokens_per_second": window.tokens_per_second,
        "acceptance": window.acceptance_rate,
        "mean_acceptance_length": window.mean_acceptance_length,
        "observed_k": window.draft_tokens_per_draft,
        "output_from_drafts": window.output_from_drafts,
        "acceptance_per_position": window.acceptance_per_position,
        "prefix_hit_rate": window.prefix_hit_rate,
        "preemptions": window.preemptions,
    }
    for name, histogram in (("ttft", window.ttft), ("itl", window.itl)):
        if histogram is not None:
            found[f"{name}_p50_s"] = quantile(histogram, 0.5)
            found[f"{name}_p99_s"] = quantile(histogram, 0.99)
    return found


def _mean_step(readings: Sequence[Reading]) -> float | None:
    """Seconds of a step, by those made between readings of a busy engine."""
    seconds, steps = 0.0, 0
    for older, newer in pairwise(readings):
        before, after, window = older.state, newer.state, newer.window
        if before is None or after is None or window is None or before.instance != after.instance:
            continue
        made = after.step - before.step
        # An engine that stood still meanwhile made its steps in a part of the time.
        if made > 0 and before.running and after.running:
            seconds, steps = seconds + window.seconds, steps + made
    return seconds / steps if steps else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def read_settings(state: EngineState | None) -> dict[str, Any]:
    """What was set at a moment, and which engine it was; empty where nobody told."""
    return {} if state is None else {name: getattr(state, name) for name in _SETTINGS}
