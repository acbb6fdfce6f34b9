"""What a step costs, by batch size and k: measured robustly while the machine drifts.

A duration is kept as the logarithm of its ratio to a level that all of them share. The
level follows the machine (other tenants, clocks, longer contexts) within some fifty
steps; the ratios move slowly. So a k that was last tried a minute ago is compared with
the present one as if both had run side by side. A plane through what was measured stands
in for batch sizes and k's that were not, and dummy steps of an idle engine where some were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from operator import mul
from typing import NamedTuple

from specdeck.engine.policy import dummy_times
from specdeck.engine.policy.dummy_times import DummyTime, DummyTimes
from specdeck.engine.policy.table import BOUNDS, first

KNEES = (64, 128, 192, 256, 384, 512)
"""Tokens of a step beyond which one more may cost more than below."""

_SWEEPS = 40
_PRIOR_STEPS = 2.0
_PRIOR = (None, 0.05, 0.15, 0.1, 0.05)
"""Shares of a mean step, for the mean batch and the largest k, that hold until steps were seen
at more than one batch size or k; weighted like `_PRIOR_STEPS` steps."""


_BOUND = 6 + KNEES.index(256)
_MOST_BOUND, _BOUND_TOKENS = 0.6, 2000.0
"""The prior of what tokens beyond 256 cost: the more a step has of them, the more of its time is
arithmetic, to a most; where no step has so many, there is no such part."""


class CostCell(NamedTuple):
    """Steps of one batch size and one k, on average."""

    batch: float
    k: int
    seconds: float
    steps: float
    """The weight: how many steps the average is of."""
    prompt: float = 0.0
    """Prompt tokens that the steps carried, on average."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """seconds = base + per_request * batch + (per_k + per_token * batch) * k + what tokens add.

    A forward pass has a price of its own, each request in it adds to it, each drafted
    position is another pass of the drafter, each drafted token is verified. Prompt tokens
    are rows of the same pass as the drafts, and a pass that is bound by memory does so many
    rows for nothing: beyond each of `KNEES` a token may cost more than below it. None of the
    parts is negative, so an estimate never falls with k, the batch or the prompt.

    >>> model = CostModel(0.010, 0.0001, 0.001, 0.00005)
    >>> round(model.seconds(8, 4), 5)
    0.0164
    >>> model = CostModel(0.012, 0.0, 0.001, 0.0, beyond=(0, 0, 0, 0.00005, 0, 0))
    >>> [round(model.seconds(64, k, prompt), 4) for k, prompt in ((0, 0), (3, 0), (3, 100))]
    [0.012, 0.015, 0.02]
    """

    base: float
    per_request: float
    per_k: float
    per_token: float
    per_prompt: float = 0.0
    """Of each prompt token."""
    laden: float = 0.0
    """Of any prompt: such a step is run from no full graph."""
    beyond: tuple[float, ...] = (0.0,) * len(KNEES)
    """Of each token of the step beyond each of `KNEES`."""

    def seconds(self, batch: float, k: int, prompt: float = 0.0) -> float:
        """The expected duration of a step that carries so many prompt tokens, seconds."""
        found = self.base + self.per_request * batch + (self.per_k + self.per_token * batch) * k
        tokens = batch * (1 + k) + prompt
        if prompt:
            found += self.laden + self.per_prompt * prompt
        for knee, slope in zip(KNEES, self.beyond, strict=True):
            if tokens <= knee:
                break
            found += slope * (tokens - knee)
        return found


def fit(cells: Iterable[CostCell]) -> CostModel | None:
    """The model nearest to `cells` in relative error; None without any.

    >>> true = CostModel(0.010, 0.0001, 0.001, 0.00005)
    >>> cells = [CostCell(b, k, true.seconds(b, k), 1000) for b in (1, 4, 16) for k in (0, 2, 5)]
    >>> found = fit(cells)
    >>> abs(found.seconds(64, 3) / true.seconds(64, 3) - 1) < 0.02
    True
    """
    known = [cell for cell in cells if cell.seconds > 0 and cell.steps > 0]
    if not known:
        return None
    weight = sum(cell.steps for cell in known)
    mean = sum(cell.seconds * cell.steps for cell in known) / weight
    batch = sum(cell.batch * cell.steps for cell in known) / weight
    tokens = sum((cell.batch * (1 + cell.k) + cell.prompt) * cell.steps for cell in known) / weight
    deepest = max(1, *(cell.k for cell in known))
    scale = (1.0, batch, deepest, batch * deepest, tokens, 1.0) + (tokens,) * len(KNEES)
    used, moments, target = _normal_equations(known, mean, scale, tokens)
    shares = [1.0] + [0.0] * (len(used) - 1)
    shares = _non_negative(moments, target, shares)
    found = [0.0] * len(scale)
    for at, share in zip(used, shares, strict=True):
        found[at] = share * mean / scale[at]
    return CostModel(found[0], found[1], found[2], found[3], found[4], found[5], tuple(found[6:]))


def _parts(cell: CostCell) -> list[float]:
    """What each coefficient of the model is multiplied by."""
    batch, k, prompt = cell.batch, cell.k, cell.prompt
    tokens = batch * (1 + k) + prompt
    return [1.0, batch, k, batch * k, prompt, 1.0 if prompt else 0.0] + [
        max(0.0, tokens - knee) for knee in KNEES
    ]


def _normal_equations(
    cells: list[CostCell], mean: float, scale: tuple[float, ...], tokens: float
) -> tuple[list[int], list[list[float]], list[float]]:
    """The weighted least squares of the scaled cells, the prior among them.

    Of the parts, only those that some cell has: a knee that no step passed is not there.
    """
    rows = [[part / by for part, by in zip(_parts(cell), scale, strict=True)] for cell in cells]
    used = [at for at in range(len(scale)) if at < 4 or any(row[at] for row in rows)]
    moments = [[0.0] * len(used) for _ in used]
    target = [0.0] * len(used)
    for cell, every in zip(cells, rows, strict=True):
        row = [every[at] for at in used]
        y = cell.seconds / mean
        weight = cell.steps / (y * y)
        for i, left in enumerate(row):
            if left:
                scaled = weight * left
                target[i] += scaled * y
                line = moments[i]
                for j, right in enumerate(row):
                    line[j] += scaled * right
    for i, at in enumerate(used):
        share = _PRIOR[at] if at < len(_PRIOR) else 0.0
        if at == _BOUND:
            share = min(_MOST_BOUND, tokens / _BOUND_TOKENS)
        if share is not None:
            weight = _PRIOR_STEPS if at < 4 or at == _BOUND else _PRIOR_STEPS / 10
            moments[i][i] += weight
            target[i] += weight * share
    return used, moments, target


def _non_negative(
    moments: list[list[float]], target: list[float], start: list[float]
) -> list[float]:
    """The non-negative solution, by going round the coordinates."""
    found = list(start)
    for _ in range(_SWEEPS):
        for i, line in enumerate(moments):
            rest = target[i] - sum(map(mul, line, found))
            found[i] = max(0.0, found[i] + rest / line[i])
    return found


_LEVEL_GAIN = 0.05
_FULL = 400.0
"""The most steps that the memory of one cell is worth."""
_HALF_LIFE_S = 90.0
_CLIP = 4.0
_FAR, _PAST_S = 2.0, 3.0
"""So many times `_CLIP` faster than was believed, in a cell not measured for so many seconds, is
no accident: steps can be held up, but nothing makes them take less than they have to."""
_WHOLE_BLOCK = 8
"""Steps of a block from which it is no noisier than `_noise` has it."""
_REFIT_BLOCKS = 64
_GUESS_ERROR = 0.10
"""Relative error of a step time that was never measured."""
_GUESS_ERROR2 = _GUESS_ERROR**2
_FAR_ERROR2 = 0.25**2
"""The same where fewer than three k's were measured at the same batch sizes."""
_LEAST_ERROR2 = 0.002**2
_SURE2 = 0.01**2
"""Squared relative error from which what was measured needs no model beside it."""
_MOST_LOGS = 2000
"""Results of the model that are kept."""
_MODEL_STEPS = 2.0
"""The weight of the model as it stands, beside the steps that may shift it."""


