"""Who changed an engine: from its own word in each reading, and from this machine's audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from specdeck.engine.metrics.reading import Reading
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.protocol.messages import LastChange
from specdeck.engine.store.audit import Action
from specdeck.engine.text import UNKNOWN, format_changes

_ONE_SWEEP_S: Final = 120.0
"""Between two moves of one sweep, at most."""
_SAME_S: Final = 5.0
"""Between the engine's time of a change and the time that it is in the log with."""
MOST: Final = 500
_ENGINE: Final = "specdeck"
"""Who takes back what a lease or a trial set: the engine by itself."""


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


@dataclass(frozen=True, slots=True)
class Try:
    """Settings that were made, and taken back; Unix times, seconds."""

    t: float
    back: float | None
    """None where they still stand."""


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


@dataclass(frozen=True, slots=True)
class Run:
    """One change that somebody made; all moves of a sweep, or of a trial's end, are one."""

    moves: tuple[Move, ...]
    """By time; never empty."""

    @property
    def first(self) -> Move:
        """What it began with; its undo takes all of it back."""
        return self.moves[0]

    @property
    def last(self) -> Move:
        """What it ended with, or came to so far."""
        return self.moves[-1]

    @property
    def swept(self) -> str | None:
        """The draft lengths of a sweep, as the audit log has them; None of another change."""
        ks = (
            sides["k"]
            for one in self.moves
            for sides in (one.before, one.after)
            if _is_edge(one) and isinstance(sides.get("k"), str)
        )
        return next(ks, None)

    @property
    def visits(self) -> int:
        """Of a sweep, how often the engine told that it moved k."""
        return sum(not _is_edge(one) for one in self.moves)

    @property
    def reason(self) -> str | None:
        """The last one that was given."""
        return next((one.reason for one in reversed(self.moves) if one.reason), None)


def group_moves(moves: Iterable[Move]) -> list[Run]:
    """Moves, the oldest first, with those that are of one sweep or one trial's end together."""
    found: list[Run] = []
    for move in moves:
        if found and _is_of_one(found[-1], move):
            found[-1] = Run((*found[-1].moves, move))
        else:
            found.append(Run((move,)))
    return found


def _is_of_one(run: Run, move: Move) -> bool:
    last = run.last
    if move.origin != last.origin:
        return False
    if move.origin == "trial":  # the engine's own word of its end, and that of whoever began it
        return move.t - last.t <= _SAME_S
    if move.origin != "sweep" or move.who != last.who or move.t - last.t > _ONE_SWEEP_S:
        return False
    is_ended = _is_edge(last) and isinstance(last.before.get("k"), str)
    return not is_ended and not (_is_edge(move) and isinstance(move.after.get("k"), str))


def _is_edge(move: Move) -> bool:
    """Whether it begins or ends a sweep: the audit log has all its k as one text."""
    sides = (move.before.get("k"), move.after.get("k"))
    return move.origin == "sweep" and move.logged and any(isinstance(one, str) for one in sides)


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
    if change.origin in ("lease", "trial") and change.who == _ENGINE:
        return ""
    moved = {
        name: value
        for name, value in change.before.items()
        if name in change.after and change.after[name] != value
    }
    return format_undo(url, moved or dict(change.before)) if change.before else ""


def find_try(moves: Sequence[Move], knobs: Mapping[str, str], since: float) -> Try | None:
    """The last time since `since`, in Unix seconds, that all of `knobs` were set; None of none.

    >>> on = Move(5.0, "ann", None, {"policy": "fixed"}, {"policy": "goodput"}, None, "")
    >>> off = Move(9.0, "specdeck", "trial", dict(on.after), dict(on.before), None, "")
    >>> find_try([on, off], {"policy": "goodput"}, 0.0)
    Try(t=5.0, back=9.0)
    >>> find_try([on], {"policy": "goodput"}, 6.0)
    """

    def is_set(sides: Mapping[str, Any]) -> bool:
        return all(name in sides and f"{sides[name]}" == value for name, value in knobs.items())

    last = next((one for one in reversed(moves) if one.t >= since and is_set(one.after)
                 and not is_set(one.before)), None)  # fmt: skip
    if last is None:
        return None
    back = (one.t for one in moves if one.t > last.t and any(
        name in one.after and f"{one.after[name]}" != value for name, value in knobs.items()
    ))  # fmt: skip
    return Try(last.t, next(back, None))


def describe_run(run: Run) -> str:
    """What one change moved; of a sweep what it tried and what it left."""
    if run.first.origin != "sweep" or len(run.moves) == 1:
        moved = [
            words
            for one in run.moves
            if (words := format_changes(one.before, one.after, moved_only=True))
        ]
        return moved[0] if moved else "nothing"
    was, now = run.first.before.get("k"), run.last.after.get("k")
    tried = run.swept or "k after k"
    return f"k {UNKNOWN if was is None else was}, swept {tried} in {run.visits} moves, then {now}"
