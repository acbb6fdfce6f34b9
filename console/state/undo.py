"""Taking this console's changes back, and leaving what somebody else has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from specdeck.console.widgets.format import KeyLabel
from specdeck.engine.protocol.messages import (
    AppliedChange,
    Change,
    EngineState,
    with_implied_policy,
)
from specdeck.engine.text import format_changes

if TYPE_CHECKING:
    from specdeck.engine.protocol.tuning import Tuning

KEY: Final = "key"
"""The reason of a change that has no better one."""
_OTHER: Final = object()
"""Equal to no value of a knob."""
_MOST: Final = 50
"""Changes that can be taken back, one after the other."""
_KEYS: Final = {
    "k": "k.set", "mode": "mode.toggle", "policy": "policy.auto", "breaker": "breaker.toggle",
}  # fmt: skip
"""Whose key sets a knob."""

Moves = tuple[tuple[str, str, str], ...]
"""Knobs that are not as they were left: name, as it was left, as it is."""


@dataclass(frozen=True, slots=True)
class InForce:
    """What an engine's knobs are known to be, and what is asked of them."""

    state: EngineState | None = None
    """The plugin's last word."""
    tuning: Tuning | None = None
    """Its last word on parameters, which may be an older one."""
    pending: Change | None = None

    def values(self) -> dict[str, Any]:
        """The knobs as the engine told them last, without what is asked of them."""
        state = self.state
        return {} if state is None else self._read_values(state, state.version)

    def _read_values(self, state: EngineState, version: int) -> dict[str, Any]:
        found: dict[str, Any] = {
            "k": state.k_set, "mode": state.mode, "policy": state.policy,
            "breaker": state.breaker,
        }  # fmt: skip
        tuning = self.tuning
        if tuning is not None and tuning.instance == state.instance and tuning.version >= version:
            found |= {each.name: each.value for each in tuning.parameters}
        return found

    def knobs(self, version: int) -> dict[str, str]:
        """As `specdeck set` takes them; parameters from no older word than of `version`."""
        state = self.state
        if state is None:
            return {}
        found = self._read_values(state, version)
        last = state.last_change
        if last is not None and state.version > version:
            found |= {name: value for name, value in last.after.items() if "." in name}
        if self.pending is not None:
            found |= with_implied_policy(_asked_knobs(self.pending))
        return _spell(found)


@dataclass(frozen=True, slots=True)
class Undo:
    """One change of this console, and what takes it back."""

    want: Change
    left: tuple[tuple[str, str], ...]
    """The knobs as the change has left them, as `specdeck set` takes them."""
    version: int
    """The control version that the change made."""
    trial: bool = False
    """Whether it was on trial, which may have taken it back."""
    number: int | None = None
    """Of that trial; None of a plugin that names none."""
    warned: Moves = ()
    """Who presses undo has been told that these are no longer as they were left."""

    def find_moves(self, now: InForce) -> Moves:
        """The knobs that are not as this console left them."""
        knobs = now.knobs(self.version)
        return tuple(
            (name, left, knobs[name]) for name, left in self.left if knobs.get(name, left) != left
        )

    def is_reverted(self, now: InForce) -> bool:
        """Whether the trial that it was on is known to have taken it back: what has its values by
        now is somebody else's."""
        known = None if now.tuning is None else now.tuning.trial
        if self.number is None or known is None or known.number != self.number:
            return False
        return known.state in ("reverted", "abandoned")

    def is_in_force(self, now: InForce) -> bool:
        """Whether everything is already as it was before the change."""
        knobs, asked = now.knobs(self.version), with_implied_policy(_asked_knobs(self.want))
        return all(knobs.get(name) == value for name, value in asked.items())


@dataclass(frozen=True, slots=True)
class Sent:
    """A change that the engine has been sent and has not answered."""

    asked: Change
    back: Change | None = None
    """What takes it back, by what was in force as it was sent; None where that is not known."""
    undo: bool = False
    """Whether it is to be taken back once the engine has answered."""

    def is_undone_by(self, want: Change | None) -> bool:
        """Whether what is wanted by now takes it back, and nothing asked for since sets it again.

        >>> sent = Sent(Change(k=3), Change(k=5, origin="undo"), undo=True)
        >>> [sent.is_undone_by(Change(k=k, mode="target-only")) for k in (5, 3)]
        [True, False]
        """
        if not self.undo or self.back is None or want is None:
            return False
        return self.back.knobs().items() <= want.knobs().items()


