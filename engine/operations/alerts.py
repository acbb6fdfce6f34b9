"""Alerts: the acceptance rate and the mismatch rate against the limits of a config.

Each alert is raised once when its figure crosses the limit and cleared once when it is well
again; both need evidence, so that a few unlucky drafts or prompts move nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from specdeck.engine.divergence.statistics import CONFIDENCE, Rate, wilson
from specdeck.engine.divergence.verdict import Word
from specdeck.engine.metrics.draft_length import is_shorter
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import Window
from specdeck.engine.operations.recurrence import find_well_s

if TYPE_CHECKING:
    from specdeck.engine.divergence.history import ExcessFigures

SPAN_S = 30.0
"""An acceptance rate is that of the drafts of the last 30 seconds."""

MIN_DRAFTS = 100
"""Fewer drafts in that time say nothing: an alert stays as it is."""

MARGIN = 0.01
"""How far above its floor an acceptance rate must be to be well again."""

UNKNOWN_S = 15.0
"""For how long the rate of an engine that drafts must be unknown before it is said: a page may lack
its counters once."""

KNOWN_S = 60.0
"""For how long counters must tell the rate without a break before their absence is said again:
those of a frontend that is one of several come and go."""

NOTHING_ASKED = Rate(0, 0)

AlertName = Literal["acceptance_floor", "mismatch_max"]
"""The key of the config's `alerts` that holds the limit."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A figure that crossed its limit, or is within it again."""

    name: AlertName
    t: float
    """Unix time, seconds."""
    engine: str
    """Its URL."""
    is_raised: bool
    """False for an alert that is over."""
    value: float
    """The rate, 0 to 1."""
    limit: float
    evidence: int
    """Drafts, or compared prompts, behind the rate."""

    @property
    def line(self) -> str:
        """For one line: an event, or a message on stderr.

        >>> Alert("mismatch_max", 0.0, "http://e:1", True, 0.04, 0.015, 200).line
        'alert: mismatch rate 4.0% is above mismatch_max 1.5% (200 prompts)'
        >>> Alert("acceptance_floor", 0.0, "http://e:1", False, 0.52, 0.45, 900).line
        'alert cleared: acceptance rate 52.0% is above acceptance_floor 45.0% again (900 drafts)'
        """
        what, of = _FIGURES[self.name]
        is_above = (self.name == "mismatch_max") is self.is_raised
        side, again = ("above" if is_above else "below"), ("" if self.is_raised else " again")
        return (
            f"{'alert' if self.is_raised else 'alert cleared'}: {what} {self.value:.1%} is {side}"
            f" {self.name} {self.limit:.1%}{again} ({self.evidence} {of})"
        )

    def as_json(self) -> dict[str, Any]:
        """What a webhook gets."""
        return {
            "event": "alert.raised" if self.is_raised else "alert.cleared",
            "kind": "alert",
            "alert": self.name,
            "t": round(self.t, 3),
            "engine": self.engine,
            "text": self.line,
            "value": round(self.value, 6),
            "limit": self.limit,
            "evidence": self.evidence,
        }


_FIGURES: dict[AlertName, tuple[str, str]] = {
    "acceptance_floor": ("acceptance rate", "drafts"),
    "mismatch_max": ("mismatch rate", "prompts"),
}


