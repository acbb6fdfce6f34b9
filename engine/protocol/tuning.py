"""What `GET /v1/specdeck/tuning` answers: the policy, the breaker, the trial, and why.

The standard library only, as in `protocol.messages`. `None` is not known, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from specdeck.engine.protocol.codec import Count, DraftLength, OneOf, UnixTime, read_record
from specdeck.engine.protocol.messages import Knobs, KnownBreaker, Origin, Policy, with_origin

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = float | int | str | bool | None
TrialVerdict = Annotated[
    Literal["better", "worse", "inconclusive"], OneOf(("better", "worse", "inconclusive"))
]
Phase = Literal["baseline", "changed", "kept", "reverted", "abandoned"]
"""baseline: a stint without the change; changed: one with it. The others are ends: reverted took
the change back, abandoned never made it."""
Grade = Literal["soft", "hard"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that can be set of a policy, the breaker or trials."""

    name: str
    """With its block, such as `goodput.margin`: what `Change.parameters` takes."""
    value: Value
    """In force at this moment."""
    default: Value
    """As the engine was started with: by its config, or by specdeck."""
    kind: Literal["whole", "number", "flag", "word"]
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    """What a `word` can be."""
    optional: bool = False
    """Whether it can be `none`."""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class BreakerTuning:
    """The breaker, and what its last verdict rests on."""

    state: KnownBreaker
    automatic: bool
    """Whether it opens by itself; by hand and by a check it always can be opened."""
    reason: str | None = None
    """Why it opened last, in words with figures; None before it ever did."""
    cause: str | None = None
    """`loss`, `acceptance`, `policy`, `divergence`, `hand`."""
    evidence: str | None = None
    """What the last judged window showed, in words."""
    window_s: float | None = None
    """Seconds of work that this window holds."""
    acceptance: float | None = None
    """Accepted over drafted tokens in it."""
    gain: float | None = None
    """Speed against measured target-only in it, as a share; below 0 is a loss."""
    since_s: float = 0.0
    """Seconds in this state."""
    next_probe_s: float | None = None
    """Seconds until it is half-open; None when it is not open, or held."""
    cooldown_s: float | None = None
    """The present or next cool-down."""
    held: bool = False
    """Open until it is reset."""
    by: str | None = None
    """Who opened or reset it by hand last."""
    opened: Count = 0
    """How often it opened since the engine's start."""
    alarm: str | None = None
    """Acceptance near 1 for so long that streams may repeat themselves; None otherwise."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A relative change, with its confidence interval."""

    value: float
    """0.07 is seven percent more."""
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 when the interval leaves zero out, 0 otherwise.

        >>> Interval(0.07, 0.02, 0.12).sign, Interval(0.07, -0.02, 0.16).sign
        (1, 0)
        """
        return (self.low > 0) - (self.high < 0)

    def __str__(self) -> str:
        """The change in percent.

        >>> str(Interval(0.07, 0.021, 0.119))
        '+7.0 % (+2.1 to +11.9)'
        """
        return f"{self.value * 100:+.1f} % ({self.low * 100:+.1f} to {self.high * 100:+.1f})"

    def of_time(self) -> str:
        """The change of a time: longer or shorter, since less is better.

        The interval counts in the word's sense, from the least of it to the most, and an end that
        is of the other sense has its own word.

        >>> Interval(0.265, 0.2, 0.331).of_time(), Interval(-0.06, -0.1, -0.02).of_time()
        ('26.5 % longer (20.0 to 33.1)', '6.0 % shorter (2.0 to 10.0)')
        >>> Interval(-0.27, -0.505, 0.077).of_time()
        '27.0 % shorter (7.7 % longer to 50.5 % shorter)'
        """
        than, other = ("longer", "shorter") if self.value > 0 else ("shorter", "longer")
        least, most = (self.low, self.high) if self.value > 0 else (0.0 - self.high, 0.0 - self.low)
        said = f"{abs(self.value) * 100:.1f} % {than}"
        if least < 0 <= most:
            return f"{said} ({-least * 100:.1f} % {other} to {most * 100:.1f} % {than})"
        return f"{said} ({least * 100:.1f} to {most * 100:.1f})"


@dataclass(frozen=True, slots=True)
class TrialComparison:
    """What a change on trial did, against the same work without it."""

    verdict: TrialVerdict
    tokens_per_second: Interval
    ms_per_token: Interval
    """A request's wait for one token; less is better."""
    before_tokens_per_second: float | None = None
    after_tokens_per_second: float | None = None
    before_ms_per_token: float | None = None
    after_ms_per_token: float | None = None

    def __str__(self) -> str:
        """The comparison as a line: what is gained has a sign, what is paid has words.

        >>> paid = Interval(0.36, 0.29, 0.43)
        >>> print(TrialComparison("worse", Interval(-0.265, -0.3, -0.23), paid))
        worse: tokens/s -26.5 % (-30.0 to -23.0), time per token 36.0 % longer (29.0 to 43.0)
        """
        wait = self.ms_per_token.of_time()
        return f"{self.verdict}: tokens/s {self.tokens_per_second}, time per token {wait}"


