"""What a check under way has found so far: rate, floors and classes, and no verdict before its end.

An interval is of the prompts that are done. Whoever stops when he likes what he reads has no 95 %
any more, so that the verdict waits for the last prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from specdeck.engine.divergence.arms import Arm
from specdeck.engine.divergence.compare import Class
from specdeck.engine.divergence.outcome import Case, count_classes
from specdeck.engine.divergence.statistics import Rate
from specdeck.engine.divergence.totals import Totals
from specdeck.engine.store.checks import Pair
from specdeck.engine.text import format_percent


@dataclass(frozen=True, slots=True)
class RunningFigures:
    """The figures of the prompts that are done."""

    differ: Rate
    """Serving against reference."""
    repeat: Rate
    """The reference against itself, from ask to ask."""
    batch: Rate
    """Alone against among others."""
    shape: Rate
    """One row a step against several."""
    classes: Mapping[Class, int]
    """How many cases of each class, by what is known of near ties so far."""

    @property
    def floors(self) -> tuple[tuple[str, Rate], ...]:
        """The noise floors by name."""
        return ("repeat", self.repeat), ("batch", self.batch), ("shape", self.shape)

    def rate_line(self) -> str:
        """The share that differs so far, with the interval.

        >>> none = Rate(0, 0)
        >>> RunningFigures(Rate(2, 64), none, none, none, {}).rate_line()
        '3.12% (95% 0.38% to 10.84%)'
        >>> RunningFigures(none, none, none, none, {}).rate_line()
        '–'
        """
        if not self.differ.of:
            return format_percent(None)
        low, high = map(format_percent, self.differ.ci95)
        return f"{format_percent(self.differ.rate)} (95% {low} to {high})"

    def floors_line(self) -> str:
        """The floors so far.

        >>> none = Rate(0, 0)
        >>> RunningFigures(none, Rate(1, 64), none, Rate(0, 60), {}).floors_line()
        'repeat 1.56% of 64 · batch – · shape 0.00% of 60'
        """
        return " · ".join(
            f"{name} {format_percent(one.rate)}" + (f" of {one.of}" if one.of else "")
            for name, one in self.floors
        )

    def classes_line(self) -> str:
        """The classes that there are cases of.

        >>> none = Rate(0, 0)
        >>> RunningFigures(none, none, none, none, {"near_tie": 2, "material": 0}).classes_line()
        'near tie 2'
        """
        named = [f"{name.replace('_', ' ')} {n}" for name, n in self.classes.items() if n]
        return " · ".join(named) or "nothing differs"


def sum_up(
    totals: Totals, arms: tuple[Arm, Arm], cases: Callable[[Pair], Iterable[Case]]
) -> RunningFigures:
    """The figures so far; `cases` are those of a comparison, by prompt."""
    return RunningFigures(
        totals.cross,
        totals.floor,
        totals.batch_floor,
        totals.shape_floor,
        count_classes(totals, arms, cases),
    )
