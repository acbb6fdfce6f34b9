"""Quantiles of a histogram, as a Prometheus server would answer them."""

from __future__ import annotations

import math

from specdeck.engine.metrics.sample import Histogram


def quantile(histogram: Histogram, q: float) -> float | None:
    """The value below which the share `q` (0 to 1) of the observations lies.

    Interpolates linearly inside the bucket, from 0 in the first one, as
    `histogram_quantile` does (`bucketQuantile` in prometheus:promql/quantile.go): a
    quantile that falls into the +Inf bucket is the last finite bound. None without
    observations. Raises ValueError for a `q` that is no share.

    >>> half = Histogram(bounds=(1.0, 2.0, math.inf), counts=(10.0, 30.0, 40.0))
    >>> quantile(half, 0.5), quantile(half, 0.99)
    (1.5, 2.0)
    >>> quantile(Histogram((1.0, math.inf), (0.0, 0.0)), 0.5) is None
    True
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    bounds, counts = histogram.bounds, histogram.counts
    if len(counts) < 2 or not counts[-1] > 0 or not math.isinf(bounds[-1]):
        return None
    rank = q * counts[-1]
    last = len(counts) - 1
    bucket = next((i for i in range(last) if counts[i] >= rank), last)
    if bucket == last:
        return bounds[last - 1]
    if bucket == 0 and bounds[0] <= 0:
        return bounds[0]
    start, below = (bounds[bucket - 1], counts[bucket - 1]) if bucket else (0.0, 0.0)
    inside = counts[bucket] - below
    return start + (bounds[bucket] - start) * ((rank - below) / inside if inside else 0.0)
