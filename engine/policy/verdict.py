"""Whether a window of speculation was poor, how poor, and why."""

from __future__ import annotations

from typing import Literal, NamedTuple

from specdeck.engine.policy.meter import Evidence
from specdeck.engine.policy.parameters import Breaker as Parameters

_SEVERE = 2.0
"""A loss of so many times the limit counts as two windows."""
_CERTAIN = 3.0
"""Standard errors below zero at which a loss opens the breaker."""
_DOUBTFUL = 1.0
"""Standard errors for which low acceptance is forgiven: it may pay all the same."""
_LIKELY = 3.0
"""Standard errors above zero at which a gain closes it."""


class Verdict(NamedTuple):
    """A judgement on one window."""

    weight: int
    """0 is good, 1 poor, 2 severe."""
    cause: Literal["loss", "acceptance", "policy", "probe"] | None
    reason: str
    """In words with figures; empty when it is good."""


def judged(evidence: Evidence, parameters: Parameters, *, bypassed: bool) -> Verdict:
    """The verdict on a window of the closed breaker.

    Acceptance below the floor is forgiven when speculation is measured to pay by more than
    `loss`: where a step costs little more with drafts than without, few need to be right.

    >>> poor = Evidence(1.0, 50, 50, 250, 10, speculating_s=1.0, target_only_s=0.82)
    >>> print(judged(poor, Parameters(), bypassed=False).reason)
    18 % slower than target-only, 4 % accepted of 250 drafted tokens
    >>> cheap = Evidence(1.0, 50, 50, 250, 75, speculating_s=1.0, target_only_s=1.3)
    >>> judged(cheap, Parameters(acceptance_floor=0.6), bypassed=False).weight
    0
    """
    gain, acceptance = evidence.gain, evidence.acceptance
    if gain is not None and gain < -parameters.loss and not bypassed:
        weight = 2 if gain < -_SEVERE * max(parameters.loss, 0.01) else 1
        slower = f"{-gain * 100:.0f} % slower than target-only, {_accepted(evidence)}"
        return Verdict(weight, "loss", slower)
    floor = parameters.acceptance_floor
    pays = gain is not None and gain > parameters.loss
    if floor is not None and acceptance is not None and acceptance < floor and not pays:
        weight = 2 if acceptance < floor / _SEVERE else 1
        low = f"{_accepted(evidence)}, below the floor of {floor * 100:.0f} %"
        return Verdict(weight, "acceptance", low)
    if bypassed:
        return Verdict(1, "policy", f"the policy found no k that pays: {_accepted(evidence)}")
    return Verdict(0, None, "")


def decided(
    run: Evidence, parameters: Parameters, *, spread: float, bypassed: bool
) -> Verdict | None:
    """Why poor windows in a row, as one, open the breaker; None when they may be noise.

    `spread` is the relative deviation of single steps as known from before: few steps of a
    rare kind of text look more alike than they are.
    """
    verdict = judged(run, parameters, bypassed=bypassed)
    gain, error = run.gain, run.gain_error(spread=spread)
    if bypassed:
        return Verdict(1, "policy", f"the policy found no k that pays: {_accepted(run)}")
    if gain is None or error is None:
        return verdict if verdict.cause == "acceptance" else None
    if gain + _CERTAIN * error < 0:
        return verdict if verdict.cause else None
    floor, acceptance = parameters.acceptance_floor, run.acceptance
    low = floor is not None and acceptance is not None and acceptance < floor
    if not low or gain + _DOUBTFUL * error >= parameters.loss:
        return None
    assert floor is not None
    return Verdict(
        1,
        "acceptance",
        f"{_accepted(run)}, below the floor of {floor * 100:.0f} %: "
        f"{gain * 100:+.0f} ± {error * 100:.0f} % against target-only",
    )


def probed(
    evidence: Evidence, parameters: Parameters, *, spread: float, last: bool
) -> Verdict | None:
    """The verdict on what a half-open breaker has tried so far; None asks for more.

    A gain is wanted, beyond the noise: to lose nothing is not enough. `last` wants an answer.

    >>> tried = Evidence(1.0, 20, 20, 60, 50, 1.0, 1.4, 20, (0.05, 0.1, 0.07))
    >>> probed(tried, Parameters(), spread=0.1, last=False).weight
    0
    """
    gain, error = evidence.gain, evidence.gain_error(spread=spread)
    if gain is None or error is None:
        if not last:
            return None
        good = (evidence.acceptance or 0.0) >= (parameters.acceptance_floor or 0.0)
    else:
        good = gain >= parameters.gain and gain - _LIKELY * error > 0
        if not good and not last and gain + error >= parameters.gain:
            return None
    if good:
        return Verdict(0, None, "")
    measured = "unknown" if gain is None else f"{gain * 100:+.0f} %"
    accepted = (evidence.acceptance or 0.0) * 100
    return Verdict(1, "probe", f"a probe accepted {accepted:.0f} %: {measured} against target-only")


def _accepted(evidence: Evidence) -> str:
    acceptance = evidence.acceptance
    if acceptance is None:
        return "nothing drafted"
    return f"{acceptance * 100:.0f} % accepted of {evidence.drafted:,} drafted tokens"
