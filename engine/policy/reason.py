"""Why k is what it is, in figures; `str()` of one is the line that an operator reads.

A policy may move k at every step and the engine core's thread waits for it, so a reason is
kept as the figures that it rests on. It becomes words when somebody looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdeck.engine.protocol.messages import Origin
from specdeck.engine.protocol.tuning import KChange


@dataclass(frozen=True, slots=True)
class MoreTokens:
    """Another k is expected to commit more tokens per second."""

    before: int
    after: int
    sizes: str
    """The batch sizes for which k moved, in words: it may be another one at others."""
    positions: tuple[int, int]
    """First and last position, from 1, that the two k's do not share."""
    accepted: float
    """Of the drafts, the share whose token at these positions was accepted, on average."""
    drafts: float
    """Drafts that this rests on: the weight of a window without a sharp edge."""
    cost_s: float
    """What a step at the larger k costs more, seconds; negative when it is less."""
    gain: float
    """Expected gain in committed tokens per second, as a share."""
    extrapolated: bool = False
    """Whether a step at the new k was never timed at this batch size."""

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(MoreTokens(5, 3, "7-8", (4, 5), 0.09, 1964.2, 0.0018, 0.07))
        k 5 → 3: positions 4 and 5 accepted 9 % in the last 2,000 drafts, a step costs 1.8 ms \
more; expected +7 % at batch size 7-8
        """
        first, last = self.positions
        where = (
            f"position {first}"
            if first == last
            else f"positions {first}{' and ' if last == first + 1 else ' to '}{last}"
        )
        more = "more" if self.cost_s >= 0 else "less"
        guess = " (step time not measured yet)" if self.extrapolated else ""
        return (
            f"k {self.before} → {self.after}: {where} accepted {self.accepted * 100:.0f} % in the "
            f"last {_round_drafts(self.drafts):,} drafts, a step costs "
            f"{_milliseconds(abs(self.cost_s))} ms {more}{guess}; expected {self.gain * 100:+.0f} %"
            f" at batch size {self.sizes}"
        )


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds on one side of the threshold of acceptance."""

    before: int
    after: int
    rounds: int
    """In a row."""
    threshold: float
    accepted: float
    """The share of the last round's drafted tokens."""

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(Rounds(4, 3, 3, 0.3, 0.125))
        k 4 → 3: 3 rounds in a row below the threshold of 30%, the last accepted 12%
        """
        side = "below" if self.after < self.before else "not below"
        what = f"{self.rounds} rounds in a row" if self.rounds > 1 else "a round"
        return (
            f"k {self.before} → {self.after}: {what} {side} the threshold of "
            f"{self.threshold:.0%}, the last accepted {self.accepted:.0%}"
        )


@dataclass(frozen=True, slots=True)
class Slower:
    """Speculation was slower than measured target-only."""

    gain: float
    """Speed against target-only, as a share: below 0."""
    drafted: int
    accepted: int

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(Slower(-0.18, 250, 10))
        18 % slower than target-only, 4 % accepted of 250 drafted tokens
        """
        drafts = describe_drafts(self.drafted, self.accepted)
        return f"{-self.gain * 100:.0f} % slower than target-only, {drafts}"


