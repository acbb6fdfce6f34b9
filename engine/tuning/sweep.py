"""A sweep over k on live traffic: interleaved visits, a curve with intervals, the optimum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from specdeck.engine.tuning.intervals import Change, Mean, Work, gain, rate, ratio


@dataclass(frozen=True, slots=True)
class Visit:
    """One stay at one k."""

    k: int
    tokens_per_second: float
    seconds_per_token: float
    """Of one request."""
    round: int
    batch: float | None = None
    """Mean number of running requests."""
    seconds: float = 1.0
    """Of work measured: what a visit counts for among others."""

    @property
    def tokens(self) -> float:
        """What was generated."""
        return self.tokens_per_second * self.seconds

    @property
    def waited(self) -> float:
        """Seconds times the requests that waited for the tokens."""
        return self.seconds_per_token * self.tokens


@dataclass(frozen=True, slots=True)
class Point:
    """One k of the curve."""

    k: int
    tokens_per_second: Mean
    seconds_per_token: Mean


@dataclass(frozen=True, slots=True)
class Optimum:
    """The k of most tokens per second, and how sure that is."""

    k: int
    over_next: Change | None
    """Its gain over the second best; None when there is no other."""
    next_k: int | None
    over_target_only: Change | None
    """Its gain over k = 0; None when k = 0 is the optimum or was not visited."""
    tied: tuple[int, ...]
    """Other k's that cannot be told from it."""

    @property
    def clear(self) -> bool:
        """Whether every other k is worse beyond the noise."""
        return not self.tied


def order(ks: Sequence[int], rounds: int, random: Random) -> Iterator[tuple[int, int]]:
    """(round, k): every k once a round, in a new order each time.

    Load that drifts hits every k alike, and none always follows the same other one.

    >>> visits = list(order([0, 1, 2], 2, Random(1)))
    >>> [round for round, _ in visits], sorted(k for _, k in visits)
    ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
    """
    for number in range(rounds):
        shuffled = list(ks)
        random.shuffle(shuffled)
        for k in shuffled:
            yield number, k


def curve(visits: Iterable[Visit], *, confidence: float = 0.95) -> tuple[Point, ...]:
    """The points of every k that was visited at least twice, by k.

    A rate is all tokens over all seconds: a short visit weighs less than a long one.
    """
    points = []
    for k, by_round in sorted(_by_k(visits).items()):
        stays = by_round.values()
        tokens, seconds = [v.tokens for v in stays], [v.seconds for v in stays]
        speed = ratio(tokens, seconds, confidence=confidence)
        wait = ratio([v.waited for v in stays], tokens, confidence=confidence)
        if speed and wait:
            points.append(Point(k, speed, wait))
    return tuple(points)


def optimum(visits: Iterable[Visit], *, confidence: float = 0.95) -> Optimum | None:
    """The best k by the rates of `curve`; None until two rounds are complete for some k.

    Gains are those between these rates; their noise is taken round by round, so that what
    the load did meanwhile cancels out.

    >>> stays = [Visit(k, rate + wave, 1 / rate, round)
    ...          for round, wave in enumerate((0, 40, -30, 10))
    ...          for k, rate in ((0, 100.0), (2, 150.0 + round), (3, 150.5))]
    >>> found = optimum(stays)
    >>> found.k, found.tied, found.over_target_only.sign
    (2, (3,), 1)
    """
    works = {k: _work(stays) for k, stays in _by_k(visits).items() if len(stays) >= 2}
    if not works:
        return None
    rates = {k: rate(work) for k, work in works.items()}
    ranked = sorted(rates, key=lambda k: (-rates[k], k))
    best = ranked[0]
    against = {k: gain(works[k], works[best], confidence=confidence) for k in ranked[1:]}
    tied = tuple(sorted(k for k, gain in against.items() if gain is None or gain.sign <= 0))
    following = ranked[1] if len(ranked) > 1 else None
    return Optimum(
        best,
        against[following] if following is not None else None,
        following,
        against.get(0),
        tied,
    )


def _work(by_round: Mapping[int, Visit]) -> dict[int, Work]:
    return {number: (visit.tokens, visit.seconds) for number, visit in by_round.items()}


def _by_k(visits: Iterable[Visit]) -> dict[int, dict[int, Visit]]:
    found: dict[int, dict[int, Visit]] = {}
    for visit in visits:
        found.setdefault(visit.k, {})[visit.round] = visit
    return found