def undo_of_trial(number: int | None) -> Change:
    """What takes a trial back, and no other; None of a plugin that counts none."""
    return Change(cancel=True, trial=number, reason="undo", origin="undo")


def as_sent(asked: Change, now: InForce) -> Sent:
    """A change as it goes out; a trial is taken back by its number, which the engine gives.

    So is a breaker that is not closed: whether it comes back by itself is for the engine to say.

    >>> from tests.support.engine_state import engine_state
    >>> found = as_sent(Change(k=3), InForce(engine_state(k_set=5))).back
    >>> found.k, found.mode, found.origin
    (5, None, 'undo')
    >>> as_sent(Change(k=3, trial_s=40.0), InForce(engine_state())).back
    """
    before = {} if asked.trial_s is not None else now.values()
    after = asked.knobs()
    is_known = before.keys() >= after.keys()
    if not is_known or ("breaker" in after and before["breaker"] != "closed"):
        return Sent(asked)
    was = {name: before[name] for name in after}
    return Sent(asked, _reverse(AppliedChange(was, after, version=0, step=0), now.state))


@dataclass(frozen=True, slots=True)
class UndoHistory:
    """What takes this console's changes of one engine back, in one life of the engine."""

    undos: tuple[Undo, ...] = ()
    """The latest last."""
    under_way: tuple[Undo, ...] = ()
    """Those that the engine has been asked for and has not answered."""
    has_changed: bool = False
    """Whether this console has changed anything."""
    was_restarted: bool = False
    """Whether it has changed something of a former life."""
    unknown: Change | None = None
    """Who presses undo has been told that nobody knows whether this was made."""

    def add(self, asked: Change, applied: AppliedChange, now: InForce) -> UndoHistory:
        """The history after an answer of the engine, with what takes the change back."""
        undos = tuple(replace(undo, warned=()) for undo in self.undos)
        under_way = self.under_way if now.pending is not None else ()
        history = replace(self, undos=undos, under_way=under_way)
        if asked.origin == "undo" or asked.cancel:
            return history
        applied = _leave_out(applied, self.under_way)
        if not applied.applied:
            return history
        left = with_implied_policy(applied.applied)
        undo = Undo(
            _reverse(applied, now.state), tuple(_spell(left).items()), applied.version,
            trial=asked.trial_s is not None, number=applied.trial,
        )  # fmt: skip
        return replace(history, undos=(*undos, undo)[-_MOST:], has_changed=True)

    def prune(self, now: InForce) -> UndoHistory:
        """Without latest changes that changed nothing, or that a trial has taken back."""
        undos = self.undos
        while undos and (undos[-1].is_reverted(now) or undos[-1].is_in_force(now)):
            if undos[-1].find_moves(now) and not undos[-1].trial:
                break
            undos = undos[:-1]
        return replace(self, undos=undos)

    @property
    def latest(self) -> Change | None:
        """The wish that takes this console's last change back; None without one."""
        return self.undos[-1].want if self.undos else None

    def explain_empty(self) -> str:
        """Why there is nothing to take back."""
        if self.has_changed:
            return "nothing left to undo"
        if self.was_restarted:
            return "nothing to undo: the engine was restarted since this console has changed it"
        return "nothing to undo: this console has changed nothing"

    def restart(self) -> UndoHistory:
        """That of a new life of the engine."""
        return UndoHistory(was_restarted=self.has_changed or self.was_restarted)

    def find_unknown(self, in_doubt: Change | None, key_label: KeyLabel) -> str | None:
        """That the latest change is one that may not have been made; None where that has been said.

        `in_doubt` is what was asked for last, where the engine has not told whether it made it.
        """
        if in_doubt is None or in_doubt.cancel or in_doubt.origin == "undo":
            return None
        if self.undos and self.unknown == in_doubt:
            return None
        undo, what = key_label("change.undo"), format_changes({}, in_doubt.knobs())
        then = (
            f"{undo} again undoes the change before it"
            if self.undos
            else f"{undo} undoes it once a reading tells of it"
        )
        return f"not known whether {what} was made: {then}"

    def find_doubt(self, now: InForce, key_label: KeyLabel) -> str | None:
        """Who moved what the last change had set; None where it is as this console left it.

        None as well where that has been said and the same is in force still.
        """
        undo = self.undos[-1]
        moved = undo.find_moves(now)
        if not moved or moved == undo.warned:
            return None
        who = _who(now.state, moved)
        if undo.is_in_force(now):
            return f"nothing to undo: {who}, which is what it was before"
        keys = "; ".join(
            f"{key_label(_KEYS.get(name, 'parameters.edit'))} sets {name}" for name, _, _ in moved
        )
        asked = ", ".join(f"{name} {value}" for name, value in _asked_knobs(undo.want).items())
        return f"not undone: {who}: {keys}; {key_label('change.undo')} again sets {asked}"

    def warn(self, now: InForce) -> UndoHistory:
        """After the doubt is said: the next press may go on, or has nothing to do."""
        undo = self.undos[-1]
        if undo.is_in_force(now):
            return replace(self, undos=self.undos[:-1])
        return replace(self, undos=(*self.undos[:-1], replace(undo, warned=undo.find_moves(now))))

    def take(self) -> UndoHistory:
        """While the last change is being taken back."""
        return replace(self, undos=self.undos[:-1], under_way=(*self.under_way, self.undos[-1]))

    def restore(self) -> UndoHistory:
        """After an undo that was refused: what it would have taken back still can be."""
        undone = tuple(reversed(self.under_way))
        return replace(self, undos=(*self.undos, *undone)[-_MOST:], under_way=())


