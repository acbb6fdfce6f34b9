"""Deeper drafts: of them a smaller share is accepted, as each token needs those before it, and
nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specdeck.engine.blackbox.load_end import Read
from specdeck.engine.metrics.draft_length import OTHER_LENGTH, count_positions
from specdeck.engine.metrics.window import Window


@dataclass(slots=True)
class _Drafts:
    """Sums over the windows of a stretch of time."""

    drafts: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    accepted_at: list[float] | None = None
    """By position; None where that is not known."""
    drafted_at: list[float] | None = None

    @property
    def length(self) -> float:
        """Tokens of a draft."""
        return self.drafted / self.drafts if self.drafts else 0.0

    def share(self, depth: int) -> float | None:
        """What was accepted of the first `depth` tokens of drafts; None where that is not known."""
        if self.accepted_at is None or len(self.accepted_at) < depth:
            return None
        of = depth * self.drafts if self.drafted_at is None else sum(self.drafted_at[:depth])
        return sum(self.accepted_at[:depth]) / of if of else None


def are_drafts_deeper(
    history: Read, before: tuple[float, float], after: tuple[float, float], least: float
) -> bool:
    """Whether acceptance is lower in the later of two stretches of time, Unix seconds, only because
    drafts have more tokens there.

    As far as drafts went before, no less than the share `least` is accepted of what was; where
    positions are not told, of a whole draft. False where drafts are not counted. Raises
    SpecdeckError for a record that cannot be read.
    """
    was, now = (_sum_up(history, *stretch) for stretch in (before, after))
    if not was.accepted or now.length < (1 + OTHER_LENGTH) * was.length:
        return False
    depth = count_positions(was.length)
    old, new = was.share(depth), now.share(depth)
    if not old or new is None:
        old, new = was.accepted / was.drafts, now.accepted / now.drafts
    return new >= least * old


def _sum_up(history: Read, start: float, end: float) -> _Drafts:
    found = _Drafts()
    for reading in history.readings(start, end):
        window = reading.window
        if window is not None and window.drafts and None not in (window.drafted, window.accepted):
            _add(found, window)
    return found


def _add(sums: _Drafts, window: Window) -> None:
    begins = not sums.drafts
    sums.drafts += window.drafts or 0.0
    sums.drafted += window.drafted or 0.0
    sums.accepted += window.accepted or 0.0
    sums.accepted_at = _extend(sums.accepted_at, window.accepted_per_position, begins)
    sums.drafted_at = _extend(sums.drafted_at, window.drafted_per_position, begins)


def _extend(
    sums: list[float] | None, more: Iterable[float] | None, begins: bool
) -> list[float] | None:
    """By position; None from the first window on that does not tell it."""
    if more is None or (sums is None and not begins):
        return None
    row = list(more)
    if sums is None:
        return row
    return [one + other for one, other in zip(sums, row, strict=False)]
