"""What draws from both arms prove, and what they cannot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specdeck.engine.divergence.statistics import Rate
from specdeck.engine.divergence.verdict import IDLE, Verdict

ALPHA = 0.01
"""The chance of accusing an honest engine in one run."""


@dataclass(slots=True)
class Shown:
    """What the draws can show at all."""

    places: int = 0
    """Compared, over all prompts; the first of a continuation comes from no draft."""
    known: int = 0
    """Prompts during which the engine told what it drafted."""
    idle: int = 0
    """Those of them during which it drafted nothing."""
    drafted: float | None = None
    """The engine's counter of drafted tokens when last looked at.

    Requests of others count in it: it may show drafts that no draw had, never hide one.
    """

    def count(self, now: float | None, draws: Sequence[tuple[int, ...]]) -> None:
        """Takes in one prompt, at whose end the counter stood at `now`."""
        self.places += max(0, min(map(len, draws)) - 1)
        if self.drafted is not None and now is not None and now >= self.drafted:
            self.known += 1
            self.idle += now == self.drafted
        self.drafted = now


def judged(p_values: Iterable[float], controls: Iterable[float]) -> Verdict:
    """Fails where a corrected p-value is low, and none of the control's is."""
    lowest, control = min(p_values), min(controls)
    if lowest >= ALPHA:
        return Verdict("pass", f"no difference was seen (p = {lowest:.2g})")
    if control < ALPHA:
        return Verdict("inconclusive", "the reference's draws differ from its own as well")
    return Verdict("fail", f"the arms draw from different distributions (p = {lowest:.2g})")


def doubted(
    judged: Verdict, shown: Shown, samples: int, prompts: int, *, by_text: bool = False
) -> Verdict:
    """What was `judged`, unless a pass rests on draws that could not have shown a difference.

    A drafter that goes `by_text` finds nothing in some of them.
    """
    if judged.word != "pass":
        return judged
    wanted, idle = samples_wanted(prompts), Rate(shown.idle, shown.known)
    if not shown.places:
        why = "no continuation has a second token, so nothing was compared"
    elif samples < wanted:
        why = f"{samples} continuations are too few to show any difference: at least {wanted} would"
    elif idle.rate == 1.0:
        why = "the serving arm drafted nothing, so speculation was not tried"
    elif (idle.rate or 0.0) > IDLE and not by_text:
        why = f"nothing was drafted during {idle.count} of {idle.of} prompts"
    elif idle.rate is None:
        return Verdict("pass", f"{judged.reason}; the engine does not say whether it drafted")
    else:
        return judged
    return Verdict("inconclusive", why)


def samples_wanted(prompts: int) -> int:
    """The fewest continuations of each of `prompts` with which a p-value can be below ALPHA.

    Draws that have nothing in common are dealt so by chance in 2 of all ways of dealing, for
    each prompt on its own; Holm's correction multiplies by the number of tests.

    >>> samples_wanted(1), samples_wanted(100)
    (6, 2)
    """
    count = 2
    while (prompts + 1) * (2 / math.comb(2 * count, count)) ** prompts >= ALPHA:
        count += 1
    return count
