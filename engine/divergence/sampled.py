"""At temperature > 0 tokens cannot be compared, distributions can.

Many short continuations of each prompt are drawn from both arms. The reference says how likely
each of their tokens is, given all before it, and what both arms draw is held against that: see
`likelihood`. A second opinion asks nothing of the reference but its draws: a G-test with a
permutation p-value, prompt by prompt. The reference is drawn twice: neither test may find a
difference there, or it proves nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specdeck.engine.divergence.arms import Arm, Name
from specdeck.engine.divergence.likelihood import Visible
from specdeck.engine.divergence.pacing import Pacer
from specdeck.engine.divergence.pin_proof import PinProof
from specdeck.engine.divergence.privacy import hash_prompt, refusal_reason
from specdeck.engine.divergence.prompts import Prompt, PromptSet
from specdeck.engine.divergence.requests import Asker, Continuations, Refusal
from specdeck.engine.divergence.scoring import Scorer, Scores
from specdeck.engine.divergence.statistics import Rate, holm
from specdeck.engine.divergence.verdict import (
    IDLE,
    NOT_DRAFTED,
    NOT_PINNED,
    REFERENCE_DRAFTED,
    TURNED_IDLE,
    Verdict,
    explain_idle_by_word,
    explain_mixed,
    explain_pins,
    explain_refused,
    explain_unheard,
)
from specdeck.engine.errors import Unsupported

if TYPE_CHECKING:
    import numpy as np


ALPHA = 0.01
"""The chance of accusing an honest engine in one run, half of it for each of the two tests."""
FEW = 4
"""Continuations at once beside production that must not feel it."""
_HELD = 4_000_000
"""Figures of the deals that are held at a time: 16 MB, however many prompts and draws."""
_COPIES = 16
"""Figures of 4 bytes for each one of a deal: most of what is made of it on the way has 8."""
_ENDED = -1
"""No token's id."""
Draws = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class Coverage:
    """What the draws can show at all."""

    places: int = 0
    """Compared, over all prompts, where a draw has a token; the first of a continuation comes from
    no draft."""
    known: int = 0
    """Prompts during which the engine told what it drafted."""
    idle: int = 0
    """Those of them during which it drafted nothing."""
    served_pins: int = 0
    """Prompts whose serving draws all name a pin."""
    looked: int = 0
    """Prompts after which the engine was asked whether it drafts."""
    idle_by_word: int = 0
    """Those of them after which it said that it drafts nothing."""
    unheard: int = 0
    """Those of them after which it said nothing."""
    drafted: float | None = None
    """The engine's counter of drafted tokens when last looked at.

    Requests of others count in it: it may show drafts that no draw had, never hide one.
    """

    def count(self, now: float | None, draws: Sequence[tuple[int, ...]]) -> None:
        """Takes in one prompt, at whose end the counter stood at `now`."""
        self.places += max(0, max(map(len, draws)) - 1)
        if self.drafted is not None and now is not None and now >= self.drafted:
            self.known += 1
            self.idle += now == self.drafted
        self.drafted = now

    def note_word(self, is_idle: bool | None) -> None:
        """Takes in what the engine says of itself after a prompt; None where it says nothing."""
        self.looked += 1
        self.unheard += is_idle is None
        self.idle_by_word += is_idle is True


def judge_draws(
    p_values: Iterable[float], controls: Iterable[float], scores: Scores | None = None
) -> Verdict:
    """Fails where a p-value, corrected for all that were looked at, is low.

    And the control's is not, or not by far as much: one control in a hundred is low by chance.

    Half of ALPHA is for these, and half for the `scores` by likelihood where there are any.
    """
    lowest, control = lowest_p(p_values, scores), lowest_control(controls, scores)
    if lowest >= ALPHA:
        return Verdict("pass", f"no difference was seen (p = {lowest:.2g})")
    if control < ALPHA and lowest >= ALPHA * control:
        return Verdict("inconclusive", "the reference's draws differ from its own as well")
    why = f"the arms draw from different distributions (p = {lowest:.2g})"
    if scores is not None and 2 * scores.contrast.lowest < ALPHA:
        why = f"{why}: of the serving arm's draws {scores.contrast.word}"
    return Verdict("fail", why)


def lowest_p(p_values: Iterable[float], scores: Scores | None) -> float:
    """What a verdict rests on: the lower p-value of both tests, corrected for there being two."""
    lowest = min(p_values)
    return lowest if scores is None else min(1.0, 2 * min(lowest, scores.contrast.lowest))


