"""How much more the arms differ than the reference differs from itself: the excess over the floors.

An honest engine differs from itself: from one ask to the next (*repeat*), alone and among others
(*batch*), and between one row a step and several (*shape*), which is how drafts are verified. So
what is weighed is not how often the arms differ, but how much more often two answers of different
arms differ than two of one arm, prompt by prompt. An answer may be of either arm where nothing is
wrong, so that changing the labels within a prompt gives the distribution of chance. The reference's
own answers, fed through the target in one pass, are a third arm: what these differ by is shape.

Of a prompt only the pattern of equal answers counts, and there are few of these: a run keeps how
often each occurred.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist
from typing import Any

from specdeck.engine.divergence.statistics import CONFIDENCE, exact_interval
from specdeck.engine.protocol.codec import WrongType

Tokens = Sequence[int]
Flip = tuple[int, int] | None
"""Where a look disagrees first with the answer that it was fed, and its token there."""

POWER = 0.8
"""The chance with which as many prompts as are asked for settle it."""
SIGNIFICANT = 0.01
"""An excess that chance makes less often than this is one."""
_FEWEST = 5
"""Prompts that differ where nothing is noisy: chance puts like answers in one arm 1 in 3 times."""
_SHAPE_SHOWS = 0.1
"""The other shape is a floor of its own where chance makes as much less often than this, and looks
have shapes of their own where they vary as much."""
_SURELY = 0.001
"""Serving has noise that the reference lacks where chance makes as much less often than this: it
hides a real excess as often."""
_DRAWS = 10_000
_SEED = 20
_UNIT = 144
"""Excesses of a prompt are multiples of one over this, with up to four answers of each arm."""
_BEYOND = 1e-12
"""The chance of a sum that is taken for another one."""
_PATTERN = re.compile(r"[a-z]{1,4}\.[a-z]{1,4}\.[a-z]{0,4}")
MORE_ASKS = 1.0, 1.1
"""Asks besides the four of a prompt, on average: up to the first two more of each arm, up to the
second one more. With those of the reference alone, 1 in 16, it is 1.29 of the four at most."""


def more_asks(spent: int, prompts: int) -> int:
    """How often each arm is asked again where answers differ, after `spent` more in `prompts`.

    >>> more_asks(0, 1), more_asks(105, 100), more_asks(111, 100)
    (2, 1, 0)
    """
    least, most = (share * prompts for share in MORE_ASKS)
    return 2 if spent < least else 1 if spent < most else 0


def group_answers(
    reference: Sequence[Tokens], serving: Sequence[Tokens], looks: Sequence[Flip] = ()
) -> str:
    """The pattern of a prompt: a letter for each answer, the same for the same answer.

    `looks` are of the first answer of the reference, fed through the target in one pass.

    >>> group_answers([(1, 2), (1, 2)], [(1, 2), (1, 3)], [(1, 3), None])
    'aa.ab.ba'
    """
    answers = [tuple(one) for one in (*reference, *serving)]
    letters: dict[object, str] = {}

    def letter(key: object) -> str:
        return letters.setdefault(key, chr(ord("a") + len(letters)))

    ours = "".join(map(letter, answers[: len(reference)]))
    theirs = "".join(map(letter, answers[len(reference) :]))
    fed = "".join(letter(_find_answer(answers, flip)) for flip in looks)
    return f"{ours}.{theirs}.{fed}"


def check_pattern(text: str) -> None:
    """Raises WrongType for what `group_answers` never gives.

    >>> check_pattern("aa.ab.ba")
    """
    if not _PATTERN.fullmatch(text):
        raise WrongType("there is a pattern of no answers")


def _find_answer(answers: Sequence[tuple[int, ...]], flip: Flip) -> object:
    """The answer that a look stands for: the first one that leaves the first where it does."""
    fed = answers[0]
    if flip is None:
        return fed
    place, token = flip
    start = (*fed[:place], token)
    return next((one for one in answers if one[: place + 1] == start), flip)


def is_noisy(pattern: str) -> bool:
    """Whether anything differs: such a prompt is asked once more.

    >>> is_noisy("aa.aa.a"), is_noisy("aa.aa.b")
    (False, True)
    """
    return len(set(pattern) - {"."}) > 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """An excess, as a share of prompts."""

    value: float
    ci95: tuple[float, float]
    upper: float
    """Below it with 95 %."""
    p: float
    """The chance of as much or more where the arms are alike."""
    spread: float
    """The standard deviation of one prompt."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a report."""
        return {"rate": self.value, "ci95": list(self.ci95), "upper95": self.upper, "p": self.p}


