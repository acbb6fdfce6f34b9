"""Who suffers: one kind of request against the others, by what it has in common.

Each dimension of the cohorts is split in two wherever words allow it, the suspected side against
all others. The split that explains most is taken first; the next ones are then compared within its
sides, so that what only goes along with it (long prompts that all ask for JSON) is not named as
well. All splits together raise `FALSE_ALARMS` at most where nothing is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from specdeck.engine.protocol.cohorts import (
    MOST_ADAPTERS,
    NONE,
    OTHER,
    Cohort,
    CohortCounts,
    sum_counts,
)
from specdeck.engine.why.causes import (
    MATERIAL,
    Cause,
    Figure,
    Finding,
    Group,
    Movement,
    Name,
    RuledOut,
    Untold,
    dismiss,
)
from specdeck.engine.why.evidence import CohortSpan, Evidence
from specdeck.engine.why.figures import (
    CONFIDENCE,
    FALSE_ALARMS,
    LEAST_REQUESTS,
    Estimate,
    Pair,
    Spread,
    difference,
    own_tokens,
)

LEAST_GAP = 0.05
"""In the share of the output that drafts bring: a cohort that is nearer to the others is none."""
_MOST_CAUSES = 4
_MOST_WORDS = 2 * MOST_ADAPTERS
"""Of a dimension that are held against the others."""
_SHARES: Final = ("0%", "1-24%", "25-49%", "50-74%", "75-100%")
_SUSPECTS: Final[dict[str, Name]] = {
    "prompt": "prompt_length",
    "cached": "cold_cache",
    "structured": "structured_output",
    "adapter": "adapter",
    "temperature": "temperature",
}
"""Dimensions that a request brings along. What comes of it (output, finish) explains nothing."""


def prompt_order(word: str) -> int:
    """Where a word for a number of tokens stands among the others.

    >>> prompt_order("256-1023") < prompt_order("1024-4095") < prompt_order("262144+")
    True
    """
    digits = word.partition("-")[0].rstrip("+")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 12 else -1


@dataclass(frozen=True, slots=True)
class Split:
    """A suspected group against all other requests."""

    name: Name
    group: Group

    def has(self, cohort: Cohort) -> bool:
        """Whether the cohort is of the group."""
        return getattr(cohort, self.group.by) in self.group.words

    def sum_sides(self, span: CohortSpan) -> tuple[CohortCounts, CohortCounts]:
        """All others of a span together, and the group."""
        sides: tuple[list[CohortCounts], list[CohortCounts]] = ([], [])
        for cohort, counts in span.cells.items():
            sides[self.has(cohort)].append(counts)
        others, group = (sum_counts(side, span.k_max) for side in sides)
        return others, group


@dataclass(frozen=True, slots=True)
class Compared:
    """One split of a span."""

    split: Split
    gap: Estimate
    """What drafts bring the others above the group, as shares of the output; for all splits."""
    shown: Estimate
    """The same with an interval of its own alone."""
    cost: Estimate
    explained: float
    worse: float
    """The share of the group."""
    few: bool = False


def list_splits(span: CohortSpan) -> list[Split]:
    """Every split that the words of a span allow, once."""
    found: dict[frozenset[Cohort], Split] = {}
    for by, name in _SUSPECTS.items():
        for group in _groups(by, _list_words(span, by)):
            split = Split(name, Group(by, group))
            inside = frozenset(filter(split.has, span.cells))
            if inside and len(inside) < len(span.cells):
                found.setdefault(inside, split)
    return list(found.values())


def _list_words(span: CohortSpan, by: str) -> set[str]:
    """The words of a dimension, of more than `_MOST_WORDS` those with the most tokens."""
    tokens: Counter[str] = Counter()
    for cohort, counts in span.cells.items():
        tokens[getattr(cohort, by)] += own_tokens(counts)
    return {word for word, _ in tokens.most_common(_MOST_WORDS)}


def _groups(by: str, words: set[str]) -> Iterator[tuple[str, ...]]:
    if by == "prompt":
        ordered = sorted(words, key=prompt_order)
        for place in range(1, len(ordered)):
            yield tuple(ordered[place:])
            yield tuple(ordered[:place])
    elif by == "cached":
        ordered = [word for word in _SHARES if word in words]
        yield from (tuple(ordered[place:]) for place in range(1, len(ordered)))
    elif by == "temperature":
        yield tuple(words & {"sampled"})
    else:
        special = sorted(words - {NONE})
        yield tuple(special)
        yield from ((word,) for word in special if len(special) > 1)


def compare_cohorts(evidence: Evidence, alike: Evidence, whole: Evidence) -> list[Finding]:
    """What each dimension has to do with acceptance; since when, by spans that are `alike` in k.

    How much of the traffic a group is goes by the `whole` ones: what is left of an answer where
    spans are cut goes with acceptance.
    """
    span = evidence.span.comparable()
    if not span.cells:
        return [Untold(name, "no_drafts") for name in _SUSPECTS.values()]
    if span.total.requests < 2 * LEAST_REQUESTS:
        return [Untold(name, "few_requests") for name in _SUSPECTS.values()]
    taken, compared = search_splits(span, evidence.spread)
    causes: list[Finding] = [make_cause(one, alike, whole) for one in taken]
    named = {one.split.name for one in taken}
    for by, name in _SUSPECTS.items():
        if name not in named:
            causes.append(_dismiss(by, name, span, [o for o in compared if o.split.name == name]))
    return causes


def search_splits(span: CohortSpan, spread: Spread) -> tuple[list[Compared], list[Compared]]:
    """The splits that make a difference, the most telling first; and all others."""
    splits = list_splits(span)
    taken: list[Compared] = []
    while True:
        within = [one.split for one in taken]
        left = [split for split in splits if split not in within]
        found = [
            one
            for split in left
            if (one := compare_split(span, spread, split, within, len(splits))) is not None
        ]
        telling = [one for one in found if is_telling(one)]
        if not telling or len(taken) == _MOST_CAUSES:
            break
        taken.append(max(telling, key=lambda one: one.explained))
    # Each once more within all the others, which were not known when it was found.
    settled = []
    for one in taken:
        others = [other.split for other in taken if other is not one]
        again = compare_split(span, spread, one.split, others, len(splits))
        settled.append(again if again is not None and is_telling(again) else one)
    return settled, found


def is_telling(one: Compared) -> bool:
    """Whether a split is a cause: beyond chance, and worth a word."""
    return (
        not one.few
        and one.gap.low > 0
        and one.gap.value >= LEAST_GAP
        and one.cost.value >= MATERIAL
    )


def compare_split(
    span: CohortSpan, spread: Spread, split: Split, within: Sequence[Split], comparisons: int
) -> Compared | None:
    """One split, within the sides of others; None where no stratum has both of its sides."""
    strata: dict[tuple[bool, ...], tuple[list[CohortCounts], list[CohortCounts]]] = {}
    for cohort, counts in span.cells.items():
        sides = strata.setdefault(tuple(one.has(cohort) for one in within), ([], []))
        sides[split.has(cohort)].append(counts)
    both = [
        (sum_counts(better, span.k_max), sum_counts(worse, span.k_max))
        for better, worse in strata.values()
        if better and worse
    ]
    pairs = [Pair(spread.trials(better), spread.trials(worse)) for better, worse in both]
    if not pairs or not all(p.better.of and p.worse.of for p in pairs):
        return None
    confidence = 1 - 2 * FALSE_ALARMS / max(1, comparisons)
    gap, shown = difference(pairs, confidence), difference(pairs, CONFIDENCE)
    weight = sum(own_tokens(worse) for _, worse in both) / max(1, own_tokens(span.total))
    requests = [sum(pair[side].requests for pair in both) for side in (0, 1)]
    return Compared(
        split, gap, shown, cost_of(span, shown, weight),
        _sum_explained_gap(pairs), sum(p.worse.met for p in pairs) / sum(p.worse.of for p in pairs),
        min(requests) < LEAST_REQUESTS,
    )  # fmt: skip


def _sum_explained_gap(pairs: Sequence[Pair]) -> float:
    """How much of what differs between requests the split accounts for."""
    found = 0.0
    for pair in pairs:
        gap = pair.better.rate - pair.worse.rate
        harmonic = pair.better.of * pair.worse.of / (pair.better.of + pair.worse.of)
        found += harmonic * gap * abs(gap)
    return found


def cost_of(span: CohortSpan, gap: Estimate, weight: float) -> Estimate:
    """The share of the speed that a gap takes from requests with the share `weight` of the tokens.

    A token that a draft does not bring takes a step of its request.
    """
    total = span.total
    steps = max(0.01, 1 - total.accepted / max(1, own_tokens(total)))
    ends = (gap.value, gap.low, gap.high)
    return Estimate(*(max(-1.0, min(0.95, weight * end / steps)) for end in ends))


def make_cause(one: Compared, alike: Evidence, whole: Evidence) -> Cause:
    """A telling split as a cause, with what the baseline says of it."""
    return Cause(
        one.split.name,
        Figure("output_from_drafts", one.worse, one.worse + one.gap.value),
        one.shown,
        one.cost,
        one.split.group,
        find_movement(one.split, alike, whole),
    )


def find_movement(split: Split, alike: Evidence, whole: Evidence) -> Movement:
    """Whether the group fell, or grew, or has always been so."""
    if alike.baseline is None or whole.baseline is None:
        return "unknown"
    now, then = alike.span.comparable(), alike.baseline.span.comparable()
    if not then.cells:
        return "unknown"
    group, group_then = (split.sum_sides(span)[True] for span in (now, then))
    share, share_then = (
        own_tokens(split.sum_sides(span)[True]) / max(1, own_tokens(span.total))
        for span in (whole.span.comparable(), whole.baseline.span.comparable())
    )
    grew = share - share_then
    if group_then.requests < LEAST_REQUESTS:
        return "more" if grew >= _GREW else "unknown"
    if fell(group_then, group, alike):
        return "fell"
    return "more" if grew >= _GREW else "always"


_GREW = 0.1
"""Of all tokens, by which a group is more of the traffic than before."""


def fell(then: CohortCounts, now: CohortCounts, evidence: Evidence) -> bool:
    """Whether drafts bring the same requests less from `then` to `now`, beyond chance."""
    baseline = evidence.baseline
    if baseline is None:
        return False
    spread = baseline.spread if baseline.spread.tokens is not None else evidence.spread
    pair = Pair(spread.trials(then), evidence.spread.trials(now))
    if not pair.better.of or not pair.worse.of:
        return False
    found = difference([pair], 1 - 2 * FALSE_ALARMS)
    return found.low > 0 and found.value >= LEAST_GAP


def _dismiss(by: str, name: Name, span: CohortSpan, compared: Iterable[Compared]) -> Finding:
    worst = max(compared, key=lambda one: one.cost.value, default=None)
    if worst is not None:
        if worst.few:
            return Untold(name, "few_requests", worst.cost)
        return dismiss(name, worst.cost, worst.split.group)
    words = {getattr(cohort, by) for cohort in span.cells} - {OTHER}
    usual: Callable[[str], bool] = {NONE, "greedy", "0%"}.__contains__
    if by != "prompt" and all(map(usual, words)):
        return RuledOut(name, None)  # there is none of it
    return Untold(name, "no_contrast")