def lowest_control(p_values: Iterable[float], scores: Scores | None) -> float:
    """The same of the reference against itself."""
    lowest = min(p_values)
    return lowest if scores is None else min(1.0, 2 * min(lowest, scores.control.lowest))


def doubt_pass(
    judged: Verdict,
    shown: Coverage,
    samples: int,
    prompts: int,
    *,
    visible: Visible | None,
    refused: int = 0,
    is_pinned: bool = True,
    is_idle: bool = False,
    by_text: bool = False,
) -> Verdict:
    """What was `judged`, unless a pass rests on draws that could not have shown a difference.

    A drafter that goes `by_text` finds nothing in some of them. `is_pinned` is whether a soft
    reference has shown that its requests drafted nothing, `is_idle` whether the serving engine
    says of itself that it drafts nothing.
    """
    if judged.word != "pass":
        return judged
    wanted, idle = samples_wanted(prompts), Rate(shown.idle, shown.known)
    by_word, unheard = Rate(shown.idle_by_word, shown.looked), Rate(shown.unheard, shown.looked)
    if (few := explain_refused(refused, prompts)) is not None:
        why = few
    elif not is_pinned:
        why = NOT_PINNED
    elif shown.served_pins > IDLE * prompts:
        why = explain_pins("prompts' serving draws", Rate(shown.served_pins, prompts))
    elif not shown.places:
        why = "no continuation has a second token, so nothing was compared"
    elif samples < wanted:
        why = f"{samples} continuations are too few to show any difference: at least {wanted} would"
    elif idle.rate == 1.0 or (idle.rate is None and is_idle):
        why = NOT_DRAFTED
    elif (by_word.rate or 0.0) > IDLE:
        why = explain_idle_by_word(by_word, "prompts")
    elif (unheard.rate or 0.0) > IDLE:
        why = explain_unheard(unheard, "prompts")
    elif (idle.rate or 0.0) > IDLE and not by_text:
        why = f"nothing was drafted during {idle.count} of {idle.of} prompts"
    elif visible is None:
        why = "without the reference's log-probabilities only large differences show, and none did"
    elif not visible.shows_anything:
        why = "the draws are too few, or the target too sure of them, to show any difference"
    elif idle.rate is None:
        return Verdict("pass", f"{judged.reason}; the engine does not say whether it drafted")
    else:
        return judged
    return Verdict("inconclusive", why)


def doubt_arms(
    found: Distributions,
    *,
    replaced: Collection[Name],
    reference_drafts: bool | None,
    turned_idle: bool = False,
) -> Distributions:
    """What was `found`; no pass of engines that were replaced or say in the end that they draft
    nothing, nor by a reference that drafts, or of which that is not known (None)."""
    if found.verdict.word != "pass":
        return found
    if replaced:
        why = explain_mixed(next(iter(replaced)))
    elif reference_drafts:
        why = REFERENCE_DRAFTED
    elif reference_drafts is None:
        why = NOT_PINNED
    elif turned_idle:
        why = TURNED_IDLE
    else:
        return found
    return replace(found, verdict=Verdict("inconclusive", why))


def samples_wanted(prompts: int) -> int:
    """The fewest continuations of each of `prompts` with which a p-value can be low enough.

    Draws that have nothing in common are dealt so by chance in 2 of all ways of dealing, for
    each prompt on its own; Holm's correction multiplies by the number of tests.

    >>> samples_wanted(1), samples_wanted(100)
    (6, 2)
    """
    count = 2
    while 2 * (prompts + 1) * (2 / math.comb(2 * count, count)) ** prompts >= ALPHA:
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Sampling:
    """How much is drawn."""

    samples: int = 96
    """Continuations of each prompt, of each arm."""
    tokens: int = 16
    """The first comes from no draft; those after it do."""
    temperature: float = 1.0
    seed: int = 0
    """Of the permutations."""


@dataclass(frozen=True, slots=True)
class PromptTest:
    """One prompt: how likely draws so different are from one distribution."""

    prompt: int
    prompt_hash: str
    p: float
    control: float
    """The same of the reference against itself."""


@dataclass(frozen=True, slots=True)
class DrawProgress:
    """How many prompts are drawn from."""

    done: int
    of: int


