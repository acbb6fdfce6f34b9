"""One reading as the JSON line of `watch --json`: every key always there, null when unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specdeck.engine.control.protocol import EngineState
from specdeck.engine.metrics.quantile import quantile
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.window import Window

Json = object
"""A value that `json.dumps` writes; NaN and infinities are not among them."""


def status(reading: Reading) -> dict[str, Json]:
    """The reading under the keys of the command line's contract.

    Rates, latencies and acceptance are of the window; gauges are of the moment. k is
    the live one, 0 in target-only, and null without the plugin: the page tells k_max only.
    """
    return {
        "t": round(reading.t, 3),
        "engine": reading.url,
        "up": reading.up,
        **_control(reading.state, reading.sample),
        **_work(reading.window or Window(seconds=1.0)),
        **_load(reading.sample or Sample(t=reading.t, at=0.0)),
        **_latency(reading.window or Window(seconds=1.0)),
        "fingerprint": reading.state.fingerprint if reading.state else None,
        "system_fingerprint": reading.state.system_fingerprint if reading.state else None,
        "restarted": reading.restarted,
    }


def _control(state: EngineState | None, sample: Sample | None) -> dict[str, Json]:
    model, k_max = (sample.model, sample.k_max) if sample else (None, None)
    if state is None:
        unknown = dict.fromkeys(("k", "mode", "policy", "breaker"))
        return {"model": model, "method": None, "k_max": k_max, **unknown}
    return {
        "model": model or state.model,
        "method": state.method,
        "k_max": state.k_max,
        "k": state.k,
        "mode": state.mode,
        "policy": state.policy,
        "breaker": state.breaker,
    }


def _work(window: Window) -> dict[str, Json]:
    return {
        "tokens_per_second": _rounded(window.tokens_per_second, 2),
        "acceptance_rate": _rounded(window.acceptance_rate, 4),
        "mean_acceptance_length": _rounded(window.mean_acceptance_length, 3),
        "draft_tokens_per_draft": _rounded(window.draft_tokens_per_draft, 3),
        "acceptance_per_position": per_position(window.acceptance_per_position),
        "output_from_drafts": _rounded(window.output_from_drafts, 4),
    }


def _load(sample: Sample) -> dict[str, Json]:
    return {
        "running": _whole(sample.running),
        "waiting": _whole(sample.waiting),
        "kv_cache_usage": _rounded(sample.kv_cache_usage, 4),
    }


def _latency(window: Window) -> dict[str, Json]:
    return {
        "ttft_ms": milliseconds(window.ttft),
        "itl_ms": milliseconds(window.itl),
        "preemptions_per_second": _rounded(window.preemptions_per_second, 3),
    }


def per_position(rates: Sequence[float | None] | None) -> list[float | None] | None:
    """The rates up to the deepest position that was drafted; None when nothing was.

    >>> per_position((0.81, 0.62, None, None)), per_position((None, 0.5)), per_position((None,))
    ([0.81, 0.62], [None, 0.5], None)
    """
    depth = max((i for i, rate in enumerate(rates or (), 1) if rate is not None), default=0)
    return [_rounded(rate, 4) for rate in rates[:depth]] if rates and depth else None


def milliseconds(histogram: Histogram | None) -> dict[str, float | None]:
    """Median and 95th percentile of a histogram of seconds, in milliseconds.

    >>> milliseconds(Histogram((0.01, 0.02, math.inf), (10.0, 20.0, 20.0)))
    {'p50': 10.0, 'p95': 19.0}
    >>> milliseconds(None)
    {'p50': None, 'p95': None}
    """
    found = {name: quantile(histogram, q) if histogram else None for name, q in _QUANTILES.items()}
    return {
        name: None if value is None else _rounded(value * 1e3, 2) for name, value in found.items()
    }


_QUANTILES = {"p50": 0.5, "p95": 0.95}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)


def _whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value)
