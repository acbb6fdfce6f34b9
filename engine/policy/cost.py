"""What a step costs, by batch size and k: measured robustly while the machine drifts.

A duration is kept as the logarithm of its ratio to a level that all of them share. The
level follows the machine (other tenants, clocks, longer contexts) within some fifty
steps; the ratios move slowly. So a k that was last tried a minute ago is compared with
the present one as if both had run side by side. A plane through what was measured stands
in for batch sizes and k's that were not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import NamedTuple

from specdeck.engine.policy.table import BOUNDS, first

_SWEEPS = 40
_PRIOR_STEPS = 2.0
_PRIOR = (None, 0.05, 0.15, 0.1)
"""Shares of a mean step, for the mean batch and the largest k, that hold until steps were seen
at more than one batch size or k; weighted like `_PRIOR_STEPS` steps."""


class CostCell(NamedTuple):
    """Steps of one batch size and one k, on average."""

    batch: float
    k: int
    seconds: float
    steps: float
    """The weight: how many steps the average is of."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """seconds = base + per_request * batch + per_k * k + per_token * batch * k.

    A forward pass has a price of its own, each request in it adds to it, each drafted
    position is another pass of the drafter, each drafted token is verified: none of
    them is negative, so an estimate never falls with k or with the batch.

    >>> model = CostModel(0.010, 0.0001, 0.001, 0.00005)
    >>> round(model.seconds(8, 4), 5)
    0.0164
    """

    base: float
    per_request: float
    per_k: float
    per_token: float

    def seconds(self, batch: float, k: int) -> float:
        """The expected duration of a step, seconds."""
        return self.base + self.per_request * batch + (self.per_k + self.per_token * batch) * k


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
    deepest = max(1, *(cell.k for cell in known))
    moments, target = _normal_equations(known, mean, batch, deepest)
    a, b, c, d = _non_negative(moments, target, [1.0, 0.0, 0.0, 0.0])
    return CostModel(a * mean, b * mean / batch, c * mean / deepest, d * mean / batch / deepest)


def _normal_equations(
    cells: list[CostCell], mean: float, batch: float, deepest: int
) -> tuple[list[list[float]], list[float]]:
    """The weighted least squares of the scaled cells, the prior among them."""
    moments = [[0.0] * 4 for _ in range(4)]
    target = [0.0] * 4
    for cell in cells:
        x, z = cell.batch / batch, cell.k / deepest
        y = cell.seconds / mean
        row, weight = (1.0, x, z, x * z), cell.steps / (y * y)
        for i, left in enumerate(row):
            scaled = weight * left
            target[i] += scaled * y
            line = moments[i]
            for j, right in enumerate(row):
                line[j] += scaled * right
    for i, share in enumerate(_PRIOR):
        if share is not None:
            moments[i][i] += _PRIOR_STEPS
            target[i] += _PRIOR_STEPS * share
    return moments, target


def _non_negative(
    moments: list[list[float]], target: list[float], start: list[float]
) -> list[float]:
    """The non-negative solution, by going round the coordinates."""
    found = list(start)
    for _ in range(_SWEEPS):
        for i, line in enumerate(moments):
            a, b, c, d = line
            rest = target[i] - a * found[0] - b * found[1] - c * found[2] - d * found[3]
            found[i] = max(0.0, found[i] + rest / line[i])
    return found


_LEVEL_GAIN = 0.05
_FULL = 400.0
"""The most steps that the memory of one cell is worth."""
_HALF_LIFE_S = 90.0
_CLIP = 4.0
_REFIT_BLOCKS = 64
_GUESS_ERROR = 0.10
"""Relative error of a step time that was never measured."""
_GUESS_ERROR2 = _GUESS_ERROR**2
_LEAST_ERROR2 = 0.002**2
_SURE2 = 0.02**2
"""Squared relative error from which what was measured needs no model beside it."""
_MODEL_STEPS = 2.0
"""The weight of the model as it stands, beside the steps that may shift it."""


class _Times:
    """The steps of one batch size and one k."""

    __slots__ = ("log", "size", "steps", "t")

    def __init__(self, log_ratio: float, t: float) -> None:
        self.log, self.steps, self.t, self.size = log_ratio, 0.0, t, 0.0


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
        """By bucket and k."""
        self._level: float | None = None
        self._noise = 0.1
        """Mean deviation of a block's logarithm from what was expected of it."""
        self._model: CostModel | None = None
        self._blocks_to_refit = 0
        self._deepest = 0
        self._found: tuple[list[float], list[float]] = ([], [])
        """By k: seconds, and their squared relative standard errors."""
        self._looked_at = (-1, -1)
        self._model_logs: dict[int, list[float]] = {}
        self.version = 0
        """Counts the blocks taken in."""

    def add(self, bucket: int, size: float, k: int, seconds: Sequence[float], t: float) -> None:
        """Takes in the durations of successive steps of one bucket and one k.

        `size` is the batch size, `t` the time of the last one. Their median counts, so one
        step that was held up does not.
        """
        steps = len(seconds)
        here = log(max(_median(seconds), 1e-9))
        cell = self._cell(bucket, k)
        if self._level is None:
            self._level = here
        if cell is None:
            cell = _Times(here - self._level, t)
            self._cells.setdefault(bucket, {})[k] = cell
            self._deepest = max(self._deepest, k)
            self._blocks_to_refit = 0
        known = cell.steps = cell.steps * 0.5 ** (max(0.0, t - cell.t) / _HALF_LIFE_S)
        surprise = here - cell.log - self._level
        limit = _CLIP * self._noise
        surprise = max(-limit, min(limit, surprise))
        self._noise = max(0.002, self._noise + 0.03 * (abs(surprise) - self._noise))
        cell.steps = min(_FULL, known + steps)
        cell.log += surprise * steps / cell.steps
        cell.size += (size - cell.size) * steps / cell.steps if known else size
        cell.t = t
        self._level += surprise * (1 - (1 - _LEVEL_GAIN) ** steps) * known / (known + 20)
        self.version += 1
        self._blocks_to_refit -= 1

    def steps(self, bucket: int, k: int) -> float:
        """The steps that the time of a cell rests on; 0 when it was never seen."""
        cell = self._cell(bucket, k)
        return cell.steps if cell else 0.0

    def last(self, bucket: int, k: int) -> float | None:
        """When the cell was last measured."""
        cell = self._cell(bucket, k)
        return cell.t if cell else None

    def seconds(self, bucket: int, k: int) -> float | None:
        """What a step takes: measured, derived from what was, or both; None before any step.

        Each has the weight of its precision, so a single noisy block does not outweigh what
        all other k's say, and what was measured for long is what it was measured to be.
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
        return sqrt(self._look(bucket, k)[1][k])

    def errors(self, bucket: int, deepest: int) -> list[float]:
        """`error` for every k from 0 to `deepest` and maybe above."""
        if self._level is None:
            return [_GUESS_ERROR] * (deepest + 1)
        return list(map(sqrt, self._look(bucket, deepest)[1]))

    def _cell(self, bucket: int, k: int) -> _Times | None:
        cells = self._cells.get(bucket)
        return cells.get(k) if cells else None

    def model(self) -> CostModel | None:
        """The plane through the cells; None before any step."""
        if self._blocks_to_refit <= 0 and self._cells and self._level is not None:
            self._blocks_to_refit = _REFIT_BLOCKS
            self._model_logs.clear()
            level = self._level
            self._model = fit(
                CostCell(cell.size, k, exp(cell.log + level), cell.steps + 1)
                for cells in self._cells.values()
                for k, cell in cells.items()
            )
        return self._model

    def _look(self, bucket: int, k: int) -> tuple[list[float], list[float]]:
        """Seconds and squared errors by k, at least up to `k`."""
        if self._looked_at != (bucket, self.version) or k >= len(self._found[0]):
            self._deepest = max(self._deepest, k)
            self._found = self._derive(bucket)
            self._looked_at = (bucket, self.version)
        return self._found

    def _derive(self, bucket: int) -> tuple[list[float], list[float]]:
        """By the model, by how far the bucket is off it, and by what was measured."""
        level, cells, logs = self._level or 0.0, self._cells.get(bucket, {}), self._logs(bucket)
        steps = sum([cell.steps for cell in cells.values()])
        off = sum([cell.steps * (cell.log - logs[k]) for k, cell in cells.items()])
        block2 = (1.25 * self._noise) ** 2
        seconds, errors2 = [], []
        for k, guess in enumerate(logs):
            cell = cells.get(k)
            if cell is None:
                found = guess + (off + level * steps) / (steps + _MODEL_STEPS)
                error2 = _GUESS_ERROR2
            else:
                own = cell.steps
                found, error2 = cell.log + level, block2 / (own / 8 + 0.2) + _LEAST_ERROR2
                if error2 > _SURE2:
                    others, their_off = steps - own, off - own * (cell.log - guess)
                    derived = guess + (their_off + level * others) / (others + _MODEL_STEPS)
                    share = error2 / (error2 + _GUESS_ERROR2)
                    found += share * (derived - found)
                    error2 *= 1 - share
            seconds.append(exp(found))
            errors2.append(error2)
        return seconds, errors2

    def _logs(self, bucket: int) -> list[float]:
        """The logarithm of what the model has for every k at the middle of a bucket."""
        model = self.model()
        assert model is not None
        logs = self._model_logs.get(bucket)
        if logs is None or len(logs) <= self._deepest:
            size = _MIDDLE[bucket]
            logs = [log(max(model.seconds(size, k), 1e-9)) for k in range(self._deepest + 1)]
            self._model_logs[bucket] = logs
        return logs


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


_MIDDLE = tuple(map(_middle, range(len(BOUNDS))))
