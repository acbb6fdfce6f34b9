"""What speculation is worth, measured, and whether a window of it was poor, how poor, and why.

The tokens of a step would have cost target-only as many steps at k = 0 as each request got
tokens, whose duration at that batch size, with the prompts that steps carry of late, is
measured and follows the machine. Nothing is claimed for a batch size at which target-only was
never measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal, NamedTuple, Self

from specdeck.engine.policy.estimates import Estimates
from specdeck.engine.policy.parameters import BreakerParameters
from specdeck.engine.policy.reason import (
    LowAcceptance,
    NothingPays,
    PoorProbe,
    Reason,
    Slower,
    describe_drafts,
)
from specdeck.engine.policy.step import Step

MEASURED_STEPS = 6.0
"""Steps at k = 0 from which target-only counts as measured."""
_BLOCK_STEPS = 8
"""Steps in a row that deviate as one."""


@dataclass(frozen=True, slots=True)
class WindowEvidence:
    """One window of work."""

    seconds: float
    """Of all steps whose duration is known."""
    steps: int
    drafts: int
    drafted: int
    accepted: int
    speculating_s: float
    """Seconds of the steps that drafted or verified, where target-only was measured."""
    target_only_s: float
    """Seconds that target-only would have taken for the tokens of the same steps."""
    compared: int = 0
    """The steps behind the two figures above."""
    squares: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Sums over `blocks` of speculating², target-only² and their product."""
    target_only_error: float = 0.0
    """Relative standard error of what a target-only step takes."""
    blocks: int = 0
    """The blocks of successive steps that `squares` sums over; 0 where each step is one."""

    def __add__(self, other: Self) -> WindowEvidence:
        """Both windows as one."""
        mine, theirs = self.squares, other.squares
        return WindowEvidence(
            self.seconds + other.seconds,
            self.steps + other.steps,
            self.drafts + other.drafts,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
            self.speculating_s + other.speculating_s,
            self.target_only_s + other.target_only_s,
            self.compared + other.compared,
            (mine[0] + theirs[0], mine[1] + theirs[1], mine[2] + theirs[2]),
            self._weighed_error(other),
            self.blocks + other.blocks,
        )

    def _weighed_error(self, other: Self) -> float:
        """What both windows are in doubt of target-only: each by the time that rests on it."""
        worth = self.target_only_s + other.target_only_s
        if not worth:
            return max(self.target_only_error, other.target_only_error)
        mine = self.target_only_error * self.target_only_s
        return (mine + other.target_only_error * other.target_only_s) / worth

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def per_draft(self) -> float | None:
        """Accepted tokens of a draft; None when none was verified."""
        return self.accepted / self.drafts if self.drafts else None

    @property
    def gain(self) -> float | None:
        """Speed against target-only, as a share; negative is a loss, None is unknown.

        >>> WindowEvidence(1.0, 50, 50, 150, 75, 0.8, 1.0).gain
        0.25
        """
        return self.target_only_s / self.speculating_s - 1 if self.speculating_s else None

    @property
    def spread(self) -> float | None:
        """Relative deviation of single steps from the mean gain; None of fewer than five.

        Neighbours are alike, in text and in what else the machine does: were they not, blocks
        of them would deviate less than they do, and single steps as much as this.
        """
        blocks = self.blocks or self.compared
        if self.compared < 5 or blocks < 2 or not (self.speculating_s and self.target_only_s):
            return None
        ratio = self.target_only_s / self.speculating_s
        spent, worth, both = self.squares
        rest = max(0.0, worth - 2 * ratio * both + ratio * ratio * spent)
        return sqrt(rest * blocks / (blocks - 1) * self.compared) / self.target_only_s

    def gain_error(self, *, spread: float = 0.0) -> float | None:
        """Standard error of `gain`; None when there are too few steps to tell.

        `spread` is the least that single steps are taken to deviate.
        """
        own, gain = self.spread, self.gain
        if own is None or gain is None:
            return None
        steps = max(own, spread) / sqrt(self.compared)
        return (1 + gain) * sqrt(steps**2 + self.target_only_error**2)

    def __str__(self) -> str:
        """What the window showed, as a line.

        >>> print(WindowEvidence(1.0, 50, 50, 250, 10, speculating_s=1.0, target_only_s=0.82))
        50 steps in 1.0 s: 4 % accepted of 250 drafted tokens, -18 % against target-only
        """
        drafts = describe_drafts(self.drafted, self.accepted)
        found = f"{self.steps} steps in {self.seconds:.1f} s: {drafts}"
        if self.acceptance is None:
            return found
        if self.gain is None:
            return f"{found}, target-only not measured"
        return f"{found}, {self.gain * 100:+.0f} % against target-only"

    @property
    def saved_s(self) -> float:
        """Seconds of engine time saved; negative when lost."""
        return self.target_only_s - self.speculating_s