_SIBLING2 = 0.05**2
"""Squared relative error of one k's time, told by steps of the same k and batch size that carry
prompts for those that carry none, or the other way round."""
_NEIGHBOUR2 = 0.04**2
"""The same, told by the next smaller or larger batch sizes."""

Prompts = Sequence[tuple[float, int]]
"""Kinds of steps: the share of the steps, and the prompt tokens that each of them carries."""

NO_PROMPTS: Prompts = ((1.0, 0),)

Row = tuple[list[float], list[float]]
"""By k: the seconds of a step, and their relative standard errors."""


class _Part:
    """Steps of a cell: those whose prompts are no longer than its mean, or the others."""

    __slots__ = ("off", "prompt", "steps")

    def __init__(self) -> None:
        self.off = self.prompt = self.steps = 0.0

    def add(self, prompts: Sequence[int], off: float, limit: float) -> None:
        """Takes in steps that are `off` the model; `limit` is the most that they move it."""
        count = len(prompts)
        known, self.steps = self.steps, min(_FULL, self.steps + count)
        share = count / self.steps
        self.prompt += (sum(prompts) / count - self.prompt) * share
        surprise = off - self.off
        self.off += (max(-limit, min(limit, surprise)) if known else surprise) * share


class _Times:
    """The steps of one bucket, one k, and either with prompts or without."""

    __slots__ = ("level", "long", "off", "prompt", "short", "size", "steps", "t")

    def __init__(self, t: float) -> None:
        self.t, self.steps = t, 0.0
        self.off = 0.0
        """How far they are off the model at `size` and `prompt`: a logarithm."""
        self.size = self.prompt = 0.0
        self.level = 0.0
        """What all times shared when they were measured last."""
        self.short, self.long = _Part(), _Part()
        """By which the model sees what a longer prompt costs where every step carries one."""

    def divide(self, prompts: Sequence[int], offs: Sequence[float], limit: float) -> None:
        """Counts steps, each so much off the model, with those of its prompt's length."""
        for part, longer in ((self.short, False), (self.long, True)):
            here = [at for at, prompt in enumerate(prompts) if (prompt > self.prompt) == longer]
            if here:
                off = _median([offs[at] for at in here])
                part.add([prompts[at] for at in here], off, limit)

    @property
    def is_divided(self) -> bool:
        """Whether both shorter and longer prompts were seen."""
        return bool(self.short.steps and self.long.steps)

    def parts(self) -> Iterable[tuple[float, float, float]]:
        """Steps, prompt and how far off the model, for the model to be found through."""
        short, long = self.short, self.long
        if not self.is_divided:
            return ((self.steps, self.prompt, self.off),)
        share = self.steps / (short.steps + long.steps)
        return (
            (share * short.steps, short.prompt, short.off),
            (share * long.steps, long.prompt, long.off),
        )


