"""What the steps so far have taught: acceptance by position, step times by batch size and k.

Position i of a draft is counted among the steps whose drafts were to be i tokens or longer,
given that position i - 1 was accepted: with k moving, any other denominator would
understate the deep positions. The products of these shares are the expected tokens of
every k, smaller ones included, at no cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import exp, inf, sqrt
from operator import attrgetter, itemgetter
from typing import Any

from specdeck.engine.policy.cost import MIDDLE, NO_PROMPTS, Row, StepTimes
from specdeck.engine.policy.intervals import ratio
from specdeck.engine.policy.prompts import PromptMix
from specdeck.engine.policy.step import Elapsed, Step
from specdeck.engine.policy.table import BOUNDS, BUCKETS, BY_SIZE, bucket, first
from specdeck.engine.protocol.tuning import CurvePoint

BLOCK_STEPS = 8
"""Steps that are taken in together, so that a step itself costs next to nothing."""

_verified = attrgetter("verified")
_COLUMNS: Callable[[list[Any]], tuple[Any, ...]] = itemgetter(
    *map(Step._fields.index, ("requests", "seconds", "prefill", "settled"))
)
_SIZES = len(BY_SIZE)


class Estimates:
    """Shared by the policy and the breaker of one engine; outlives a change of policy."""

    def __init__(self, k_max: int, memory_steps: int = 400) -> None:
        self.k_max = k_max
        self.acceptance = Acceptance(k_max, memory_steps)
        self.times = StepTimes()
        self.now = 0.0
        """Seconds since the first step, by a clock that does not jump."""
        self.closed = False
        """Whether the last step completed a block, so that there is something new to know."""
        self.shifted = False
        """Whether the text turned out to have changed in that block."""
        self.bucket = 0
        """Of the batch sizes of late: one that is left for a step or two counts no more."""
        self.size = 1.0
        """The mean batch size of the last block."""
        self.prompts = PromptMix()
        self.block_steps = BLOCK_STEPS
        """Steps of a block, at most; fewer where somebody looks at the text and at nothing else."""
        self._elapsed = Elapsed()
        self._k = -1
        self._block: list[Step] = []
        """Steps of nearly one batch size and one k that are still to be taken in."""
        self._unmerged: list[Step] = []
        """Those whose acceptance is still to be taken in: it belongs to no k in particular."""
        self._t = 0.0
        self._ahead = self._chance = self._odd = 0.0
        """Accepted tokens since the last block beyond the expected, the variance of
        that, and what is added to it."""
        self._costs: list[tuple[float, float] | None] = []
        """By k, as far as somebody asked: a policy without a choice asks for one or two."""
        self._row: Row | None = None
        self._rows = False
        """Whether whoever chooses asks for all k's, so that one is not found apart."""
        self._prompt_cost: float | None = None
        self._costs_of: tuple[int, int, int] | None = None
        """The bucket and the versions that these are of."""
        self._basis: tuple[float, list[float]] = (1.0, [])
        """The batch size, and the expected tokens by k, that they are found with."""

    def add(self, step: Step) -> None:
        """Learns from a step."""
        requests, k, verified = step.requests, step.k, step.verified
        here = BY_SIZE[requests] if requests < _SIZES else BUCKETS - 1
        self.closed = self.shifted = False
        if k != self._k or not -1 <= here - self.bucket <= 1:
            self._close()
            self._k = k
            if not -1 <= here - self.bucket <= 1:
                self.bucket, self.size = here, requests
        block = self._block
        block.append(step)
        self._t = step.t
        drafts = step.drafts
        if len(block) >= self.block_steps:
            self._close()
        elif drafts:
            # Whether so much more or less is accepted since the last block that the text has
            # changed: many drafts at once show that in a few steps.
            known, most = self.acceptance, self.k_max
            at = verified if verified < most else most
            ahead = self._ahead = self._ahead + step.accepted - drafts * (known.expected[at] - 1)
            chance = self._chance = self._chance + drafts * known.variances[at]
            odd = self._odd = _ODD2 * verified * verified
            if ahead * ahead > _SURPRISE2 * chance + odd:
                self._close()

    def look(self, t: float) -> None:
        """Has time pass to `t` without a step."""
        self._t, self.now = t, self._elapsed.at(t)

    def costs(self, here: int) -> Row | None:
        """By k to k_max: seconds of a step at the batch sizes of `here`, and relative errors.

        The prompts that steps carry of late are in it, as far as they would come at each k.
        None before any step. Not to be changed.
        """
        if not self.times.version:
            return None
        self._look_at(here)
        if self._row is None:
            self._row = self._find_row(here)
            self._rows = True
        return self._row

    def shapes(self) -> list[list[float] | None]:
        """By bucket, then k to k_max, what a step takes far from all that was measured.

        Up to a factor that all k's of a bucket share; None where `costs` has to tell.
        """
        if self.prompts.any:
            return [None] * BUCKETS
        return self.times.shapes(self.k_max)

    def _find_row(self, here: int) -> Row:
        if not self.prompts.any:
            return self.times.expect_plain(here, self._basis[0], self.k_max)
        found = [self._cost(here, k) for k in range(self.k_max + 1)]
        return [spent for spent, _ in found], [error for _, error in found]

    def cost(self, here: int, k: int) -> tuple[float, float] | None:
        """Seconds of a step at one k and their relative error, as `costs` has them."""
        if not self.times.version:
            return None
        self._look_at(here)
        if self._rows and self._row is None:
            self._row = self._find_row(here)
        return self._cost(here, k)

    def prompt_cost(self, here: int) -> float:
        """What a prompt token adds to a target-only step, seconds; 0 without prompts."""
        if not self.times.version:
            return 0.0
        self._look_at(here)
        if self._prompt_cost is None:
            self._prompt_cost = self._find_prompt_cost(here)
        return self._prompt_cost

    def _look_at(self, here: int) -> None:
        """Forgets what was found of other batch sizes, and before the last block."""
        at = (here, self.times.version, self.prompts.version)
        if at != self._costs_of:
            self._costs_of = at
            size = self.size if here == self.bucket else MIDDLE[here]
            self._basis = (size, self.acceptance.expected)
            self._costs = [None] * (self.k_max + 1)
            self._row = self._prompt_cost = None

    def _cost(self, here: int, k: int) -> tuple[float, float]:
        if self._row is not None:
            return self._row[0][k], self._row[1][k]
        found = self._costs[k]
        if found is None:
            size, expected = self._basis
            kinds = self.prompts.kinds(expected[k])
            spent, error2 = self.times.expect(here, size, k, kinds)
            found = self._costs[k] = spent, sqrt(error2)
        return found

    def _find_prompt_cost(self, here: int) -> float:
        laden = self.prompts.kinds(1.0)[-1][1]
        if not laden:
            return 0.0
        size = self.size if here == self.bucket else MIDDLE[here]
        more, _ = self.times.expect(here, size, 0, ((1.0, laden),))
        less, _ = self.times.expect(here, size, 0, NO_PROMPTS)
        return max(0.0, more - less) / laden

    def _close(self) -> None:
        if not self._block:
            return
        block, self._block = self._block, []
        self.now = self._elapsed.at(self._t)
        # Columns of named tuples cost a tenth of as many looks at each.
        columns = _COLUMNS(list(zip(*block, strict=True)))
        requests, seconds, prefill, settled = columns
        self.size = size = sum(requests) / len(block)
        if (
            not first(self.bucket) - 0.5 - size / 20
            <= size
            <= BOUNDS[self.bucket] + 0.5 + size / 20
        ):
            self.bucket = bucket(round(size))
        laden = any(prefill)
        if not laden and all(settled) and None not in seconds:
            self._time(requests, seconds, ())
        else:
            timed = [each for each in zip(*columns, strict=True) if each[3] and each[1] is not None]
            for kind in (False, True):
                if alike := [each for each in timed if bool(each[2]) == kind]:
                    sizes, spent, prompts, _ = zip(*alike, strict=True)
                    self._time(sizes, spent, prompts if kind else ())
        if laden or self.prompts.any:
            self.prompts.add(block)
        self._unmerged += block
        surprise = self._ahead * self._ahead > _SURPRISE2 * self._chance + self._odd
        if surprise or len(self._unmerged) >= BLOCK_STEPS:
            if surprise:
                fresh = max(1, _FRESH_DRAFTS // max(1, block[-1].drafts))
                self._unmerged = self._unmerged[-fresh:]
            self._count(self._unmerged)
            self._unmerged = []
            self._ahead = self._chance = 0.0
            self.shifted = self.acceptance.merge(anew=surprise)
        self.closed = True

    def _time(self, sizes: Sequence[int], seconds: Sequence[float], prompts: Sequence[int]) -> None:
        """Takes in what settled steps took, all of them with prompts or all without."""
        mean: float = sizes[0]
        if sizes.count(sizes[0]) == len(sizes):
            sizes = ()
        else:
            mean = sum(sizes) / len(sizes)
        self.times.add(self.bucket, mean, self._k, seconds, self.now, sizes=sizes, prompts=prompts)

    def _count(self, unmerged: Sequence[Step]) -> None:
        """Has the drafts of steps counted, those of one length together."""
        lengths = list(map(_verified, unmerged))
        if lengths.count(lengths[0]) == len(lengths):
            self._count_alike(lengths[0], unmerged)
            return
        for verified, alike in groupby(sorted(unmerged, key=_verified), _verified):
            self._count_alike(verified, list(alike))

    def _count_alike(self, verified: int, steps: Sequence[Step]) -> None:
        if verified:
            chances = sum([step.drafts if step.prefill else max(0, step.alone) for step in steps])
            columns = zip(*[step.accepted_per_position for step in steps], strict=False)
            deepest = min(verified, self.k_max)
            self.acceptance.add(chances, deepest, map(sum, columns), steps=len(steps))


_SURPRISE2 = 16.0
"""Squared standard errors by which the accepted tokens of a few steps tell of another text."""
_ODD2 = 4.0
"""What is added to that, in squared drafts: one odd draft or two tell nothing."""
_FRESH_DRAFTS = 24
"""The last drafts of those, which are taken to be of the new text."""
_FAST_STEPS = 12
_MIDDLE_STEPS = 48
"""A change that few drafts at a time cannot show, since one stream makes one in a step."""
_NEGLECTED = 0.1
"""How fast a position that is not drafted ages, beside one that is."""

_PRIOR = 0.5
_PRIOR_DRAFTS = 2.0
_SHIFT = 16.0
_SHIFT_MORE = 3.0
"""Squared standard errors, over all positions, by which lately and before must differ to be two
kinds of text; and what each position beyond the first adds to that."""
_FEWEST = 5.0
_ALIKE_DRAFTS = 10.0
"""Drafts of a window from which the requests they come from are fewer than they."""
_OVERDISPERSION = 2.0
"""Tokens of one request are alike, so a window says less than its number of drafts."""
_TEXTS = 4
"""Kinds of text that are remembered."""
_KNOWN_DRAFTS = 48.0
"""Drafts that a kind of text rests on to be worth that."""
_ALIKE = 4.0
"""Squared standard errors, of a position on average, below which two windows are of one text."""
_REMEMBERED = 0.5
"""What the drafts of then count now."""


class Acceptance:
    """Windows of three lengths over the positions of the drafts.

    The long one is the estimate. When a shorter one disagrees with it beyond chance, the
    text has changed, and the long one is started again from the shortest.
    """

    def __init__(self, k_max: int, memory_steps: int = 400) -> None:
        self._k_max = k_max
        self._memory = memory_steps
        self._block: list[list[float]] = [[0, 0] for _ in range(k_max)]
        self._steps = 0
        self._factors: dict[int, tuple[float, float, float, float]] = {}
        """What `_fade` found, by steps: a merge takes in 8 of them, or a few more."""
        self._slow: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self._fast: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self._middle: list[list[float]] = [[0.0, 0.0] for _ in range(k_max)]
        self._texts: deque[list[list[float]]] = deque(maxlen=_TEXTS)
        """The long windows of kinds of text that were there before, the last one last."""
        self.survival: list[float] = []
        """Expected share of requests whose draft is accepted up to each position."""
        self.expected: list[float] = []
        """Expected committed tokens of a request in one step, for k = 0…k_max."""
        self.variances: list[float] = []
        """Of the accepted tokens of a draft, for k = 0…k_max."""
        self._estimate()

    def add(self, chances: int, verified: int, accepted: Iterable[int], *, steps: int = 1) -> None:
        """Counts steps: `chances` requests that could have had a draft of `verified` tokens.

        `accepted` has how many did accept each position, both summed over the `steps`.
        """
        self._steps += steps
        before: float = chances
        for counts, here in zip(self._block[:verified], accepted, strict=False):
            counts[0] += before
            if here < before:  # no more can be accepted than were there
                before = here
            counts[1] += before

    def merge(self, *, anew: bool = False) -> bool:
        """Takes the counted steps into the windows; whether the text has changed.

        `anew` says that it has: only the counted steps are of the present one. A short window
        disagrees with the long one by standard errors, squared: an exponential window whose
        weights add up to n spreads like one of 2 n equal ones. Many drafts at once come from
        few requests, so that their count overstates what they say.
        """
        steps, self._steps = self._steps, 0
        if not steps:
            return False
        factors = self._factors.get(steps)
        if factors is None:
            factors = self._factors[steps] = self._fade(steps)
        slow, medium, fast, neglected = factors
        drafted, short_apart, middle_apart = 0, 0.0, 0.0
        blank = not self._slow[0][0]
        for counts, long, middle, short in zip(
            self._block, self._slow, self._middle, self._fast, strict=True
        ):
            chances, accepted = counts
            if not chances:
                long[0] *= neglected
                long[1] *= neglected
                continue
            known = long[0] = long[0] * slow + chances
            kept = long[1] = long[1] * slow + accepted
            drafts = middle[0] = middle[0] * medium + chances
            middle[1] = middle[1] * medium + accepted
            fresh = short[0] = short[0] * fast + chances
            short[1] = short[1] * fast + accepted
            drafted += 1
            if known >= _FEWEST:
                p = (kept + 1) / (known + 2)
                spread, rest = p * (1 - p), 1 / known
                if fresh >= _FEWEST:
                    apart = short[1] / fresh - p
                    apart = apart * apart / (spread * (1 / (2 * fresh) + rest))
                    many = fresh > _ALIKE_DRAFTS
                    short_apart += apart / sqrt(fresh / _ALIKE_DRAFTS) if many else apart
                if drafts >= _FEWEST:
                    apart = middle[1] / drafts - p
                    apart = apart * apart / (spread * (1 / (2 * drafts) + rest))
                    many = drafts > _ALIKE_DRAFTS
                    middle_apart += apart / sqrt(drafts / _ALIKE_DRAFTS) if many else apart
        limit = _SHIFT + _SHIFT_MORE * (drafted - 1)
        shifted = anew or short_apart > limit or middle_apart > limit
        if anew:
            for counts, short in zip(self._block, self._fast, strict=True):
                short[:] = counts
        if shifted:
            before = [list(long) for long in self._slow]
            self._start_again()
            if not blank:
                self._remember(before)
        if drafted:
            for counts in self._block:
                counts[0] = counts[1] = 0
        self._estimate()
        return shifted and not blank

    def _remember(self, before: list[list[float]]) -> None:
        """Keeps the text that was; goes on from an earlier one where the new one is like it."""
        texts = self._texts
        alike = next((text for text in texts if _apart(before, text) < _ALIKE), None)
        if alike is not None:
            texts.remove(alike)
        if before[0][0] >= _KNOWN_DRAFTS:
            texts.append(before)
        found = min(texts, key=lambda text: _apart(self._slow, text), default=None)
        if found is None or _apart(self._slow, found) >= _ALIKE:
            return
        for long, known in zip(self._slow, found, strict=True):
            for i in (0, 1):
                long[i] += _REMEMBERED * known[i]

    def _fade(self, steps: int) -> tuple[float, float, float, float]:
        """What is left of the three windows after so many steps, the long one first, and of a
        position that was not drafted in them."""
        return (
            exp(-steps / self._memory),
            exp(-steps / _MIDDLE_STEPS),
            exp(-steps / _FAST_STEPS),
            exp(-steps * _NEGLECTED / self._memory),
        )

    def drafts(self, position: int) -> float:
        """The drafts that the estimate up to `position`, from 1, rests on."""
        reaching = self.survival[position - 2] if position > 1 else 1.0
        return self._slow[position - 1][0] / max(reaching, 0.02)

    def error(self, low: int, high: int) -> float:
        """Standard error of the expected tokens that positions low + 1…high add."""
        if low >= high:
            return 0.0
        added = sum(self.survival[low:high])
        drafts = self.drafts(low + 1) + _PRIOR_DRAFTS
        return sqrt(_OVERDISPERSION * (high - low) * max(added, 0.02) / drafts)

    def _start_again(self) -> None:
        for counts, short, middle, long in zip(
            self._block, self._fast, self._middle, self._slow, strict=True
        ):
            if not counts[0]:
                short[:] = (0.0, 0.0)
            middle[:] = long[:] = short

    def _estimate(self) -> None:
        """A position never seen is taken to be accepted like the one before it."""
        share, reached, tokens = _PRIOR, 1.0, 1.0
        survival, expected = [], [1.0]
        squares, variances = 0.0, [0.0]
        for position, (chances, accepted) in enumerate(self._slow):
            share = (accepted + _PRIOR_DRAFTS * share) / (chances + _PRIOR_DRAFTS)
            reached *= share
            tokens += reached
            squares += (2 * position + 1) * reached
            survival.append(reached)
            expected.append(tokens)
            variances.append(squares - (tokens - 1) ** 2)
        self.survival, self.expected, self.variances = survival, expected, variances


def _apart(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """By how many standard errors, squared, two windows differ in a position on average.

    Drafts of few requests are alike, so that many say less than their number. Positions that
    either has not seen are left out.

    >>> window = [[40.0, 30.0], [30.0, 20.0]]
    >>> _apart(window, window), round(_apart(window, [[40.0, 10.0], [10.0, 2.0]]), 1)
    (0.0, 6.6)
    """
    found, positions = 0.0, 0
    for (here, kept), (there, stayed) in zip(one, other, strict=True):
        if here < _FEWEST / 2 or there < _FEWEST:
            break
        p = (kept + stayed + 1) / (here + there + 2)
        difference = kept / here - stayed / there
        error2 = _OVERDISPERSION * p * (1 - p) * (1 / here + 1 / there)
        found += difference * difference / error2
        positions += 1
    return found / positions if positions else inf


_BLOCK_STEPS = 16
_BLOCKS = 40
_FORGET_S = 600.0


class _Cell:
    """The steps of one bucket and one k, in blocks."""

    __slots__ = ("blocks", "committed", "ended", "point", "requests", "seconds", "steps")

    def __init__(self) -> None:
        self.blocks: deque[tuple[float, float, int, int]] = deque(maxlen=_BLOCKS)
        """When each ended, its seconds, its tokens and its requests over all steps."""
        self.ended = 0
        """Blocks so far."""
        self.point: tuple[tuple[int, int], CurvePoint] | None = None
        """What was last made of the blocks: how many had ended, how many counted, the point."""
        self.seconds = 0.0
        self.committed = self.requests = self.steps = 0


class Curve:
    """Sums up settled steps that only decode; what is older than ten minutes is forgotten.

    >>> step = Step(1, 0.0, 2, 8, 3, 2, 6, 3, 0.01, 5, (2, 1, 0), verified=3, settled=True)
    >>> curve = Curve()
    >>> for _ in range(32):
    ...     curve.add(1, step)
    >>> [(point.k, point.steps, round(point.tokens_per_second)) for point in curve.points()]
    [(3, 32, 500)]
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], _Cell] = {}
        self._elapsed = Elapsed()
        self._at = (-1, -1)
        self._cell = _Cell()

    def add(self, bucket: int, step: Step) -> None:
        """Counts a step."""
        if not step.settled or step.prefill or step.seconds is None:
            return
        at = (bucket, step.k)
        if at != self._at:
            self._at = at
            self._cell = self._cells.setdefault(at, _Cell())
        cell = self._cell
        cell.seconds += step.seconds
        cell.committed += step.committed
        cell.requests += step.requests
        cell.steps += 1
        if cell.steps >= _BLOCK_STEPS:
            now = self._elapsed.at(step.t)
            if cell.seconds > 0:
                cell.blocks.append((now, cell.seconds, cell.committed, cell.requests))
                cell.ended += 1
            cell.seconds = 0.0
            cell.committed = cell.requests = cell.steps = 0

    def look(self, t: float) -> None:
        """Has time pass to `t` without a step."""
        self._elapsed.at(t)

    def points(self) -> tuple[CurvePoint, ...]:
        """What was measured, by bucket and k."""
        found = (
            self._point(bucket, k, self._cells[bucket, k]) for bucket, k in sorted(self._cells)
        )
        return tuple(point for point in found if point is not None)

    def _point(self, bucket: int, k: int, cell: _Cell) -> CurvePoint | None:
        now, blocks = self._elapsed.seconds, cell.blocks
        while blocks and now - blocks[0][0] > _FORGET_S:
            blocks.popleft()
        if not blocks:
            return None
        age_s, rests_on = now - blocks[-1][0], (cell.ended, len(blocks))
        if cell.point is not None and cell.point[0] == rests_on:
            return replace(cell.point[1], age_s=age_s)
        steps = len(blocks) * _BLOCK_STEPS
        seconds = sum(block[1] for block in blocks)
        committed = sum(block[2] for block in blocks)
        requests = sum(block[3] for block in blocks) / steps
        if not committed:
            return None
        interval = ratio([block[2] for block in blocks], [block[1] for block in blocks])
        point = CurvePoint(
            first(bucket),
            BOUNDS[bucket],
            requests,
            k,
            steps,
            seconds / steps,
            committed / seconds,
            1e3 * seconds * requests / committed,
            None if interval is None else interval.low,
            None if interval is None else interval.high,
            age_s,
        )
        # The intervals cost the engine core's thread a third of a millisecond each.
        cell.point = rests_on, point
        return point


@dataclass(frozen=True, slots=True)
class Tokens:
    """Expected committed tokens of a request in a step, at one k."""

    k: int
    value: float
    """1 + the expected accepted tokens: the mean acceptance length."""
    extrapolated: bool
    """Whether positions that were never drafted are part of it."""


def tokens_by_k(
    drafted: Sequence[float], accepted: Sequence[float], k_max: int
) -> tuple[Tokens, ...] | None:
    """Expected tokens for k = 0…k_max; None when nothing was drafted.

    `drafted[i]` counts drafts that had position i, `accepted[i]` those whose token there was
    accepted; both may be scaled alike, as shares are. Positions that no draft had are taken to
    be accepted, given the one before, as often as the last observed one was: a guess, and
    marked so.

    >>> [(t.k, round(t.value, 2), t.extrapolated) for t in tokens_by_k([100, 100], [80, 60], 3)]
    [(0, 1.0, False), (1, 1.8, False), (2, 2.4, False), (3, 2.85, True)]
    >>> [round(t.value, 2) for t in tokens_by_k([1.0, 1.0], [0.8, 0.6], 2)]
    [1.0, 1.8, 2.4]
    >>> tokens_by_k([0, 0], [0, 0], 2) is None
    True
    """
    if not drafted or not drafted[0]:
        return None
    found, total, reached, conditional = [Tokens(0, 1.0, False)], 1.0, 1.0, 0.0
    guessed = False
    for position in range(k_max):
        had = drafted[position] if position < len(drafted) else 0
        if had and not guessed:
            share = accepted[position] / had
            conditional = min(1.0, share / reached) if reached else 0.0
            reached = share
        else:
            guessed = True
            reached *= conditional
        total += reached
        found.append(Tokens(position + 1, total, guessed))
    return tuple(found)