@dataclass(frozen=True, slots=True)
class Excess:
    """How much more often the arms differ than the floors explain."""

    prompts: int
    over_repeat: Estimate
    """Over what either arm differs from itself by."""
    over_shape: Estimate | None
    """Over what the reference differs from itself by in another shape; None where nothing is."""

    has_noise: bool
    """Whether an arm differed from itself anywhere."""

    serving_varies: bool = False
    """Whether the serving arm differed from itself beyond chance more often than the reference: a
    floor that the reference's own do not show."""

    over_look: Estimate | None = None
    """Over what the first look at an answer differs from it by, where looks vary themselves: none
    of the shapes that the reference was looked at in is then the floor of the others."""

    doubts: tuple[float, ...] = ()
    """The chances of as much beyond floors that are too uncertain to lower the excess, and may be
    high enough to explain it: another shape that few looks can have shown, noise of the serving
    arm's own."""

    @property
    def least(self) -> Estimate:
        """Over the higher of the floors."""
        return min(self._estimates, key=lambda one: one.value)

    @property
    def upper(self) -> float:
        """Below it with 95 %."""
        return min(one.upper for one in self._estimates)

    @property
    def p(self) -> float:
        """The chance of as much where there is no more than noise: of any floor, if several."""
        most = min(1.0, len(self._estimates) * max(one.p for one in self._estimates))
        return max(most, *self.doubts) if self.doubts else most

    @property
    def _estimates(self) -> tuple[Estimate, ...]:
        every = self.over_repeat, self.over_shape, self.over_look
        return tuple(one for one in every if one is not None)

    def detectable(self, threshold: float) -> float:
        """The excess that as many prompts would have made a fail, with a chance of 80 %."""
        z, root = NormalDist().inv_cdf, math.sqrt(self.prompts)
        spread = self.least.spread
        needed = max(threshold, z(1 - SIGNIFICANT) * spread / root, _FEWEST / self.prompts)
        found = needed
        for _ in range(20):  # a higher excess varies more itself
            found = needed + z(POWER) * math.sqrt(spread**2 + min(found, 0.5)) / root
        return min(1.0, found)

    def as_json(self, threshold: float) -> dict[str, Any]:
        """Plain values, for a report."""
        shape, look = self.over_shape, self.over_look
        return {
            **self.least.as_json(),
            "upper95": self.upper,
            "p": self.p,
            "detectable80": self.detectable(threshold),
            "over_repeat": self.over_repeat.as_json(),
            "over_shape": None if shape is None else shape.as_json(),
            "over_look": None if look is None else look.as_json(),
        }


def weigh_excess(patterns: Mapping[str, int]) -> Excess | None:
    """The excess in so many prompts of each pattern; None of nothing."""
    prompts = sum(patterns.values())
    if not prompts:
        return None
    counts = list(patterns.values())
    split = [pattern.split(".") for pattern in patterns]
    over = [_excess(ours, theirs) for ours, theirs, _ in split]
    total = sum(value * count for value, count in zip(over, counts, strict=True))
    first = _estimate(over, counts, _chance(patterns, total))
    noisy = any(len(set(arm)) > 1 for ours, theirs, fed in split for arm in (ours + fed, theirs))
    shape = [_excess(ours, fed) if fed else 0.0 for ours, _, fed in split]
    beyond = alike = None
    doubts = []
    shows = _estimate(shape, counts, None).p <= _SHAPE_SHOWS
    # A shape that few looks can have shown explains as much as these leave open: of an engine
    # whose numbers vary anywhere, a few prompts that all look alike prove nothing.
    if shows or noisy:
        left = [whole - part for whole, part in zip(over, shape, strict=True)]
        found = _estimate(left, counts, None)
        beyond = found if shows else None
        doubts += [] if shows else [found.p]
    if _looks_vary(split, counts):
        alike = _estimate([_beyond_first_look(*one) for one in split], counts, None)
    varies = _serving_varies(split, counts)
    if varies:
        own = [_across(ours, theirs) - (_unlike(theirs) or 0.0) for ours, theirs, _ in split]
        doubts.append(_estimate(own, counts, None).p)
    return Excess(prompts, first, beyond, noisy, varies, alike, tuple(doubts))