class Meter:
    """Sums up windows; `estimates` supplies what target-only takes."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._times, self._prompts = estimates.times, estimates.prompts
        self._alone = self._alone_error = self._of_prompt = 0.0
        self._alone_of: tuple[int, int, int] | None = None
        self.clear()

    def clear(self) -> None:
        """Begins a window."""
        self.seconds = 0.0
        self._steps = self._drafts = self._drafted = self._accepted = 0
        self._speculating = self._worth = 0.0
        self._compared = 0
        self._spent2 = self._worth2 = self._both = self._doubt = 0.0
        self._block = (0, 0.0, 0.0)
        self._blocks = 0

    def add(self, step: Step) -> None:
        """Counts a step that `estimates` has taken in."""
        drafted, seconds = step.drafted, step.seconds
        if drafted:
            self._drafts += step.drafts
            self._drafted += drafted
            self._accepted += step.accepted
        if seconds is None:
            return
        self.seconds += seconds
        self._steps += 1
        if not (step.k or step.verified):
            return
        if (step.absent or step.pinned) and not step.tells_gain:
            return
        steps, spent, gained = self._block
        if not steps:
            self._look(self._estimates.bucket)
        alone = self._alone
        if alone:
            worth = alone * step.as_steps
            if self._of_prompt:
                worth += self._of_prompt * (step.prefill - self._prompts.mean)
            self._speculating += seconds
            self._worth += worth
            self._compared += 1
            steps, spent, gained = self._block = steps + 1, spent + seconds, gained + worth
            if steps == _BLOCK_STEPS:
                self._close_block(spent, gained)

    def _close_block(self, spent: float, worth: float) -> None:
        self._spent2 += spent * spent
        self._worth2 += worth * worth
        self._both += spent * worth
        self._blocks += 1
        self._block = (0, 0.0, 0.0)

    def evidence(self) -> WindowEvidence:
        """The window so far; it begins another block of steps."""
        steps, spent, worth = self._block
        if steps:
            self._close_block(spent, worth)
        return WindowEvidence(
            self.seconds,
            self._steps,
            self._drafts,
            self._drafted,
            self._accepted,
            self._speculating,
            self._worth,
            self._compared,
            (self._spent2, self._worth2, self._both),
            self._doubt,
            self._blocks,
        )

    def _look(self, here: int) -> None:
        """Seconds of a target-only step; 0 when it was not measured."""
        at = (here, self._times.version, self._prompts.version)
        if at == self._alone_of:
            self._doubt = max(self._doubt, self._alone_error)
            return
        self._alone_of = at
        self._alone_error = 0.0
        cost = self._estimates.cost(here, 0)
        if cost is None or self._times.steps(here, 0) < MEASURED_STEPS:
            self._alone = 0.0
            return
        self._alone, self._alone_error = cost
        self._doubt = max(self._doubt, self._alone_error)
        self._of_prompt = self._estimates.prompt_cost(here)


_SEVERE = 2.0
"""A loss of so many times the limit counts as two windows."""
_CERTAIN = 3.0
"""Standard errors below zero at which a loss opens the breaker."""
_DOUBTFUL = 2.0
"""The same where little of a draft is accepted: it may pay all the same."""
_LIKELY = 3.0
"""Standard errors above zero at which a gain closes it."""


class WindowVerdict(NamedTuple):
    """A judgement on one window."""

    weight: int
    """0 is good, 1 poor, 2 severe."""
    cause: Literal["loss", "acceptance", "policy", "probe"] | None
    reason: Reason
    """Empty when it is good."""


def judge_window(
    evidence: WindowEvidence, parameters: BreakerParameters, *, bypassed: bool
) -> WindowVerdict:
    """The verdict on a window of the closed breaker.

    Acceptance is counted by draft: of the tokens that are drafted, fewer are accepted the
    deeper k is, whether it pays or not. Below the floor it is forgiven when speculation is
    measured to pay by more than `loss`: where a step costs little more with drafts than
    without, few need to be right.

    >>> poor = WindowEvidence(1.0, 50, 50, 250, 10, speculating_s=1.0, target_only_s=0.82)
    >>> print(judge_window(poor, BreakerParameters(), bypassed=False).reason)
    18 % slower than target-only, 4 % accepted of 250 drafted tokens
    >>> cheap = WindowEvidence(1.0, 50, 50, 250, 75, speculating_s=1.0, target_only_s=1.3)
    >>> judge_window(cheap, BreakerParameters(acceptance_floor=0.6), bypassed=False).weight
    0
    """
    gain, accepted = evidence.gain, evidence.per_draft
    if gain is not None and gain < -parameters.loss and not bypassed:
        weight = 2 if gain < -_SEVERE * max(parameters.loss, 0.01) else 1
        slower = Slower(gain, evidence.drafted, evidence.accepted)
        return WindowVerdict(weight, "loss", slower)
    floor = parameters.acceptance_floor
    pays = gain is not None and gain > parameters.loss
    if floor is not None and accepted is not None and accepted < floor and not pays:
        weight = 2 if accepted < floor / _SEVERE else 1
        low = LowAcceptance(evidence.drafts, evidence.accepted, floor)
        return WindowVerdict(weight, "acceptance", low)
    if bypassed:
        return WindowVerdict(1, "policy", NothingPays(evidence.drafted, evidence.accepted))
    return WindowVerdict(0, None, "")


def judge_run(
    run: WindowEvidence,
    parameters: BreakerParameters,
    *,
    spread: float,
    bypassed: bool,
    overdue: bool,
) -> WindowVerdict | None:
    """Why poor windows in a row, as one, open the breaker; None when they may be noise.

    `spread` is the relative deviation of single steps as known from before: few steps of a
    rare kind of text look more alike than they are. Where nothing can be compared, acceptance
    decides only once it is `overdue` that something could.
    """
    verdict = judge_window(run, parameters, bypassed=bypassed)
    gain, error = run.gain, run.gain_error(spread=spread)
    if bypassed:
        return WindowVerdict(1, "policy", NothingPays(run.drafted, run.accepted))
    if gain is None or error is None:
        return verdict if verdict.cause == "acceptance" and overdue else None
    if gain + _CERTAIN * error < 0:
        return verdict if verdict.cause else None
    floor, accepted = parameters.acceptance_floor, run.per_draft
    low = floor is not None and accepted is not None and accepted < floor
    if not low or gain + _DOUBTFUL * error >= 0:
        return None
    assert floor is not None
    low_for_sure = LowAcceptance(run.drafts, run.accepted, floor, gain, error)
    return WindowVerdict(1, "acceptance", low_for_sure)


def judge_probes(
    evidence: WindowEvidence, parameters: BreakerParameters, *, spread: float, last: bool
) -> WindowVerdict | None:
    """The verdict on what a half-open breaker has tried so far; None asks for more.

    A gain is wanted, beyond the noise: to lose nothing is not enough. `last` wants an answer.

    >>> tried = WindowEvidence(1.0, 20, 20, 60, 50, 1.0, 1.4, 20, (0.05, 0.1, 0.07))
    >>> judge_probes(tried, BreakerParameters(), spread=0.1, last=False).weight
    0
    """
    gain, error = evidence.gain, evidence.gain_error(spread=spread)
    if gain is None or error is None:
        if not last:
            return None
        good = (evidence.per_draft or 0.0) >= (parameters.acceptance_floor or 0.0)
    else:
        good = gain >= parameters.gain and gain - _LIKELY * error > 0
        if not good and not last and gain + error >= parameters.gain:
            return None
    if good:
        return WindowVerdict(0, None, "")
    return WindowVerdict(1, "probe", PoorProbe(evidence.acceptance or 0.0, gain))
