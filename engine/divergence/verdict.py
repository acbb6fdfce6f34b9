"""What the counts of a check allow to say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from specdeck.engine.divergence.arms import Name
from specdeck.engine.divergence.floors import SIGNIFICANT, Excess, prompts_wanted
from specdeck.engine.divergence.statistics import Rate, above
from specdeck.engine.text import format_count

Word = Literal["pass", "fail", "inconclusive"]
IDLE = 0.1
"""The share of answers without drafts up to which a check is one of speculation."""

REFERENCE_DRAFTED = "the reference drafted as well, so it is not the target alone"
NOT_PINNED = "nothing shows that the reference's requests were left without drafts"
"""Of a soft one by their pin, of a hard one by its engine."""

NOT_DRAFTED = "the serving arm drafted nothing, so speculation was not tried"
TURNED_IDLE = "the serving engine drafts nothing in the end, and does not say since when"


@dataclass(frozen=True, slots=True)
class CheckEvidence:
    """Everything a verdict weighs."""

    mismatches: Rate
    """Serving against reference."""
    excess: Excess | None
    """How much more often the arms differ than the floors explain; None of nothing."""
    material: int
    """Prompts in which a confident token was replaced, whenever the target was asked."""
    floor_material: int
    """The same of the reference against itself."""
    are_ties: bool = False
    """Whether every difference of the arms is a near tie."""
    unsound: int = 0
    """Prompts with an answer of the reference in which a sure token is surely wrong."""
    unconfirmed: int = 0
    """Those of the material ones that nobody looked at again, and whose margins prove nothing."""
    reference_differs: int = 0
    """Prompts in which serving was sure of a token, the target, fed its answer, sided with it, and
    the reference said another one."""
    stream_only: int = 0
    """Prompts whose streamed and non-streamed output differ in the serving arm alone."""
    retold: int = 0
    """Prompts whose equal tokens became another text, or another end, in the serving arm."""
    invalid: int = 0
    """Prompts whose rules the serving arm's answers break, and the reference's do not."""
    broken: str | None = None
    """Where the first of them does."""
    drafted: int | None = None
    """Tokens drafted for the serving arm's answers; None where the engine does not say."""
    idle: Rate | None = None
    """Serving answers without any draft, of those that were long enough; None: of no meaning."""
    empty: int = 0
    """Prompts to which neither arm answered a single token."""
    refused: int = 0
    """Prompts that an arm would not answer, in none of the figures."""
    compared: int | None = None
    """Tokens of both arms that were held against each other; None where nobody has counted."""
    reference_drafted: bool = False
    """Whether anything was drafted for the reference's answers."""
    is_pinned: bool = True
    """Whether a soft reference has shown that its requests drafted nothing, and a hard one
    whether it drafts."""
    pins_served: Rate | None = None
    """Serving answers that name a pin, so that nothing was drafted for them; None: none was."""
    idle_by_word: Rate | None = None
    """Serving answers that show no draft, and after which the engine said that it drafts nothing;
    None: never asked."""
    unheard: Rate | None = None
    """Those that show none, and after which it could not be asked."""
    drafts_lost: bool = False
    """Whether the serving engine told in the beginning what it drafts, and not in the end."""
    turned_idle: bool = False
    """Whether the serving engine says in the end that it drafts nothing, and none of its answers
    tells since when."""
    mixed: Name | None = None
    """The arm whose engine was replaced, so that its answers may be of two ways of serving."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word and its reasons."""

    word: Word
    reason: str
    prompts_wanted: int | None = None
    """How many settle it with a chance of 80 %; None when it is settled or never will be."""
    defect: bool = False
    """Whether a single answer proves it, whatever the rates are."""
    untried: bool = False
    """Whether the check says nothing of speculation, whatever the rates are: none was tried, or
    the reference is unsound."""


def judge(found: CheckEvidence, threshold: float) -> Verdict:
    """Weighs the rate against the threshold *and* the floor, and a defect above both."""
    if not found.mismatches.of:
        return Verdict("inconclusive", "no prompt was answered by both arms", untried=True)
    gap = _find_gap(found)
    verdict = _defect(found) or _doubt(found, _rate(found, threshold), gap)
    if gap is None:
        return verdict
    # A canary's night is no good one by its rate alone.
    reason = gap if verdict.reason == gap else f"{verdict.reason}; {gap}"
    return replace(verdict, reason=reason, untried=True)


def _defect(found: CheckEvidence) -> Verdict | None:
    if found.invalid:
        answers = format_count(found.invalid, "answer")
        text = f"{answers} invalid where the reference's are valid"
        if found.broken:
            text = f"{text}: {found.broken}"
        return Verdict("fail", text, defect=True)
    if found.stream_only:
        prompts = format_count(found.stream_only, "prompt")
        text = f"streamed and non-streamed output differ for {prompts}, in the serving arm alone"
        return Verdict("fail", text, defect=True)
    if found.retold:
        prompts = format_count(found.retold, "prompt")
        text = f"equal tokens became another text or end for {prompts} in the serving arm"
        return Verdict("fail", text, defect=True)
    proven = found.material - found.unconfirmed
    if not proven:
        return None
    said = f"{format_count(proven, 'material difference')}: a confident token was replaced"
    if found.floor_material:
        # Both answers of the serving arm were held against one of the reference.
        mine = Rate(found.material, 2 * found.mismatches.of)
        p = above(mine, Rate(found.floor_material, found.mismatches.of))
        if p is None or p > SIGNIFICANT:
            again = f"{said}, and the reference does that against itself as well"
            return Verdict("inconclusive", again, untried=True)
    return Verdict("fail", said, defect=True)


