"""What the counts of a check allow to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdeck.engine.divergence.statistics import Rate, above, prompts_wanted
from specdeck.engine.text import format_count

Word = Literal["pass", "fail", "inconclusive"]
SIGNIFICANT = 0.05
IDLE = 0.1
"""The share of answers without drafts up to which a check is one of speculation."""


@dataclass(frozen=True, slots=True)
class CheckEvidence:
    """Everything a verdict weighs."""

    mismatches: Rate
    """Serving against reference."""
    floor: Rate
    """The reference against itself."""
    material: int
    """Mismatches in which a confident token was replaced."""
    floor_material: int
    """The same of the reference against itself."""
    unconfirmed: int = 0
    """Those of the material ones that nobody looked at again, and whose margins prove nothing."""
    stream_only: int = 0
    """Prompts whose streamed and non-streamed output differ in the serving arm alone."""
    drafted: int | None = None
    """Tokens drafted for the serving arm's answers; None where the engine does not say."""
    idle: Rate | None = None
    """Serving answers without any draft, of those that were long enough; None: of no meaning."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word and its reasons."""

    word: Word
    reason: str
    prompts_wanted: int | None = None
    """How many would settle it, if the rate stays; None when it is settled or never will be."""


def judge(found: CheckEvidence, threshold: float) -> Verdict:
    """Weighs the rate against the threshold *and* the floor, and a defect above both."""
    if not found.mismatches.of:
        return Verdict("inconclusive", "no prompt was answered by both arms")
    if (defect := _defect(found)) is not None:
        return defect
    if found.drafted == 0:
        text = "the serving arm drafted nothing, so speculation was not tried"
        return Verdict("inconclusive", text)
    return _doubt(found, _rate(found, threshold))


def _defect(found: CheckEvidence) -> Verdict | None:
    if found.stream_only:
        prompts = format_count(found.stream_only, "prompt")
        text = f"streamed and non-streamed output differ for {prompts}, in the serving arm alone"
        return Verdict("fail", text)
    proven = found.material - found.unconfirmed
    if not proven:
        return None
    said = f"{format_count(proven, 'material difference')}: a confident token was replaced"
    if found.floor_material:
        mine = Rate(found.material, found.mismatches.of)
        p = above(mine, Rate(found.floor_material, found.floor.of))
        if p is None or p > SIGNIFICANT:
            again = f"{said}, and the reference does that against itself as well"
            return Verdict("inconclusive", again)
    return Verdict("fail", said)


def _doubt(found: CheckEvidence, weighed: Verdict) -> Verdict:
    """What was `weighed`, unless there may be a defect, or a pass rests on idle answers."""
    if weighed.word != "fail" and found.unconfirmed:
        cases = format_count(found.unconfirmed, "material difference")
        were = "was" if found.unconfirmed == 1 else "were"
        text = (
            f"{cases} {were} not confirmed by a third request, and margins so small prove nothing"
        )
        return Verdict("inconclusive", text)
    idle = found.idle
    if weighed.word == "pass" and idle is not None and (idle.rate or 0.0) > IDLE:
        text = (
            f"nothing was drafted for {idle.count} of {idle.of} serving answers,"
            " so speculation was not tried in them"
        )
        return Verdict("inconclusive", text)
    return weighed


def _rate(found: CheckEvidence, threshold: float) -> Verdict:
    low, high = found.mismatches.bounds95
    rate = found.mismatches.rate or 0.0
    if high <= threshold:
        return Verdict("pass", f"at most {high:.2%} differ (one-sided 95% bound)")
    if low <= threshold:
        return _ask_for_more(found, rate, threshold)
    p = above(found.mismatches, found.floor)
    if p is None or p > SIGNIFICANT:
        return Verdict(
            "inconclusive", f"{rate:.2%} differ, and the reference differs from itself as often"
        )
    ties = " though every one is a near tie" if not found.material else ""
    return Verdict("fail", f"at least {low:.2%} differ (one-sided 95% bound){ties}")


def _ask_for_more(found: CheckEvidence, rate: float, threshold: float) -> Verdict:
    wanted = prompts_wanted(rate, threshold)
    if wanted is None:
        text = f"{rate:.2%} differ, which is the threshold itself: more prompts will not settle it"
        return Verdict("inconclusive", text)
    text = (
        f"{found.mismatches.of} prompts are too few to tell {rate:.2%} from {threshold:.2%}:"
        f" {wanted} would do if the rate stays"
    )
    return Verdict("inconclusive", text, wanted)