def _serving_varies(split: Sequence[Sequence[str]], counts: Sequence[int]) -> bool:
    """Whether the serving arm differs from itself beyond chance more often than the reference.

    Its steps have other numbers of rows, which change from ask to ask, where each of the
    reference's has one: then two of its answers differ as those of the two arms do.
    """
    more = [(_unlike(theirs) or 0.0) - (_unlike(ours) or 0.0) for ours, theirs, _ in split]
    return any(value > 0 for value in more) and _estimate(more, counts, None).p <= _SURELY


def _looks_vary(split: Sequence[Sequence[str]], counts: Sequence[int]) -> bool:
    """Whether looks at one answer differ more than answers that are asked again.

    Those are compared that came after the prompt was known for a noisy one, so that neither
    were chosen for their differences.
    """
    found = [
        (vary - (_unlike(ours[2:]) or 0.0) / 2 - (_unlike(theirs[2:]) or 0.0) / 2, count)
        for (ours, theirs, fed), count in zip(split, counts, strict=True)
        if len(ours) == 4 and (vary := _unlike(fed[1:])) is not None
    ]
    if not found:
        return False
    values, times = zip(*found, strict=True)
    return _estimate(values, times, None).p <= _SHAPE_SHOWS


def _beyond_first_look(ours: str, theirs: str, fed: str) -> float:
    """How much more often the first two of serving leave the reference than its first look does.

    Looks of several shapes leave it as often as verification, and each other as well, which is
    no repetition: what they have in common would be too low a floor. None of these three is
    there because another differed.

    >>> _beyond_first_look("aa", "bb", "abab"), _beyond_first_look("aa", "ab", "baaa")
    (1.0, -0.5)
    """
    first = ours[0]
    mine = sum(one != first for one in theirs[:2]) / len(theirs[:2])
    return mine - (fed[0] != first) if fed else mine


def prompts_wanted(found: Excess, threshold: float) -> int | None:
    """How many prompts would settle it with a chance of 80 %, if all stays; None if none would.

    >>> prompts_wanted(weigh_excess({"aa.aa.a": 20}), 0.015)
    199
    """
    # Less than none is an accident, and none to be counted on again.
    value, spread = max(0.0, found.least.value), found.least.spread
    room = abs(threshold - value)
    if room < threshold / 20:
        return None
    if found.has_noise:  # a little of it may not have shown itself
        spread = math.sqrt((found.prompts * spread**2 + 1) / (found.prompts + 1))
    if value > threshold:
        return max(_prompts(value, SIGNIFICANT, spread), _prompts(room, 0.5, spread))
    least = math.log(1 - CONFIDENCE) / math.log(1 - threshold)
    return max(math.ceil(least), _prompts(room, 1 - CONFIDENCE, spread))


def _prompts(room: float, tail: float, spread: float) -> int:
    """How many have a chance of 80 % to keep a bound within `room` of the value."""
    z = NormalDist().inv_cdf
    part = (z(1 - tail) + z(POWER)) * spread
    # The bounds count one prompt of the worst kind more than there was.
    return math.ceil(((part + math.sqrt(part**2 + 4 * room)) / (2 * room)) ** 2)


@lru_cache(maxsize=4096)
def _excess(ours: str, theirs: str) -> float:
    """How much likelier answers of two arms differ than two of the same, in one prompt.

    >>> _excess("aa", "bb"), _excess("aa", "ab"), _excess("ab", "ab"), _excess("aaa", "b")
    (1.0, 0.0, -0.5, 1.0)
    """
    across = _across(ours, theirs)
    within = [part for part in map(_unlike, (ours, theirs)) if part is not None]
    return across - sum(within) / len(within) if within else across


def _across(ours: str, theirs: str) -> float:
    """The share of pairs of both arms that differ."""
    return sum(a != b for a in ours for b in theirs) / (len(ours) * len(theirs))


def _unlike(answers: str) -> float | None:
    """The share of pairs that differ; None of a single answer."""
    pairs = list(combinations(answers, 2))
    return sum(a != b for a, b in pairs) / len(pairs) if pairs else None