@dataclass(frozen=True, slots=True)
class Distributions:
    """What the draws of all prompts say."""

    verdict: Verdict
    sampling: Sampling
    tested: tuple[PromptTest, ...]
    pooled: float
    """p of all prompts together."""
    control: float
    """The same of the reference against itself."""
    refused: int
    arms: tuple[Arm, Arm]
    seconds: float
    scores: Scores | None = None
    """By the reference's log-probabilities; None where it gives none."""
    unscored: str | None = None
    """Why it gives none."""
    visible: Visible | None = None
    """The smallest effects that these draws show; None where that is not known."""

    def as_json(self) -> dict[str, Any]:
        """Plain values; `p_lowest` is what the verdict rests on, after all corrections."""
        scores, visible = self.scores, self.visible
        adjusted = correct_p_values(self.tested, self.pooled, control=False)
        controls = correct_p_values(self.tested, self.control, control=True)
        return {
            "verdict": self.verdict.word,
            "reason": self.verdict.reason,
            "prompts": len(self.tested),
            "samples": self.sampling.samples,
            "tokens": self.sampling.tokens,
            "temperature": self.sampling.temperature,
            "alpha": ALPHA,
            "p_pooled": self.pooled,
            "p_lowest": lowest_p(adjusted, scores),
            "control": {"p_pooled": self.control, "p_lowest": lowest_control(controls, scores)},
            "likelihood": None if scores is None else scores.as_json(),
            "unscored": self.unscored,
            "visible": None if visible is None else visible.as_json(),
            "refused": self.refused,
            "seconds": self.seconds,
            "arms": {arm.name: {**arm.identity(), "k": arm.k} for arm in self.arms},
            "cases": [
                {
                    "prompt": one.prompt,
                    "prompt_hash": one.prompt_hash,
                    "p": one.p,
                    "p_holm": p,
                    "p_control": one.control,
                }
                for one, p in zip(self.tested, adjusted, strict=False)
            ],
        }