@dataclass(frozen=True, slots=True)
class TrialTuning:
    """The trial under way, or the last one that ended."""

    state: Annotated[Phase, OneOf(get_args(Phase))]
    who: str
    before: Knobs
    """The knobs that come back when it is reverted; only those that the change turns."""
    after: Knobs
    """What is tried."""
    seconds: float
    """Seconds of work to be measured with the change."""
    t: UnixTime
    """Unix time at which it began, seconds."""
    seconds_left: float | None = None
    """Seconds of work that are still to be measured at the most; None when it is over."""
    lease_left_s: float | None = None
    """Seconds until it is taken back unless it is renewed; None when it is over."""
    comparison: TrialComparison | None = None
    """None while it runs, and where too little was measured."""
    verdict: TrialVerdict | None = None
    reason: str | None = None
    """Why it ended, in words; None while it runs."""
    number: Count = 0
    """Counts trials since the engine's start, from 1."""
    turns: Count = 0
    """How often the other setting came into force; an older plugin says 0."""
    pairs: Count = 0
    """Pairs of a stint with the change and one without it that are measured."""
    pairs_planned: Count = 0
    """Pairs at the most: a clear answer ends the trial."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("baseline", "changed")

    def describe_work(self) -> str:
        """What it measures, while it is under way.

        >>> one = TrialTuning("changed", "ann", {"k": 5}, {"k": 3}, 40.0, 0.0, 41.2)
        >>> one.describe_work()
        'measuring the change, 41 s of work left'
        >>> replace(one, pairs=6, pairs_planned=16).describe_work()
        'by turns, 6 of 16 pairs, at most 41 s of work left'
        """
        left = None if self.seconds_left is None else f"{self.seconds_left:.0f} s of work left"
        if self.pairs_planned:
            doing = f"by turns, {self.pairs} of {self.pairs_planned} pairs"
            return doing if left is None else f"{doing}, at most {left}"
        doing = "measuring the change" if self.state == "changed" else "measuring the baseline"
        return doing if left is None else f"{doing}, {left}"


@dataclass(frozen=True, slots=True)
class SavedTime:
    """Engine time that speculation saved over a stretch; below 0 it cost time."""

    saved_s: float
    speculating_s: float
    """Seconds of speculating steps that could be compared."""
    target_only_s: float = 0.0
    """Seconds at soft k = 0 that are compared too: 0 where soft k = 0 is the measure itself."""

    @property
    def gain(self) -> float | None:
        """Speed against what it is compared with, as a share; None when nothing could be.

        >>> SavedTime(5.0, 20.0).gain, SavedTime(-2.0, 20.0, 20.0).gain, SavedTime(0.0, 0.0).gain
        (0.25, -0.05, None)
        """
        compared = self.speculating_s + self.target_only_s
        return self.saved_s / compared if compared else None


@dataclass(frozen=True, slots=True)
class LedgerTuning:
    """Saved or lost by speculation; a stretch in which nothing could be compared is None."""

    hour: SavedTime | None = None
    day: SavedTime | None = None
    against: Annotated[Grade, OneOf(get_args(Grade))] = "soft"
    """soft: k = 0 in the same engine; hard: an engine without speculation."""


@dataclass(frozen=True, slots=True)
class HardBaseline:
    """An engine without speculation, as far as `sweep --hard` has measured one."""

    soft_cost: float | None = None
    """What a step at k = 0 takes longer than one of such an engine, as a share."""
    tokens_per_second: float | None = None
    """Expected of it at the present batch size; None before target-only was timed there."""
    gain: float | None = None
    """Speed against it in the breaker's last judged window, as a share; below 0 is a loss."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Traffic under `exact_models`: answered target-only on this engine."""

    models: tuple[str, ...] = ()
    requests: Count = 0
    """Since the engine's start, the unfinished ones included."""
    tokens: Count = 0
    """Generated for them."""
    running: Count = 0
    """Unfinished ones."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What was measured at one bucket of batch sizes and one k, lately."""

    first: Count
    last: Count
    """The bucket: from `first` to `last` requests in a step."""
    requests: float
    """Requests in a step, on average."""
    k: DraftLength
    steps: Count
    """Steps that the figures rest on."""
    seconds_per_step: float
    tokens_per_second: float
    """Committed tokens of all requests in a second of work."""
    ms_per_token: float
    """A request's wait for one token."""
    tokens_per_second_low: float | None = None
    """95 % interval; None of too few steps."""
    tokens_per_second_high: float | None = None
    age_s: float | None = None
    """Seconds since it was last measured."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a k is expected to give at the present batch size, from the position counters."""

    k: DraftLength
    tokens_per_step: float
    """Committed tokens of a request in a step."""
    tokens_per_second: float | None
    """Of all requests; None before any step was timed."""
    timed: bool
    """Whether a step at this k and batch size was timed; otherwise its time is a guess."""
    extrapolated: bool
    """Whether positions that were never drafted are part of it."""