def _estimate(values: Sequence[float], counts: Sequence[int], p: float | None) -> Estimate:
    import numpy as np  # on nobody's way to a first paint

    every, weights = np.array(values), np.array(counts, dtype=float)
    value, place = np.unique(every, return_inverse=True)
    weight = np.bincount(place, weights)
    whole = weight.sum()
    mean = float(value @ weight / whole)
    spread = float(np.sqrt(max(0.0, value**2 @ weight / whole - mean**2)))
    tail = (1 - CONFIDENCE) / 2
    if set(value) <= {0.0, 1.0}:
        count, of = round(mean * whole), round(whole)
        ends = exact_interval(count, of, CONFIDENCE)
        upper = exact_interval(count, of, 2 * CONFIDENCE - 1)[1]
        # What is resampled below is as low as 0 with this chance.
        return Estimate(mean, ends, upper, 0.5**count if p is None else p, spread)
    lows, highs = _resample(value, weight)
    return Estimate(
        value=mean,
        ci95=(float(np.quantile(lows, tail)), float(np.quantile(highs, 1 - tail))),
        upper=float(np.quantile(highs, CONFIDENCE)),
        p=float(np.mean(lows <= 0)) if p is None else p,
        spread=spread,
    )


def _resample(value: Any, weight: Any) -> tuple[Any, Any]:
    """Means of prompts weighed at random, with one more of the worst kind, and of the best.

    The Bayesian bootstrap with the bounds of Gaffke: of prompts that differ or do not, its
    quantiles are those of Clopper and Pearson, so that a few prompts never prove too much.
    """
    import numpy as np

    random = np.random.default_rng(_SEED)
    drawn = random.standard_gamma(weight, size=(_DRAWS, len(weight)))
    extra = random.standard_gamma(1.0, size=_DRAWS)
    sums, whole = drawn @ value, drawn.sum(axis=1) + extra
    return (sums - extra) / whole, (sums + extra) / whole


def _chance(patterns: Mapping[str, int], total: float) -> float:
    """The chance of as high a sum over all prompts, were each answer of either arm.

    Exact but for `_BEYOND`: sums are told apart that lie no farther out than any can be expected.
    """
    import numpy as np

    counts: Counter[tuple[int, ...]] = Counter()
    for name, count in patterns.items():
        if is_noisy(name) and any(values := _relabel(*name.split(".")[:2])):
            counts[tuple(sorted(values))] += count  # few, however many patterns there are
    if not counts:
        return 1.0
    unit = math.gcd(*(value for values in counts for value in values))
    least, most = _reach(counts)
    # Beyond the reach the sums come around, and there are none of them.
    size = 1 << ((most - least) // unit + 2).bit_length()
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    for values, count in counts.items():
        one = np.zeros(size)
        for value in values:
            one[value // unit % size] += 1 / len(values)
        spectrum *= np.fft.rfft(one) ** count
    chances = np.fft.irfft(spectrum, size)
    sums = np.arange(least // unit, least // unit + size)
    wanted = round(total * _UNIT) / unit
    return float(min(1.0, max(0.0, chances[sums[sums >= wanted] % size].sum())))


def _reach(counts: Mapping[tuple[int, ...], int]) -> tuple[int, int]:
    """Between which sums all lie but one in 1 / `_BEYOND`, by Bernstein's inequality, in units.

    Each of the `counts` values is as likely as the others of its tuple.
    """
    mean = variance = least = most = 0.0
    widest = 1.0
    for values, count in counts.items():
        middle = sum(values) / len(values)
        mean += count * middle
        variance += count * sum((value - middle) ** 2 for value in values) / len(values)
        least, most = least + count * min(values), most + count * max(values)
        widest = max(widest, max(values) - middle, middle - min(values))
    log = math.log(2 / _BEYOND)
    away = widest * log / 3
    away += math.sqrt(away**2 + 2 * variance * log)
    return math.floor(max(least, mean - away)), math.ceil(min(most, mean + away))


@lru_cache(maxsize=4096)
def _relabel(ours: str, theirs: str) -> tuple[int, ...]:
    """The excesses, in units, if the answers were of other arms: all ways, equally likely.

    The first two of each arm change places among themselves; what was asked besides, as the
    first differed, changes among itself.

    >>> sorted(_relabel("aa", "bb"))
    [-72, -72, -72, -72, 144, 144]
    """
    first, more = ours[:2] + theirs[:2], ours[2:] + theirs[2:]
    return tuple(
        round(_excess(mine + a, yours + b) * _UNIT)
        for mine, yours in _halves(first)
        for a, b in _halves(more)
    )


def _halves(answers: str) -> Iterator[tuple[str, str]]:
    """Every way to give half of the answers to one arm, and the rest to the other."""
    for chosen in combinations(range(len(answers)), len(answers) // 2):
        mine = "".join(answers[n] for n in chosen)
        yield mine, "".join(one for n, one in enumerate(answers) if n not in chosen)