@dataclass(frozen=True, slots=True)
class LimitUnwatched:
    """A figure that is not known, although the engine does what it is about."""

    name: AlertName
    t: float
    """Unix time, seconds."""
    engine: str
    """Its URL."""
    limit: float
    missing: tuple[str, ...]
    """What the engine's counters do not tell."""

    @property
    def line(self) -> str:
        """For one line.

        >>> missing = ("accepted tokens",)
        >>> LimitUnwatched("acceptance_floor", 0.0, "http://e:1", 0.45, missing).line
        'acceptance_floor 45.0% cannot be watched: /metrics tells no accepted tokens'
        """
        return (
            f"{self.name} {self.limit:.1%} cannot be watched: /metrics tells no"
            f" {' and no '.join(self.missing)}"
        )

    def as_json(self) -> dict[str, Any]:
        """What a webhook gets."""
        return {
            "event": "alert.unwatched",
            "kind": "alert",
            "alert": self.name,
            "t": round(self.t, 3),
            "engine": self.engine,
            "text": self.line,
            "limit": self.limit,
            "missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a config's `alerts`; None is no limit."""

    acceptance_floor: float | None = None
    """The acceptance rate, 0 to 1, that must be reached."""
    mismatch_max: float | None = None
    """The share of compared outputs, 0 to 1, that may differ."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What a finished check found, as far as an alert is concerned."""

    t: float
    """Unix time of its end, seconds."""
    mismatches: int
    prompts: int
    verdict: Word | None
    """What the check as a whole said; None where it is not known."""
    excess: ExcessFigures | None = None
    """What its arms differ beyond the noise floors; None where that is not known."""
    streamed: Rate = NOTHING_ASKED
    """Prompts whose streamed answers differ."""
    floor: Rate = NOTHING_ASKED
    """Those whose answers of the reference differ from each other."""

    def weigh(self) -> tuple[float, float, float]:
        """The rate that a limit is held against, and its bounds at 95 %.

        Beyond the floors where these are known: an honest engine differs from itself. What a
        check that fails finds in streamed answers alone is taken for noise of the serving arm
        there, so it is held against what the reference differs from itself by as well.
        """
        if self.excess is None:
            found = Rate(self.mismatches, self.prompts)
            return found.rate or 0.0, *found.bounds95
        weighed = max(0.0, self.excess.rate), self.excess.ci95[0], self.excess.upper95
        if self.verdict != "fail" or self.streamed.rate is None or self.floor.rate is None:
            return weighed
        (low, high), (floor_low, floor_high) = self.streamed.bounds95, self.floor.bounds95
        rate = self.streamed.rate - self.floor.rate
        # The one that more is sure of: a higher rate may be of fewer pairs.
        return max(weighed, (rate, low - floor_high, high - floor_low), key=itemgetter(1))


class AcceptanceAlarm:
    """Raised while an engine's drafts are accepted less often than they must be.

    It is raised when the rate of the last 30 seconds is below the floor with 95 %
    confidence, from at least 100 drafts, and cleared when it is one percentage point above
    with the same confidence. Where it comes again within ten minutes, it is cleared only once it
    was well for a minute, then for two, up to sixteen, pauses in the traffic not counted. An
    engine that drafts nothing changes nothing, and neither does one while a sweep or a trial
    moves its k: other k's have other rates. For the same reason what drafts lack that a policy
    made shorter than those that it was raised by counts as rejected until it is cleared. Of an
    engine that drafts and whose counters do not tell the rate, that is said once, until they have
    told it for a minute.
    """

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._windows: deque[tuple[float, float, float, float]] = deque()
        """Time, drafts, drafted and accepted tokens of each window."""
        self.is_raised = False
        self._length = 0.0
        """Tokens of a draft, of those that it was raised by."""
        self._is_moving = False
        """Whether a policy chooses k, as far as is known."""
        self._cleared_at: float | None = None
        """Unix time; None before the first time."""
        self._well_at: float | None = None
        """Unix time of the last rate, where it was good; None while they are not."""
        self._well_for = 0.0
        """Seconds that good rates are of, with no other between: each is of the last SPAN_S."""
        self._well_s = 0.0
        """Of how many seconds they must be."""
        self._thin: tuple[float, ...] = (0.0, 0.0, 0.0)
        """Drafts, drafted and accepted tokens since the last rate, which were too few for one."""
        self._unknown_since: float | None = None
        """Unix time of the first draft since then whose fate is not known; None of none."""
        self._known_since: float | None = None
        """Unix time since which no draft's fate was unknown; None while it is."""
        self._is_unknown_told = False
        self._rounds: int | None = None
        """That the plugin had counted at the last reading."""

    def take(self, reading: Reading) -> Alert | LimitUnwatched | None:
        """The alert that a reading raises or clears, or why none can be."""
        if reading.restarted:
            self._windows.clear()
            # Who chooses k, and what was drafted, was of the engine before.
            self._is_moving, self._thin = False, (0.0, 0.0, 0.0)
        window = reading.window
        older, self._rounds = self._rounds, None if reading.state is None else reading.state.drafts
        if reading.state is not None:
            self._is_moving = reading.state.policy != "fixed"
            if reading.state.mover is not None:
                self._windows.clear()
                return None
        if window is None:
            return None
        if missing := _list_missing(window):
            is_more = None not in (older, self._rounds) and older != self._rounds
            is_drafting = is_more or window.drafts or window.drafted or window.accepted
            return self._miss(reading, missing) if is_drafting else None
        self._unknown_since = None
        if self._known_since is None or reading.t < self._known_since:
            self._known_since = reading.t
        if reading.t - self._known_since >= KNOWN_S:
            self._is_unknown_told = False
        if not window.drafts or not window.drafted or window.accepted is None:
            return None
        self._windows.append((reading.t, window.drafts, window.drafted, window.accepted))
        # A clock that was set back since leaves windows that lie ahead.
        while len(self._windows) > 1 and not 0 <= reading.t - self._windows[0][0] < SPAN_S:
            self._windows.popleft()
        drafts, drafted, accepted = (sum(one[i] for one in self._windows) for i in (1, 2, 3))
        if drafts < MIN_DRAFTS:
            self._thin = tuple(map(add, self._thin, self._windows[-1][1:]))
            return None
        found = _measure_rate(drafts, drafted, accepted)
        well = min(self._floor + MARGIN, (1 + self._floor) / 2)
        length = drafted / drafts
        if self.is_raised:
            if _measure_rate(*self._thin).high < self._floor:
                self._forget_well()
            is_well = found.low * self._share_drafted(length) >= well
            crossed = self._stays_well(reading.t, is_well)
        else:
            crossed = found.high < self._floor
        self._thin = (0.0, 0.0, 0.0)
        if not crossed:
            return None
        self._turn(reading.t)
        self._length = length
        return Alert(
            "acceptance_floor",
            reading.t,
            reading.url,
            self.is_raised,
            found.rate,
            self._floor,
            found.of,
        )

    def _share_drafted(self, length: float) -> float:
        """Of the tokens of the drafts that it was raised by, where a policy drafts less now.

        Of less a larger share is accepted, and the policy may have seen what the alert tells of: at
        the least, none of what is not drafted would be.
        """
        is_less = self._is_moving and is_shorter(length, self._length)
        return length / self._length if is_less else 1.0

    def _stays_well(self, t: float, is_well: bool) -> bool:
        """Whether the rate is well, and was for as long as it must be."""
        if not is_well:
            self._forget_well()
            return False
        if self._well_at is not None:  # of a pause in the traffic a rate says nothing
            self._well_for += min(max(0.0, t - self._well_at), SPAN_S)
        self._well_at = t
        return self._well_for >= self._well_s

    def _forget_well(self) -> None:
        self._well_at, self._well_for = None, 0.0

    def _turn(self, t: float) -> None:
        """Raises the alert, or clears it."""
        self.is_raised = not self.is_raised
        self._windows.clear()
        self._forget_well()
        if not self.is_raised:
            self._cleared_at = t
        else:
            self._well_s = find_well_s(self._well_s, self._cleared_at, t)

    def _miss(self, reading: Reading, missing: tuple[str, ...]) -> LimitUnwatched | None:
        """What is to be said of drafts whose fate is not known."""
        self._known_since = None
        if self._unknown_since is None or reading.t < self._unknown_since:
            self._unknown_since = reading.t
        if self._is_unknown_told or reading.t - self._unknown_since < UNKNOWN_S:
            return None
        self._is_unknown_told = True
        return LimitUnwatched("acceptance_floor", reading.t, reading.url, self._floor, missing)


class _MeasuredRate(NamedTuple):
    """An acceptance rate, of so many drafts, and its bounds with CONFIDENCE on either side."""

    rate: float
    of: int
    low: float
    high: float


def _measure_rate(drafts: float, drafted: float, accepted: float) -> _MeasuredRate:
    """That of so many drafts, drafted and accepted tokens; it may be anything for none."""
    if not drafts or not drafted:
        return _MeasuredRate(0.0, 0, 0.0, 1.0)
    # Tokens of one draft stand and fall together: a draft is one piece of evidence.
    # Nothing but an engine that makes its counters up accepts more than was drafted.
    rate, of = min(1.0, accepted / drafted), int(drafts)
    return _MeasuredRate(rate, of, *wilson(round(rate * of), of, 2 * CONFIDENCE - 1))


def _list_missing(window: Window) -> tuple[str, ...]:
    """What a window lacks for an acceptance rate."""
    figures = {
        "drafts": window.drafts,
        "draft tokens": window.drafted,
        "accepted tokens": window.accepted,
    }
    return tuple(name for name, value in figures.items() if value is None)


class MismatchAlarm:
    """Raised while checks of an engine find more mismatches than may be.

    It is raised by a check whose rate beyond the noise floors is above the limit with 95 %
    confidence, and cleared
    by one that passes and whose rate is within it with the same confidence. A rate is low as
    well where nothing was drafted, and beside a single answer that proves a defect: a check
    that fails or is inconclusive is no evidence of health.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.is_raised = False

    def take(self, outcome: CheckOutcome, engine: str) -> Alert | None:
        """The alert that the outcome of a check of `engine`, a URL, raises or clears."""
        if not outcome.prompts:
            return None
        rate, low, high = outcome.weigh()
        is_within = high <= self._limit or not (outcome.mismatches or self._limit)
        is_well = is_within and outcome.verdict == "pass"
        crossed = is_well if self.is_raised else low > self._limit
        if not crossed:
            return None
        self.is_raised = not self.is_raised
        return Alert(
            "mismatch_max", outcome.t, engine, self.is_raised, rate, self._limit,
            outcome.prompts,
        )  # fmt: skip