def _doubt(found: CheckEvidence, weighed: Verdict, gap: str | None) -> Verdict:
    """What was `weighed`, unless there may be a defect, or a pass would rest on a `gap`."""
    if found.drafted == 0:
        return Verdict("inconclusive", NOT_DRAFTED)
    if weighed.word != "fail" and found.unconfirmed:
        cases = format_count(found.unconfirmed, "material difference")
        were = "was" if found.unconfirmed == 1 else "were"
        text = (
            f"{cases} {were} not confirmed by a third request, and margins so small prove nothing"
        )
        return Verdict("inconclusive", text)
    if found.reference_differs:
        return Verdict("inconclusive", explain_difference(found.reference_differs))
    return weighed if weighed.word == "fail" or gap is None else Verdict("inconclusive", gap)


def _find_gap(found: CheckEvidence) -> str | None:
    """What a pass cannot rest on."""
    prompts, idle = found.mismatches.of, found.idle
    if found.drafted == 0:
        return NOT_DRAFTED
    if found.reference_differs:
        return explain_difference(found.reference_differs)
    if found.unsound:
        return explain_unsound(found.unsound)
    if found.mixed is not None:
        return explain_mixed(found.mixed)
    if found.empty > IDLE * prompts:
        return f"{found.empty} of {prompts} answers have no token in either arm"
    if (refused := explain_refused(found.refused, prompts)) is not None:
        return refused
    if found.compared is not None and found.compared <= prompts:
        # The first token of an answer comes of its prompt alone.
        return "the answers have no more than a token each, so speculation was not tried"
    if found.reference_drafted:
        return REFERENCE_DRAFTED
    if not found.is_pinned:
        return NOT_PINNED
    if (pins := found.pins_served) is not None and (pins.rate or 0.0) > IDLE:
        return explain_pins("serving answers", pins)
    if (stopped := found.idle_by_word) is not None and (stopped.rate or 0.0) > IDLE:
        return explain_idle_by_word(stopped, "answers")
    if (silent := found.unheard) is not None and (silent.rate or 0.0) > IDLE:
        return explain_unheard(silent, "answers")
    if found.turned_idle:
        return TURNED_IDLE
    if found.drafts_lost:
        return "the serving engine does not tell any more what it drafted"
    if idle is not None and (idle.rate or 0.0) > IDLE:
        return (
            f"nothing was drafted for {idle.count} of {idle.of} serving answers,"
            " so speculation was not tried in them"
        )
    return None


def explain_refused(refused: int, answered: int) -> str | None:
    """Why a pass is none where an arm would not answer so many prompts; None where they are few."""
    asked = answered + refused
    if refused <= IDLE * asked:
        return None
    return f"{refused} of {asked} prompts were refused by an arm, and so not checked"


def explain_idle_by_word(found: Rate, what: str) -> str:
    """Why a pass is none where the engine said at so many of `what` that it drafts nothing."""
    return (
        f"the serving engine drafted nothing by its own word at {found.count} of {found.of} {what}"
    )


def explain_unheard(found: Rate, what: str) -> str:
    """Why a pass is none where the engine could not be asked at so many of `what`."""
    return f"the serving engine did not say whether it drafts at {found.count} of {found.of} {what}"


def explain_pins(what: str, found: Rate) -> str:
    """Why a pass is none where so many of `what` name a pin, none of which is asked for."""
    return (
        f"{found.count} of {found.of} {what} name a pin, as those of the reference:"
        " speculation was not tried in them"
    )


def explain_difference(prompts: int) -> str:
    """Why nothing is known by a reference that is wrong in so many prompts."""
    return (
        f"the reference differs for {format_count(prompts, 'prompt')}: serving was sure, and the"
        " target, fed its answer, sides with it"
    )


def explain_unsound(prompts: int) -> str:
    """Why a pass by a reference is none that is wrong itself, in so many prompts."""
    wrong = format_count(prompts, "prompt")
    return f"the reference replaces a confident token of its own for {wrong}: it is unsound"


def explain_mixed(arm: Name) -> str:
    """Why a pass of an arm whose engine was replaced is none."""
    return (
        f"the {arm} engine was replaced while it was checked, and nothing shows that all answers"
        " are of one way of serving"
    )


def _rate(found: CheckEvidence, threshold: float) -> Verdict:
    excess = found.excess
    if excess is None:
        return Verdict("inconclusive", "nothing was asked twice, so no floor is known")
    beyond = " beyond the noise floors" if excess.has_noise else ""
    if excess.serving_varies:
        beyond += ", the serving arm's own among them"
    if excess.upper <= threshold:
        most = max(0.0, excess.upper)
        return Verdict("pass", f"at most {most:.2%} differ{beyond} (one-sided 95% bound)")
    if excess.p <= SIGNIFICANT and excess.least.value > threshold:
        ties = " though every one is a near tie" if found.are_ties else ""
        text = f"{excess.least.value:.2%} differ{beyond} (p = {excess.p:.1g}){ties}"
        return Verdict("fail", text)
    return _ask_for_more(excess, beyond, threshold)


def _ask_for_more(excess: Excess, beyond: str, threshold: float) -> Verdict:
    value = excess.least.value
    wanted = prompts_wanted(excess, threshold)
    if wanted is None:
        text = f"{value:.2%} differ{beyond}, the threshold itself: more prompts will not settle it"
        return Verdict("inconclusive", text)
    wanted = max(wanted, excess.prompts * 5 // 4)
    text = (
        f"{excess.prompts} prompts are too few to tell {value:.2%}{beyond} from {threshold:.2%}:"
        f" {wanted} would do, with a chance of 80%, if the rate stays"
    )
    return Verdict("inconclusive", text, wanted)