def _leave_out(applied: AppliedChange, undone: tuple[Undo, ...]) -> AppliedChange:
    """A change without what of it takes others back, whose undo is no undo of it."""
    back = {name: value for undo in undone for name, value in undo.want.knobs().items()}
    own = [name for name, value in applied.applied.items() if back.get(name, _OTHER) != value]

    def keep(knobs: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in knobs.items() if k in own or k not in applied.applied}

    undo = None if applied.undo is None else keep(applied.undo)
    return replace(applied, before=keep(applied.before), applied=keep(applied.applied), undo=undo)


def _reverse(applied: AppliedChange, state: EngineState | None) -> Change:
    """What takes a change back; a k of one's own has ended the policy of before."""
    from specdeck.engine.operations.record import knobs_to_undo

    before = knobs_to_undo(applied)
    policy = before.get("policy")
    if policy is None and "k" in before and state is not None:
        policy = state.policy if state.policy != "fixed" else None
    breaker: Literal["open", "closed"] | None = None
    if (was := before.get("breaker")) is not None:
        breaker = "open" if was in ("open", "probe") else "closed"
    parameters = {
        name: "none" if value is None else value for name, value in before.items() if "." in name
    }
    return Change(
        k=before.get("k"),
        mode=before.get("mode"),
        policy=policy,
        breaker=breaker,
        probe=was == "probe",
        parameters=parameters or None,
        reason="undo",
        origin="undo",
    )


def _who(state: EngineState | None, moved: Moves) -> str:
    """Who moved it since, as far as the engine's last change tells."""
    last = None if state is None else state.last_change
    after = _spell(last.after) if last is not None else {}
    what = ", ".join(f"{name} {left} → {now}" for name, left, now in moved)
    if last is None or not any(after.get(name) == now for name, _, now in moved):
        alone = [name for name, _, _ in moved] == ["breaker"]
        return f"{'the engine' if alone else 'somebody'} changed {what} since"
    why = f" ({last.reason})" if last.reason and last.reason != KEY else ""
    return f"{last.who} changed {what} since{why}"


def _asked_knobs(wish: Change) -> dict[str, str]:
    """The knobs of a wish; a breaker that recovers by itself is open."""
    knobs = wish.knobs()
    return _spell({**knobs, "breaker": "open"} if wish.probe else knobs)


def _spell(knobs: dict[str, Any]) -> dict[str, str]:
    from specdeck.engine.operations.assignments import format_argument

    return {name: format_argument(value) for name, value in knobs.items()}