class _Near(NamedTuple):
    """What was measured in and beside a bucket of batch sizes."""

    here: dict[int, _Times]
    beside: list[dict[int, _Times]]
    block2: float
    """Squared error of one block."""
    weight: float
    total: float
    """Of how far the bucket is off the model as such, and that times its weight."""
    dummies: dict[int, DummyTime]
    """By k."""


class StepTimes:
    """Durations by bucket of batch sizes and k, seconds.

    >>> times = StepTimes()
    >>> for block in range(6):
    ...     times.add(0, 1, 3, [0.030, 0.031, 0.030, 0.200], t=block)
    ...     times.add(0, 1, 0, [0.020, 0.020, 0.021], t=block)
    >>> round(times.seconds(0, 3) / times.seconds(0, 0), 2)
    1.52
    """

    def __init__(self) -> None:
        self._cells: dict[int, dict[int, _Times]] = {}
        """By bucket; by 2 k, one more where the steps carried prompts."""
        self._level: float | None = None
        self._noise = 0.1
        """Mean deviation of a block's logarithm from what was expected of it."""
        self._model: CostModel | None = None
        self._model_level = 0.0
        """The level when the model was found."""
        self._logs: dict[tuple[int, int, int], float] = {}
        """What the model has for a batch size, a k and a prompt: a logarithm, less the level."""
        self._plain_logs: dict[int, list[float]] = {}
        """The same without a prompt: by batch size, then k."""
        self._shapes: list[list[float] | None] | None = None
        """What `shapes` has; None until somebody asks."""
        self._blocks_to_refit = 0
        self._blocks = 0
        self._latest: _Times | None = None
        """Where the last block was taken in; None where it was so fast that the machine may be."""
        self._offs: dict[int, float] = {}
        """How far a bucket is off the model, all of its steps together."""
        self._dummies = DummyTimes()
        self._found: tuple[list[float], list[float]] = ([], [])
        """By k: seconds, and their relative standard errors."""
        self._looked_at = (-1, -1)
        self._row: Row = ([], [])
        self._row_of = (-1, -1, -1)
        """The bucket and the batch size that `_row` is of, and the `version`."""
        self._near = _Near({}, [], 0.0, 0.0, 0.0, {})
        self._near_of = (-1, -1)
        """The bucket that `_near` is of, and the `version`."""
        self.version = 0
        """Counts the blocks taken in."""

    def add(
        self,
        bucket: int,
        size: float,
        k: int,
        seconds: Sequence[float],
        t: float,
        *,
        sizes: Sequence[int] = (),
        prompts: Sequence[int] = (),
    ) -> None:
        """Takes in the durations of successive steps of one bucket and one k.

        `size` is the mean batch size, `t` the time of the last one; `sizes` has the batch size
        of each where they differ, `prompts` the prompt tokens of each where all carry some.
        Their median counts, so one step that was held up does not.
        """
        steps = len(seconds)
        prompt = sum(prompts) / steps if prompts else 0.0
        if sizes or prompts:
            each = [
                log(max(spent, 1e-9)) - self._relative(here, k, carried)
                for spent, here, carried in zip(
                    seconds, sizes or [round(size)] * steps, prompts or [0] * steps, strict=True
                )
            ]
            off = _median(each)
        else:
            off = log(max(_median(seconds), 1e-9)) - self._relative(round(size), k, 0)
        if self._level is None:
            self._level = off
        cells = self._cells.get(bucket)
        if cells is None:
            cells = self._cells[bucket] = {}
            self._shapes = None
        of = 2 * k + 1 if prompts else 2 * k
        cell = cells.get(of)
        if cell is None:
            cell = cells[of] = _Times(t)
            cell.off = off - self._level
            self._blocks_to_refit = 0
        known = cell.steps = cell.steps * 0.5 ** (max(0.0, t - cell.t) / _HALF_LIFE_S)
        surprise = off - cell.off - self._level
        limit = _CLIP * self._noise
        whole, surprise = surprise, max(-limit, min(limit, surprise))
        self._noise = max(0.002, self._noise + 0.03 * (abs(surprise) - self._noise))
        faster = whole + max(0.0, self._level - cell.level)  # not only than a slower machine has it
        far = _FAR * limit * sqrt(max(1.0, _WHOLE_BLOCK / steps))
        if faster < -far and t - cell.t > _PAST_S and self._latest not in (None, cell):
            surprise, known = whole, 0.0
            cell.short, cell.long = _Part(), _Part()
            self._forget(bucket, cell)
        self._latest = cell if whole > -limit else None
        cell.steps = min(_FULL, known + steps)
        share = steps / cell.steps if known else 1.0
        cell.off += surprise * steps / cell.steps
        cell.size += (size - cell.size) * share
        cell.prompt += (prompt - cell.prompt) * share
        if prompts:
            cell.divide(prompts, [one - self._level for one in each], limit)
        cell.t, cell.level = t, self._level
        self._level += surprise * (1 - (1 - _LEVEL_GAIN) ** steps) * known / (known + 20)
        if not prompts and (dummy := self._dummies.find(bucket, k)) is not None:
            here = cell.off + self._relative(round(dummy.size), k, 0)
            self._dummies.compare(bucket, k, here, cell.steps)
        self._offs.pop(bucket, None)
        self.version += 1
        self._blocks += 1
        self._blocks_to_refit -= 1
        if self._blocks_to_refit <= 0:
            self._refit()

    def _forget(self, bucket: int, past: _Times) -> None:
        """Forgets what was measured no later than `past`, which turned out to hold no more."""
        for near in (bucket - 1, bucket, bucket + 1):
            cells = self._cells.get(near, {})
            for of in [of for of, cell in cells.items() if cell is not past and cell.t <= past.t]:
                del cells[of]
            self._offs.pop(near, None)
        self._blocks_to_refit = 0

    def add_dummies(self, bucket: int, size: int, k: int, seconds: Sequence[float]) -> None:
        """Takes in dummy steps of an idle engine: they tell until real steps do.

        `size` is how many requests they stand for. They are no steps that were measured, to
        `steps` and `last`, and do not age: they follow the level that all times share.
        """
        taken = log(max(_median(seconds), 1e-9))
        if self._level is None:
            self._level = taken - self._relative(size, k, 0)
        self._dummies.add(bucket, size, k, taken - self._level)
        cell = self._cells.get(bucket, {}).get(2 * k)
        if cell is not None:
            here = cell.off + self._relative(size, k, 0)
            self._dummies.compare(bucket, k, here, cell.steps)
        self.version += 1
        self._refit()

    def compare_with_dummies(self, bucket: int, k: int) -> tuple[float, float] | None:
        """Seconds of the dummy steps of a cell and of its real ones; None unless both are known."""
        dummy, cell = self._dummies.find(bucket, k), self._cells.get(bucket, {}).get(2 * k)
        if dummy is None or cell is None or self._level is None:
            return None
        real = cell.off + self._relative(round(dummy.size), k, 0)
        return exp(self._level + dummy.taken), exp(self._level + real)

    def steps(self, bucket: int, k: int) -> float:
        """The steps that the time of a cell rests on; 0 when it was never seen.

        Those of its neighbours count for half: a batch that varies is seldom all in one.
        """
        return (
            self._steps(bucket, k) + (self._steps(bucket - 1, k) + self._steps(bucket + 1, k)) / 2
        )

    def _steps(self, bucket: int, k: int) -> float:
        cells = self._cells.get(bucket)
        if not cells:
            return 0.0
        own, laden = cells.get(2 * k), cells.get(2 * k + 1)
        return (own.steps if own else 0.0) + (laden.steps if laden else 0.0)

    def last(self, bucket: int, k: int) -> float | None:
        """When the cell was last measured, or one beside it."""
        found = [
            cell.t
            for near in (bucket - 1, bucket, bucket + 1)
            if (cells := self._cells.get(near))
            for cell in (cells.get(2 * k), cells.get(2 * k + 1))
            if cell
        ]
        return max(found) if found else None

    def seconds(self, bucket: int, k: int) -> float | None:
        """What a step takes without prompts: measured, derived from what was, or both.

        None before any step. Each has the weight of its precision, so a single noisy block
        does not outweigh what all other k's say, and what was measured for long is what it
        was measured to be.
        """
        if self._level is None:
            return None
        return self._look(bucket, k)[0][k]

    def row(self, bucket: int, deepest: int) -> list[float] | None:
        """`seconds` for every k from 0 to `deepest` and maybe above; not to be changed."""
        return None if self._level is None else self._look(bucket, deepest)[0]

    def error(self, bucket: int, k: int) -> float:
        """Relative standard error of `seconds`."""
        if self._level is None:
            return _GUESS_ERROR
        return self._look(bucket, k)[1][k]

    def errors(self, bucket: int, deepest: int) -> list[float]:
        """`error` for every k from 0 to `deepest` and maybe above."""
        if self._level is None:
            return [_GUESS_ERROR] * (deepest + 1)
        return self._look(bucket, deepest)[1]

    @property
    def block_error2(self) -> float:
        """Squared relative error of what one block of steps shows."""
        return (1.25 * self._noise) ** 2

    def model(self) -> CostModel | None:
        """The surface through the cells; None before any step."""
        return self._model

    def expect(self, bucket: int, size: float, k: int, prompts: Prompts) -> tuple[float, float]:
        """Mean seconds of a step of so many requests, some with prompts, and the squared error.

        The error is relative. Only after the first step.
        """
        level, batch = self._level or 0.0, round(size)
        whole = doubt = off = error2 = 0.0
        told: bool | None = None
        for share, prompt in prompts:
            laden = prompt > 0
            if laden != told:
                off, error2 = self._off(bucket, k, laden=laden)
                told = laden
            spent = share * exp(level + off + self._relative(batch, k, prompt))
            whole += spent
            doubt += spent * error2
        return whole, doubt / whole

    def expect_plain(self, bucket: int, size: float, deepest: int) -> Row:
        """`expect` for every k from 0 to `deepest` and maybe above, without prompts; not to be
        changed. The errors are the roots of those of `expect`.

        It is found anew after every block, for all k's: hence in one loop. Only after the first
        step.
        """
        level, batch = self._level or 0.0, round(size)
        of = (bucket, batch, self.version)
        if of == self._row_of and len(self._row[0]) > deepest:
            return self._row
        here, beside, block2, least, start, dummies = self._gather(bucket)
        logs = self._plain_logs.get(batch)
        if logs is None or len(logs) <= deepest:
            logs = self._find_logs(batch, deepest)
        spent, errors = [], []
        for k in range(deepest + 1):
            cell, sibling = here.get(2 * k), here.get(2 * k + 1)
            weight, total = least, start
            if cell is not None:
                error2 = block2 / (cell.steps / 8 + 0.2) + _LEAST_ERROR2
                if error2 <= _SURE2:
                    whole = exp(level + cell.off + logs[k])
                    spent.append(whole)
                    errors.append(sqrt(whole * error2 / whole))
                    continue
                weight += 1 / error2
                total += cell.off / error2
            if sibling is not None:
                error2 = block2 / (sibling.steps / 8 + 0.2) + _SIBLING2
                weight += 1 / error2
                total += sibling.off / error2
            for there in beside:
                if cell := there.get(2 * k):
                    error2 = block2 / (cell.steps / 8 + 0.2) + _NEIGHBOUR2
                    weight += 1 / error2
                    total += cell.off / error2
            if dummies and (dummy := dummies.get(k)):
                weight += 1 / dummy_times.ERROR2
                total += self._dummy_off(bucket, dummy, k) / dummy_times.ERROR2
            whole = exp(level + total / weight + logs[k])
            spent.append(whole)
            errors.append(sqrt(whole * (1 / weight) / whole))
        self._row, self._row_of = (spent, errors), of
        return self._row

    def shapes(self, deepest: int) -> list[list[float] | None]:
        """By bucket, then k, what a step takes without prompts, up to a factor of each bucket.

        None where something was measured, or near: there it takes `expect_plain` to tell.
        """
        if self._shapes is None:
            measured = {near for here in self._cells for near in (here - 1, here, here + 1)}
            measured |= {here for here, _, _ in self._dummies}
            self._shapes = [
                None if here in measured else list(map(exp, self._find_logs(batch, deepest)))
                for here, batch in enumerate(map(round, MIDDLE))
            ]
        return self._shapes

    def _find_logs(self, batch: int, deepest: int) -> list[float]:
        if len(self._plain_logs) > _MOST_LOGS:
            self._plain_logs.clear()
        found = [self._relative(batch, k, 0) for k in range(deepest + 1)]
        self._plain_logs[batch] = found
        return found

    def _look(self, bucket: int, k: int) -> Row:
        """Seconds and errors by k without prompts, at least up to `k`."""
        if self._looked_at != (bucket, self.version) or k >= len(self._found[0]):
            self._found = self.expect_plain(bucket, self._size(bucket), k)
            self._looked_at = (bucket, self.version)
        return self._found

    def _size(self, bucket: int) -> float:
        """The mean batch size that was seen of a bucket; its middle when none was."""
        cells = self._cells.get(bucket)
        if not cells:
            return MIDDLE[bucket]
        steps = sum([cell.steps for cell in cells.values()])
        return sum([cell.size * cell.steps for cell in cells.values()]) / steps

    def _off(self, bucket: int, k: int, *, laden: bool) -> tuple[float, float]:
        """How far steps of one k are off the model, with the squared error of it.

        Each of what was measured has the weight of its precision: the same steps, those with or
        without prompts, those of the batch sizes beside, and how far the bucket is off as such.
        """
        here, beside, block2, weight, total, dummies = self._gather(bucket)
        of = 2 * k + laden
        if cell := here.get(of):
            error2 = block2 / (cell.steps / 8 + 0.2) + _LEAST_ERROR2
            if error2 <= _SURE2:
                return cell.off, error2
            weight += 1 / error2
            total += cell.off / error2
        if cell := here.get(of ^ 1):
            error2 = block2 / (cell.steps / 8 + 0.2) + _SIBLING2
            weight += 1 / error2
            total += cell.off / error2
        for there in beside:
            if cell := there.get(of):
                error2 = block2 / (cell.steps / 8 + 0.2) + _NEIGHBOUR2
                weight += 1 / error2
                total += cell.off / error2
        if dummies and (dummy := dummies.get(k)):
            error2 = dummy_times.ERROR2 + (_SIBLING2 if laden else 0.0)
            weight += 1 / error2
            total += self._dummy_off(bucket, dummy, k) / error2
        return total / weight, 1 / weight

    def _dummy_off(self, bucket: int, dummy: DummyTime, k: int) -> float:
        """How far real steps would be off the model, by dummy ones."""
        return self._dummies.expect(bucket, dummy) - self._relative(round(dummy.size), k, 0)

    def _gather(self, bucket: int) -> _Near:
        """What `_off` is found from at every k."""
        if self._near_of == (bucket, self.version):
            return self._near
        cells = self._cells
        here = cells.get(bucket) or {}
        dummies = self._dummies.row(bucket)
        weight = 1 / (_GUESS_ERROR2 if max(len(here), len(dummies)) > 2 else _FAR_ERROR2)
        beside = [there for near in (bucket - 1, bucket + 1) if (there := cells.get(near))]
        block2 = (1.25 * self._noise) ** 2
        off = self._bucket_off(bucket)
        self._near = _Near(here, beside, block2, weight, off * weight, dummies)
        self._near_of = (bucket, self.version)
        return self._near

    def _bucket_off(self, bucket: int) -> float:
        """How far all steps of a bucket are off the model; 0 when there were none."""
        found = self._offs.get(bucket)
        if found is None:
            cells = self._cells.get(bucket, {}).values()
            steps = sum([cell.steps for cell in cells]) + _MODEL_STEPS
            found = self._offs[bucket] = sum([cell.steps * cell.off for cell in cells]) / steps
        return found

    def _relative(self, batch: int, k: int, prompt: int) -> float:
        """The logarithm of what the model has, less the level that it was found at."""
        model = self._model
        if model is None:
            return 0.0
        at = (batch, k, prompt)
        found = self._logs.get(at)
        if found is None:
            if len(self._logs) > _MOST_LOGS:
                self._logs.clear()
            spent = model.seconds(batch, k, prompt)
            found = self._logs[at] = log(max(spent, 1e-9)) - self._model_level
        return found

    def _refit(self) -> None:
        """Finds the model anew; what was measured stays what it was measured to be."""
        assert self._level is not None
        self._blocks_to_refit = min(_REFIT_BLOCKS, 1 + self._blocks // 4)
        cells = [(of // 2, cell) for cells in self._cells.values() for of, cell in cells.items()]
        logs = [self._logs_of(k, cell) for k, cell in cells]
        measured = [
            CostCell(cell.size, k, exp(off + known + self._level), steps + 1, prompt)
            for (k, cell), (whole, *parts) in zip(cells, logs, strict=True)
            for (steps, prompt, off), known in zip(
                cell.parts(), parts if cell.is_divided else [whole], strict=True
            )
        ]
        dummies = [
            CostCell(
                dummy.size,
                k,
                exp(self._dummies.expect(bucket, dummy) + self._level),
                dummy_times.WEIGHT,
            )
            for bucket, k, dummy in self._dummies
        ]
        self._model = fit(measured + dummies)
        self._model_level = self._level
        self._logs.clear()
        self._plain_logs.clear()
        self._shapes = None
        self._offs.clear()
        for (k, cell), known in zip(cells, logs, strict=True):
            present = self._logs_of(k, cell)
            cell.off += known[0] - present[0]
            cell.short.off += known[1] - present[1]
            cell.long.off += known[2] - present[2]

    def _logs_of(self, k: int, cell: _Times) -> tuple[float, float, float]:
        """What the model has for a cell, and for its shorter and its longer prompts."""
        size = round(cell.size)
        whole = self._relative(size, k, round(cell.prompt))
        if not (cell.short.steps or cell.long.steps):  # without prompts
            return whole, whole, whole
        return (
            whole,
            self._relative(size, k, round(cell.short.prompt)),
            self._relative(size, k, round(cell.long.prompt)),
        )


def _median(values: Sequence[float]) -> float:
    """The middle; of an even number the mean of the two.

    >>> _median([3, 1, 2]), _median([4, 1, 2, 3])
    (2, 2.5)
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def _middle(bucket: int) -> float:
    """The middle batch size of a bucket."""
    return (first(bucket) + BOUNDS[bucket]) / 2


MIDDLE = tuple(map(_middle, range(len(BOUNDS))))
