"""Whether one cohort decays while the others stay: by pieces of the span, against them.

Each piece compares the cohort with all other requests of the same time, so that what moves both (a
busy machine, a new kind of text) is no drift. A line that falls through the pieces, beyond chance,
is a slow drift, and so is one that bends: drafts that are spoilt ever more often cost little at
first. A step down is the cohort's own cause. All lines together raise `FALSE_ALARMS` at
most where nothing drifts. A cohort that is a cause already, by the comparison with all others, is
asked once more whether it decays; there a line needs no more than `_SUSPECT_Z`, but most of the gap
must have come within the pieces: a kind that was poor from the first piece on is poor by its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Final

from specdeck.engine.why.causes import Cause, Figure, Finding, RuledOut, Untold
from specdeck.engine.why.cohort_gaps import Split, cost_of, list_splits
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import FALSE_ALARMS, Estimate, Spread, Trials, own_tokens

_NAME: Final = "cohort_drift"
LEAST_PIECES = 5
_LEAST_TRIALS = 4.0
"""Of either side in a piece."""
_LEAST_FALL = 0.1
"""In that share, from the first piece to the last."""
_NO_WORSE = 4.0
"""Of squared standard errors: a line is a drift where it leaves no more than the best step does,
and so much, for a step has one more number to choose."""
_OWN = 0.6
"""Of a suspect's gap in the last piece, that must not have been there in the first."""
_MOST_OF_IT = 0.8
"""Of a cohort's tokens: where another one has as many of them, it is a part of that."""
_SUSPECT_Z = 2.6
"""Passed by one line in two hundred where nothing drifts."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A cohort against the others in one piece of the span."""

    t: float
    gap: float
    """The share of the output from drafts, of the others above the cohort."""
    variance: float
    weight: float
    worse: float


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through the pieces."""

    split: Split
    pieces: tuple[Piece, ...]
    slope: float
    """Of the gap, a second."""
    error: float
    middle: float
    mean: float
    left_by_line: float
    """Squared standard errors that the pieces lie off it, together."""
    left_by_bend: float
    """Off a parabola, which has as many numbers to choose as a step of two levels."""

    @property
    def z(self) -> float:
        """Standard errors that the slope is away from none."""
        return self.slope / self.error if self.error else 0.0

    @property
    def fall(self) -> float:
        """From the first piece to the last."""
        return self.slope * (self.pieces[-1].t - self.pieces[0].t)

    @property
    def last(self) -> float:
        """The gap in the last piece, by the line."""
        return self.mean + self.slope * (self.pieces[-1].t - self.middle)

    def is_gradual(self) -> bool:
        """Whether it falls all the time, and not in one step."""
        step = self._left_by_step()
        return self.left_by_line <= step + _NO_WORSE or self.left_by_bend <= step

    def _left_by_step(self) -> float:
        """What the best step of two levels leaves."""
        best = float("inf")
        for at in range(1, len(self.pieces)):
            left = 0.0
            for part in (self.pieces[:at], self.pieces[at:]):
                whole = sum(one.weight for one in part)
                level = sum(one.weight * one.gap for one in part) / whole
                left += sum(one.weight * (one.gap - level) ** 2 for one in part)
            best = min(best, left)
        return best


def find_drift(evidence: Evidence, suspects: Sequence[Split] = ()) -> list[Finding]:
    """The cohort that decays most surely, or that none does; `suspects` are causes already."""
    if len(evidence.series) < LEAST_PIECES:
        return [Untold(_NAME, "no_pieces")]
    span = evidence.span.comparable()
    splits = list_splits(span)
    series = [piece.comparable() for piece in evidence.series]
    trends = [t for split in splits if (t := fit_trend(series, evidence.spread, split)) is not None]
    if not trends:
        return [Untold(_NAME, "few_requests" if splits else "no_contrast")]
    limit = NormalDist().inv_cdf(1 - FALSE_ALARMS / len(splits))
    falling = [
        trend
        for trend in trends
        if trend.fall >= _LEAST_FALL
        and trend.is_gradual()
        and (
            trend.z > _SUSPECT_Z and trend.fall >= _OWN * trend.last
            if trend.split in suspects
            else trend.z > limit and not _is_within(trend.split, suspects, span)
        )
    ]
    if falling:
        worst = max(falling, key=lambda trend: trend.z)
        return [_make_cause(worst, span)]
    worst = max(trends, key=lambda trend: trend.fall)
    reach = worst.error * (worst.pieces[-1].t - worst.pieces[0].t) * 1.96
    fall = Estimate(worst.fall / 2, (worst.fall - reach) / 2, (worst.fall + reach) / 2)
    cost = cost_of(span, fall, _weigh(span, worst.split))
    return [RuledOut(_NAME, cost, worst.split.group)]


def _is_within(split: Split, suspects: Sequence[Split], span: CohortSpan) -> bool:
    """Whether a cohort is a part of one that is a cause: what falls is that one."""
    inside = [(cohort, own_tokens(c)) for cohort, c in span.cells.items() if split.has(cohort)]
    least = _MOST_OF_IT * sum(tokens for _, tokens in inside)
    return any(
        sum(tokens for cohort, tokens in inside if suspect.has(cohort)) >= least
        for suspect in suspects
    )


def _weigh(span: CohortSpan, split: Split) -> float:
    """The cohort's share of the tokens."""
    inside = (own_tokens(counts) for cohort, counts in span.cells.items() if split.has(cohort))
    return sum(inside) / max(1, own_tokens(span.total))