async def compare_distributions(
    askers: tuple[Asker, Asker],
    prompts: PromptSet,
    sampling: Sampling,
    *,
    pace: Pacer | None,
    fetch_drafted: Callable[[], Awaitable[float | None]],
    fetch_word: Callable[[], Awaitable[bool | None]] | None,
    private: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[DrawProgress | Distributions, None]:
    """Draws from both arms, prompt by prompt, and ends with what the draws say.

    `fetch_drafted` gives the tokens that the serving engine has drafted for anybody, and
    `fetch_word` whether it says that it drafts nothing; None of one that never says. What is cut
    short begins anew: the draws of some prompts are of no use without those of the others.
    """
    import numpy as np

    began = clock()
    random = np.random.default_rng(sampling.seed)
    rounds = max(1999, int(3 / ALPHA) * (prompts.count + 1))
    sums, controls = np.zeros(rounds + 1), np.zeros(rounds + 1)
    tested: list[PromptTest] = []
    refused, why, shown = 0, "", Coverage(drafted=await fetch_drafted())
    scorer = Scorer(askers[1], sampling.temperature, pace)
    proof = None if askers[1].arm.grade == "hard" else PinProof()
    for number, prompt in enumerate(prompts):
        yield DrawProgress(number, prompts.count)
        if proof is not None:
            await proof.ask(*askers, prompt, pace)
        drawn = await _draw_arms(askers, prompt, sampling, pace)
        if isinstance(drawn, Refusal):
            refused, why = refused + 1, refusal_reason(drawn, private=private)
            continue
        serving, reference, again = (each.draws for each in drawn)
        if proof is not None:
            proof.hold(drawn[1:])
        shown.served_pins += drawn[0].names_pin
        shown.count(await fetch_drafted(), [*serving, *reference])
        if fetch_word is not None:
            shown.note_word(await fetch_word())
        await scorer.score(*drawn)
        one = await asyncio.to_thread(permute, serving, reference, rounds, random)
        other = await asyncio.to_thread(permute, again, reference, rounds, random)
        sums += one
        controls += other
        tested.append(PromptTest(prompt.number, hash_prompt(prompt), p_value(one), p_value(other)))
    if refused and not tested:
        raise Unsupported(f"every prompt was refused by an arm: {why}", remedy="give other prompts")
    pooled, control = p_value(sums), p_value(controls)
    scores = scorer.scores()
    visible = None if scores is None else scores.visible(alpha=ALPHA / 2)
    word = judge_draws(
        correct_p_values(tested, pooled, control=False),
        correct_p_values(tested, control, control=True),
        scores,
    )
    word = doubt_pass(
        word, shown, sampling.samples, len(tested),
        visible=visible, refused=refused, is_pinned=proof is None or proof.is_shown,
        is_idle=askers[0].arm.is_idle, by_text=askers[0].arm.drafts_by_text,
    )  # fmt: skip
    yield Distributions(
        word, sampling, tuple(tested), pooled, control, refused,
        (askers[0].arm, askers[1].arm), clock() - began,
        scores=scores, unscored=scorer.refusal(private=private), visible=visible,
    )  # fmt: skip


async def _draw_arms(
    askers: tuple[Asker, Asker], prompt: Prompt, sampling: Sampling, pace: Pacer | None
) -> tuple[Continuations, Continuations, Continuations] | Refusal:
    """Those of the serving arm, and of the reference twice."""
    serving, reference = askers
    order = (reference, serving, reference)
    if pace is None:
        found = await asyncio.gather(
            *(_draw(asker, prompt, sampling, sampling.samples) for asker in order)
        )
    else:
        found = [await _draw_gently(asker, prompt, sampling, pace) for asker in order]
    refused = next((one for one in found if isinstance(one, Refusal)), None)
    if refused is not None:
        return refused
    first, ours, second = (one for one in found if not isinstance(one, Refusal))
    return ours, first, second


async def _draw(
    asker: Asker, prompt: Prompt, sampling: Sampling, n: int
) -> Continuations | Refusal:
    return await asker.continuations(
        prompt, n=n, tokens=sampling.tokens, temperature=sampling.temperature
    )


async def _draw_gently(
    asker: Asker, prompt: Prompt, sampling: Sampling, pace: Pacer
) -> Continuations | Refusal:
    """A few at a time, with rests."""
    drawn: list[tuple[int, ...]] = []
    prompt_ids: tuple[int, ...] | None = None
    names_pin = True
    while len(drawn) < sampling.samples:
        async with pace.turn():
            some = await _draw(asker, prompt, sampling, min(FEW, sampling.samples - len(drawn)))
        if isinstance(some, Refusal):
            return some
        drawn += some.draws
        prompt_ids = some.prompt_ids
        names_pin &= some.names_pin
    return Continuations(tuple(drawn), prompt_ids, names_pin)


def permute(
    one: Draws, other: Draws, rounds: int, random: np.random.Generator, *, held: int = _HELD
) -> np.ndarray:
    """G of the draws as they came, then of `rounds` ways of dealing them out at random.

    The sum over the places of a continuation; whole continuations are dealt, so that
    what hangs together within one stays together. One that has ended draws its end at each place
    after that: where an arm breaks off, it draws otherwise. At most `held` figures are held at a
    time.
    """
    import numpy as np

    everything = [*one, *other]
    places = [
        np.unique(
            [draw[place] if place < len(draw) else _ENDED for draw in everything],
            return_inverse=True,
        )[1]
        for place in range(1, max(map(len, everything)))
    ]
    total = np.zeros(rounds + 1)
    step = max(1, held // (_COPIES * len(everything)))
    for at in range(0, rounds + 1, step):
        deal = np.zeros((min(step, rounds + 1 - at), len(everything)), dtype=np.float32)
        deal[:, : len(one)] = 1
        first = int(at == 0)  # the draws as they came
        deal[first:] = random.permuted(deal[first:], axis=1)
        for codes in places:
            ours = deal @ np.eye(codes.max() + 1, dtype=np.float32)[codes]
            share = len(one) / len(everything)
            total[at : at + step] += _g(ours, np.bincount(codes) - ours, share)
    return total


def _g(ours: np.ndarray, theirs: np.ndarray, share: float) -> np.ndarray:
    import numpy as np

    whole = ours + theirs
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(ours > 0, ours * np.log(ours / (whole * share)), 0.0)
        b = np.where(theirs > 0, theirs * np.log(theirs / (whole * (1 - share))), 0.0)
    summed: np.ndarray = 2 * (a + b).sum(axis=1)
    return summed


def p_value(statistics: np.ndarray) -> float:
    """How often chance alone reaches the first of `statistics`."""
    return float((statistics >= statistics[0] - 1e-6).mean())


def correct_p_values(
    tested: Iterable[PromptTest], pooled: float, *, control: bool
) -> tuple[float, ...]:
    """The p-values of the prompts and, last, of all together, after Holm's correction."""
    return holm([*(one.control if control else one.p for one in tested), pooled])
