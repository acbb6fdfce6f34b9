"""What long charts show of many readings: the least, the most and the mean, so that spikes stay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specdeck.engine.blackbox.row import TOO_FEW_NUMBERS, Damaged, Places

MINUTE_S = 60.0


class Figures(NamedTuple):
    """Of one row, what charts need of its window; None is not known."""

    t: float
    seconds: float | None = None
    """Length of its window; None without one."""
    generated: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    drafts: float | None = None
    first: float | None = None
    """Accepted tokens that were the first of their draft."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The values that a figure had over some time."""

    low: float
    high: float
    mean: float
    """By time for a rate, by drafted tokens for acceptance."""


@dataclass(frozen=True, slots=True)
class OverviewColumn:
    """One column of a chart; None is a gap."""

    start: float
    """Unix time, seconds."""
    end: float
    tokens: Extent | None
    """Generated tokens per second."""
    acceptance: Extent | None
    """Accepted over drafted tokens."""
    readings: int = 0
    """Made in that time, those without a figure among them."""
    first_accepted: float | None = None
    """Of the first tokens of drafts, the share that was accepted: it does not go with k. None in
    columns of minutes."""
    draft_length: float | None = None
    """Tokens of a draft; None where `first_accepted` is."""


@dataclass(slots=True)
class Summary:
    """Sums and extremes of the windows of some readings."""

    count: int = 0
    """Readings."""
    seconds: float = 0.0
    """Of windows whose generated tokens are known."""
    generated: float = 0.0
    low_tokens: float = math.inf
    high_tokens: float = -math.inf
    drafted: float = 0.0
    accepted: float = 0.0
    low_acceptance: float = math.inf
    high_acceptance: float = -math.inf
    drafts: float = 0.0
    """Of windows that tell what was accepted of first tokens; these three are in no file."""
    first: float = 0.0
    drafted_of_drafts: float = 0.0

    def add(self, figures: Figures) -> None:
        """One more reading."""
        self.count += 1
        if not figures.seconds:
            return
        if figures.generated is not None:
            rate = figures.generated / figures.seconds
            self.seconds += figures.seconds
            self.generated += figures.generated
            self.low_tokens = min(self.low_tokens, rate)
            self.high_tokens = max(self.high_tokens, rate)
        if figures.accepted is not None and figures.drafted:
            share = figures.accepted / figures.drafted
            self.drafted += figures.drafted
            self.accepted += figures.accepted
            self.low_acceptance = min(self.low_acceptance, share)
            self.high_acceptance = max(self.high_acceptance, share)
        if figures.drafts and figures.drafted and figures.first is not None:
            self.drafts += figures.drafts
            self.first += figures.first
            self.drafted_of_drafts += figures.drafted

    def merge(self, other: Summary) -> None:
        """Another stretch as well."""
        self.count += other.count
        self.seconds += other.seconds
        self.generated += other.generated
        self.low_tokens = min(self.low_tokens, other.low_tokens)
        self.high_tokens = max(self.high_tokens, other.high_tokens)
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.low_acceptance = min(self.low_acceptance, other.low_acceptance)
        self.high_acceptance = max(self.high_acceptance, other.high_acceptance)
        self.drafts += other.drafts
        self.first += other.first
        self.drafted_of_drafts += other.drafted_of_drafts

    def column(self, start: float, end: float) -> OverviewColumn:
        """The column of a chart that it makes."""
        tokens = acceptance = None
        if self.seconds > 0:
            tokens = _extent(self.low_tokens, self.high_tokens, self.generated / self.seconds)
        if self.drafted > 0:
            acceptance = _extent(
                self.low_acceptance, self.high_acceptance, self.accepted / self.drafted
            )
        first = length = None
        if self.drafts > 0:
            first, length = self.first / self.drafts, self.drafted_of_drafts / self.drafts
        return OverviewColumn(start, end, tokens, acceptance, self.count, first, length)

    def as_values(self) -> tuple[float | None, ...]:
        """As the file has it; an extreme of nothing is None."""
        return (
            self.count, self.seconds, self.generated,
            _finite(self.low_tokens), _finite(self.high_tokens),
            self.drafted, self.accepted,
            _finite(self.low_acceptance), _finite(self.high_acceptance),
        )  # fmt: skip

    @classmethod
    def of_values(cls, values: Sequence[object]) -> Summary:
        """What `as_values` gave; raises TypeError and ValueError for anything else."""
        count, seconds, generated, low, high, drafted, accepted, lower, higher = values
        return cls(
            int(_number(count, 0.0)), _number(seconds, 0.0), _number(generated, 0.0),
            _number(low, math.inf), _number(high, -math.inf),
            _number(drafted, 0.0), _number(accepted, 0.0),
            _number(lower, math.inf), _number(higher, -math.inf),
        )  # fmt: skip


def by_minute(rows: Iterable[Figures]) -> dict[int, Summary]:
    """The summary of each minute, counted from 1970."""
    minutes: dict[int, Summary] = {}
    for figures in rows:
        minute = int(figures.t // MINUTE_S)
        if minute not in minutes:
            minutes[minute] = Summary()
        minutes[minute].add(figures)
    return minutes


def difference(older: float | None, newer: float | None) -> float | None:
    """`newer` less `older`, as a window has it."""
    if older is None or newer is None:
        return None
    found = newer - older
    return found if math.isfinite(found) else None


def figures_of(
    t: float, places: Places, numbers: Sequence[float], older: Places, before: Sequence[float]
) -> Figures:
    """The figures of a row with `numbers`, after one with `before`. Raises Damaged."""
    if not places.joined or not older.up:
        return Figures(t)

    def rise(now: int | None, then: int | None) -> float | None:
        if now is None or then is None:
            return None
        if now >= len(numbers) or then >= len(before):
            raise Damaged(TOO_FEW_NUMBERS)
        return difference(before[then], numbers[now])

    return Figures(
        t,
        rise(places.at, older.at),
        rise(places.generated, older.generated),
        rise(places.drafted, older.drafted),
        rise(places.accepted, older.accepted),
        rise(places.drafts, older.drafts),
        rise(places.first, older.first),
    )


def _extent(low: float, high: float, mean: float) -> Extent | None:
    known = all(map(math.isfinite, (low, high, mean)))
    return Extent(low, high, mean) if known else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: object, otherwise: float) -> float:
    if value is None:
        return otherwise
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    return value
