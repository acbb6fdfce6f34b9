"""Rates of requests that resemble themselves, their exact limits, and differences of such rates.

Tokens of one request are no independent trials: a request that is easy to draft stays so. So a
cohort's drafted tokens count as fewer *trials*, as many as its requests' spread allows. Where the
spread is not known two requests are one trial, which hardly any spread falls below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from specdeck.engine.protocol.cohorts import CohortCounts
from specdeck.engine.special_functions import special_functions

CONFIDENCE = 0.95
"""Of every interval that is shown."""
FALSE_ALARMS = 0.001
"""The most that each family of tests raises where nothing is wrong, all of its comparisons
together."""
_MOST_TRIALS = 1e9
"""Beyond, an interval is a point."""
LEAST_REQUESTS = 8
"""On either side of a comparison."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and what it lies between with 95 % confidence."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, Any]:
        """Value and interval, for a script."""
        return {"value": round(self.value, 5), "ci95": [round(self.low, 5), round(self.high, 5)]}

    def over(self, change: float) -> Self:
        """The same, so many times as large; `change` is not below 0."""
        return type(self)(self.value * change, self.low * change, self.high * change)


@dataclass(frozen=True, slots=True)
class Trials:
    """So many of so many, which need not be whole numbers."""

    met: float
    of: float

    @property
    def rate(self) -> float:
        """The share; 0 of nothing."""
        return self.met / self.of if self.of else 0.0

    def limits(self, confidence: float) -> tuple[float, float]:
        """Clopper and Pearson's; everything is possible of nothing.

        >>> [round(end, 4) for end in Trials(0, 200).limits(0.9)]
        [0.0, 0.0149]
        """
        if self.of <= 0:
            return 0.0, 1.0
        betaincinv = special_functions().betaincinv
        tail, missed = (1 - confidence) / 2, self.of - self.met
        low = float(betaincinv(self.met, missed + 1, tail)) if self.met > 0 else 0.0
        high = float(betaincinv(self.met + 1, missed, 1 - tail)) if missed > 0 else 1.0
        return low, high


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides of a comparison in one stratum."""

    better: Trials
    worse: Trials


def difference(pairs: Sequence[Pair], confidence: float) -> Estimate:
    """How much `better` is above `worse`, strata weighted by the trials of `worse`.

    The interval puts the exact limits of each rate together (MOVER: Zou and Donner, 2008; of one
    stratum it is Newcombe's, 1998).

    >>> found = difference([Pair(Trials(60, 100), Trials(30, 100))], 0.95)
    >>> round(found.value, 2), 0.15 < found.low < 0.18, 0.42 < found.high < 0.44
    (0.3, True, True)
    """
    whole = sum(pair.worse.of for pair in pairs)
    value = below = above = 0.0
    for pair in pairs:
        weight = pair.worse.of / whole
        better, worse = pair.better.limits(confidence), pair.worse.limits(confidence)
        value += weight * (pair.better.rate - pair.worse.rate)
        below += weight**2 * (
            (pair.better.rate - better[0]) ** 2 + (worse[1] - pair.worse.rate) ** 2
        )
        above += weight**2 * (
            (better[1] - pair.better.rate) ** 2 + (pair.worse.rate - worse[0]) ** 2
        )
    return Estimate(value, value - math.sqrt(below), value + math.sqrt(above))


@dataclass(frozen=True, slots=True)
class Spread:
    """How many tokens count as one trial; None where only requests count."""

    tokens: float | None = None
    requests: int = 0
    """That it was learnt from."""

    def trials(self, counts: CohortCounts) -> Trials:
        """The share of the output that drafts brought; at least half as many trials as requests.

        A request's first token comes with its prompt and has no draft. Whatever keeps drafts short
        (a grammar that takes tokens out, a prompt that nothing is found in) shows in this share; in
        accepted over drafted tokens it does not.

        >>> counts = CohortCounts(2, 9, 102, 0, 50, (50, 50), (40, 20))
        >>> Spread().trials(counts), Spread(10.0).trials(counts)
        (Trials(met=0.6, of=1.0), Trials(met=6.0, of=10.0))
        """
        tokens = own_tokens(counts)
        if tokens <= 0:
            return Trials(0.0, 0.0)
        # Half: requests of very different lengths are worth fewer of one length.
        least = min(counts.requests / 2, tokens)
        of = min(_MOST_TRIALS, least if self.tokens is None else max(least, tokens / self.tokens))
        return Trials(min(1.0, counts.accepted / tokens) * of, float(of))

    def first_drafted(self, counts: CohortCounts) -> Trials:
        """Acceptance of the first drafted tokens, as trials.

        Where none was accepted each request is one: were a tenth of them accepted, on average of
        requests, then each had none with a chance of nine tenths at most.
        """
        drafted, accepted = counts.drafted_per_position[:1], counts.accepted_per_position[:1]
        if not drafted or not drafted[0]:
            return Trials(0.0, 0.0)
        of = min(float(drafted[0]), self.trials(counts).of)
        if not accepted[0]:
            of = max(of, float(min(drafted[0], counts.requests)))
        return Trials(accepted[0] / drafted[0] * of, of)


def own_tokens(counts: CohortCounts) -> int:
    """Output tokens that a draft could have brought: all but each request's first."""
    return counts.output_tokens - counts.requests
