"""What a step costs, by batch size and k: a plane through what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

_SWEEPS = 40
_PRIOR_STEPS = 2.0
_PRIOR = (None, 0.05, 0.15, 0.1)
"""Shares of a mean step, for the mean batch and the largest k, that hold until steps were seen
at more than one batch size or k; weighted like `_PRIOR_STEPS` steps."""


class Cell(NamedTuple):
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


def fit(cells: Iterable[Cell]) -> CostModel | None:
    """The model nearest to `cells` in relative error; None without any.

    >>> true = CostModel(0.010, 0.0001, 0.001, 0.00005)
    >>> cells = [Cell(b, k, true.seconds(b, k), 1000) for b in (1, 4, 16) for k in (0, 2, 5)]
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
    cells: list[Cell], mean: float, batch: float, deepest: int
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
