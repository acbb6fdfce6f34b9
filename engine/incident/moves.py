"""Who changed an engine: from its own word in each reading, and from this machine's audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specdeck.engine.metrics.reading import Reading
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.protocol.messages import LastChange
from specdeck.engine.store.audit import Action

_SAME_S: Final = 5.0
"""Between the engine's time of a change and the time that it is in the log with."""
MOST: Final = 500


@dataclass(frozen=True, slots=True)
class Move:
    """One change of an engine."""

    t: float
    """Unix time, seconds."""
    who: str
    origin: str | None
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    reason: str | None
    undo: str
    """The command that takes it back; empty where nothing does."""
    observed_k: float | None = None
    """Draft tokens per draft after it; None where nobody looked."""
    outcome: str = "applied"
    logged: bool = False
    """Whether it is in the audit log of this machine."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def list_changes(readings: Iterable[Reading]) -> list[LastChange]:
    """The changes that the engine told of while it was recorded, each once, as they came."""
    found: list[LastChange] = []
    for reading in readings:
        change = None if reading.state is None else reading.state.last_change
        if change is not None and (not found or found[-1] != change):
            found.append(change)
    return found


def join_moves(
    url: str, changes: Sequence[LastChange], actions: Sequence[Action], start: float, end: float
) -> tuple[Move, ...]:
    """Both sources as one, the oldest first: what is in both is told once."""
    moves = [_from_action(one) for one in actions if start <= one.t <= end]
    for change in changes:
        if start <= change.t <= end and not any(_is_same(change, one) for one in moves):
            moves.append(
                Move(
                    change.t, change.who, change.origin, change.before, change.after,
                    change.reason, _undo(url, change),
                )
            )  # fmt: skip
    return tuple(sorted(moves, key=lambda one: one.t)[-MOST:])


def _from_action(action: Action) -> Move:
    return Move(
        action.t, action.who, action.origin, action.before, action.after, action.reason,
        action.undo, action.observed, action.outcome, logged=True,
    )  # fmt: skip


def _is_same(change: LastChange, move: Move) -> bool:
    return (
        move.logged
        and abs(move.t - change.t) <= _SAME_S
        and move.who == change.who
        and (not change.after or any(move.after.get(k) == v for k, v in change.after.items()))
    )


def _undo(url: str, change: LastChange) -> str:
    """None of a change that a lease or a trial takes back itself, or that changed nothing."""
    moved = {
        name: value
        for name, value in change.before.items()
        if name in change.after and change.after[name] != value
    }
    return format_undo(url, moved or dict(change.before)) if change.before else ""