@dataclass(frozen=True, slots=True)
class KChange:
    """A move of k, by hand, by the policy, by the breaker or by a trial."""

    t: UnixTime
    """Unix time, seconds."""
    before: DraftLength
    """k at the batch size of that moment."""
    after: DraftLength
    reason: str
    """In words, such as `k 5 → 3: positions 4 and 5 accepted 9 % …`."""
    who: str = "policy"
    """`policy`, `breaker`, `trial`, or whoever turned a knob."""
    origin: Origin | None = None
    """Where the move came from; None of a plugin that does not tell."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The reply to `GET /v1/specdeck/tuning`."""

    instance: str
    """As in the state: another one is another life of the engine."""
    version: Count
    t: UnixTime
    """Unix time of this answer, seconds."""
    policy: Policy
    reason: str | None
    """Why k is what it is, in words; None as long as nothing moved."""
    k: tuple[tuple[Count, Count, DraftLength], ...]
    """k by number of requests: first, last, k."""
    parameters: tuple[Parameter, ...]
    breaker: BreakerTuning
    trial: TrialTuning | None = None
    ledger: LedgerTuning = LedgerTuning()
    baseline: HardBaseline = HardBaseline()
    exact: Exact = Exact()
    curve: tuple[CurvePoint, ...] = ()
    outlook: tuple[Outlook, ...] = ()
    """For the present batch size, from k = 0; empty before any step."""
    acceptance: tuple[float, ...] | None = None
    """Expected share of drafts accepted up to each position, lately; None before any draft."""
    changes: tuple[KChange, ...] = ()
    """The last 50, oldest first."""
    resting: Count = 0
    """Requests that draft nothing for a while, as they accepted nothing."""
    exact_reason: str | None = None
    """Why requests under exact names are not kept target-only; None when they are."""

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists, for the wire."""
        # asdict copies each value of each record, which takes the long lists ten times as long.
        short = asdict(replace(self, parameters=(), curve=(), changes=()))
        return short | {
            "parameters": _plain(self.parameters),
            "curve": _plain(self.curve),
            "changes": _plain(self.changes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The reply a plugin sent; raises WrongType on nonsense."""
        found = {"reason": None, **{key: each for key, each in data.items() if each is not None}}
        changes = found.get("changes")
        if isinstance(changes, list | tuple):
            found["changes"] = [with_origin(change) for change in changes]
        return read_record(cls, found)


def _plain(records: Sequence[DataclassInstance]) -> tuple[dict[str, Any], ...]:
    """Each of `records`, of one class and without records of their own, as a dict."""
    names = [field.name for field in fields(records[0])] if records else []
    return tuple({name: getattr(record, name) for name in names} for record in records)