@dataclass(frozen=True, slots=True)
class LowAcceptance:
    """Too little was accepted, and it was not measured to pay all the same."""

    drafts: int
    accepted: int
    """Of all tokens of these drafts."""
    floor: float
    """Accepted tokens of a draft."""
    gain: float | None = None
    """Speed against target-only, as a share; None where it could not be measured."""
    error: float = 0.0
    """Standard error of `gain`."""

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(LowAcceptance(250, 10, 0.1, -0.004, 0.03))
        0.04 tokens accepted of a draft, below the floor of 0.1: -0 ± 3 % against target-only
        """
        share = self.accepted / max(1, self.drafts)
        low = f"{share:.2f} tokens accepted of a draft, below the floor of {self.floor:g}"
        if self.gain is None:
            return f"{low}, and target-only could not be measured"
        return f"{low}: {self.gain * 100:+.0f} ± {self.error * 100:.0f} % against target-only"


@dataclass(frozen=True, slots=True)
class NothingPays:
    """The policy's own choice was k = 0."""

    drafted: int
    accepted: int

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(NothingPays(0, 0))
        the policy found no k that pays: nothing drafted
        """
        return f"the policy found no k that pays: {describe_drafts(self.drafted, self.accepted)}"


@dataclass(frozen=True, slots=True)
class PoorProbe:
    """A half-open breaker tried speculation, and found no gain."""

    accepted: float
    """The share of the drafted tokens."""
    gain: float | None
    """Speed against target-only, as a share; None is unknown."""

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(PoorProbe(0.2, None))
        a probe accepted 20 %: unknown against target-only
        """
        measured = "unknown" if self.gain is None else f"{self.gain * 100:+.0f} %"
        return f"a probe accepted {self.accepted * 100:.0f} %: {measured} against target-only"


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A half-open breaker found nothing that it could compare."""

    seconds: float
    """How long it tried."""
    speculated: bool
    """Whether there were steps that verified drafts."""

    def __str__(self) -> str:
        """The reason as a line.

        >>> print(Unjudged(16.2, True))
        16 s of probes could not be judged: no target-only step was timed at this batch size
        """
        why = (
            "no target-only step was timed at this batch size"
            if self.speculated
            else "no step that verified drafts was timed"
        )
        return f"{self.seconds:.0f} s of probes could not be judged: {why}"


@dataclass(frozen=True, slots=True)
class Opened:
    """The breaker opened by itself."""

    why: Reason | None

    def __str__(self) -> str:
        """The reason as a line."""
        return f"breaker opened: {'' if self.why is None else self.why}"


@dataclass(frozen=True, slots=True)
class Repetition:
    """More is accepted than of any sound text: the breaker's alarm."""

    accepted: float
    """The share of the drafted tokens."""
    windows: int
    """In a row."""

    def __str__(self) -> str:
        """The alarm as a line.

        >>> print(Repetition(0.998, 12))
        acceptance 100 % for 12 windows: the output may repeat itself
        """
        return (
            f"acceptance {self.accepted * 100:.0f} % for {self.windows} windows: "
            "the output may repeat itself"
        )


Reason = (
    MoreTokens | Rounds | Slower | LowAcceptance | NothingPays | PoorProbe | Unjudged | Opened | str
)
"""A text is what somebody gave as the reason."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move of k, as the runner remembers it."""

    t: float
    """Unix time, seconds."""
    before: int
    after: int
    reason: Reason
    who: str
    origin: Origin

    def as_change(self) -> KChange:
        """The move in words, for the wire."""
        reason = str(self.reason)
        return KChange(self.t, self.before, self.after, reason, self.who, self.origin)


def describe_drafts(drafted: int, accepted: int) -> str:
    """What became of the drafted tokens, in words.

    >>> describe_drafts(4000, 1000), describe_drafts(0, 0)
    ('25 % accepted of 4,000 drafted tokens', 'nothing drafted')
    """
    if not drafted:
        return "nothing drafted"
    return f"{accepted / drafted * 100:.0f} % accepted of {drafted:,} drafted tokens"


def _round_drafts(drafts: float) -> int:
    """Two digits: the window has no sharp edge.

    >>> _round_drafts(1964.2), _round_drafts(7.4)
    (2000, 7)
    """
    number = round(drafts)
    return round(number, 2 - len(str(number))) if number > 99 else number


def _milliseconds(seconds: float) -> str:
    """Two digits that matter.

    >>> _milliseconds(0.0018), _milliseconds(0.0123), _milliseconds(0.00004)
    ('1.8', '12', '0.04')
    """
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"