def _make_cause(trend: Trend, span: CohortSpan) -> Cause:
    last, first = trend.pieces[-1], trend.pieces[0]
    seconds = last.t - first.t
    fall = Estimate(trend.fall, *((trend.slope + side * 1.96 * trend.error) * seconds
                                  for side in (-1, 1)))  # fmt: skip
    now = max(0.0, min(1.0, last.worse))
    cost = cost_of(span, fall, _weigh(span, trend.split))
    figure = Figure("output_from_drafts", now, min(1.0, now + trend.fall))
    return Cause(_NAME, figure, fall, cost, trend.split.group, "fell", since=first.t)


def fit_trend(series: Sequence[CohortSpan], spread: Spread, split: Split) -> Trend | None:
    """The line of a cohort's gap through what is comparable of each piece.

    None where too few pieces have both sides.
    """
    pieces = [piece for span in series if (piece := _compare(span, spread, split)) is not None]
    if len(pieces) < LEAST_PIECES:
        return None
    whole = sum(one.weight for one in pieces)
    middle = sum(one.weight * one.t for one in pieces) / whole
    mean = sum(one.weight * one.gap for one in pieces) / whole
    across = sum(one.weight * (one.t - middle) ** 2 for one in pieces)
    if across <= 0:
        return None
    slope = sum(one.weight * (one.t - middle) * (one.gap - mean) for one in pieces) / across
    times = [one.t - middle for one in pieces]
    off = [one.gap - mean - slope * t for one, t in zip(pieces, times, strict=True)]
    left = sum(one.weight * gap**2 for one, gap in zip(pieces, off, strict=True))
    bent = left - _save_by_bend([one.weight for one in pieces], times, off)
    # Where pieces lie further off the curve than their requests explain, that counts.
    error = sqrt(max(1.0, bent / max(1, len(pieces) - 3)) / across)
    return Trend(split, tuple(pieces), slope, error, middle, mean, left, bent)


def _save_by_bend(weights: Sequence[float], times: Sequence[float], off: Sequence[float]) -> float:
    """What a parabola leaves less than the line, of which pieces at `times` are so far `off`.

    >>> times, off = [-2.0, -1.0, 0.0, 1.0, 2.0], [2.0, -1.0, -2.0, -1.0, 2.0]
    >>> round(_save_by_bend([1.0] * 5, times, off), 9)
    14.0
    """
    pairs = list(zip(weights, times, strict=True))
    whole, across = sum(weights), sum(weight * t * t for weight, t in pairs)
    mean, lean = across / whole, sum(weight * t**3 for weight, t in pairs) / across
    bends = [t * t - mean - lean * t for t in times]
    size = sum(weight * bend**2 for weight, bend in zip(weights, bends, strict=True))
    if size <= 0:
        return 0.0
    met = sum(weight * bend * gap for weight, bend, gap in zip(weights, bends, off, strict=True))
    return met * met / size


def _compare(span: CohortSpan, spread: Spread, split: Split) -> Piece | None:
    better, worse = (spread.trials(side) for side in split.sum_sides(span))
    if min(better.of, worse.of) < _LEAST_TRIALS:
        return None
    variance = _variance(better) + _variance(worse)
    return Piece(
        (span.start + span.end) / 2, better.rate - worse.rate, variance, 1 / variance, worse.rate
    )


def _variance(trials: Trials) -> float:
    """Of the rate, with one success and one failure added, so that none is certain."""
    rate = (trials.met + 1) / (trials.of + 2)
    return rate * (1 - rate) / trials.of


def merge_drift(causes: Sequence[Cause]) -> list[Cause]:
    """A cohort that decays is told once: as a drift."""
    drift = next((one for one in causes if one.name == "cohort_drift"), None)
    if drift is None or drift.group is None:
        return list(causes)
    return [
        one
        for one in causes
        if one is drift or one.group is None or one.name == "prefix_cache"
        or one.group.by != drift.group.by
    ]  # fmt: skip
