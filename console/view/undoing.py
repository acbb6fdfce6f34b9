"""Taking this console's changes back, and leaving what somebody else has changed since."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specdeck.console.view.track import KEY, Track, Undo, Want
from specdeck.console.widgets.format import Spelt
from specdeck.engine.control.protocol import Applied, with_implied_policy

_KEPT = 50
"""Changes that can be taken back, one after the other."""
_KEYS = {
    "k": "k.set", "mode": "mode.toggle", "policy": "policy.auto", "breaker": "breaker.toggle",
}  # fmt: skip
"""Whose key sets a knob."""


def noted(track: Track, asked: Want, applied: Applied) -> Track:
    """The track after an answer, with what takes the change back."""
    undos = tuple(replace(undo, doubted=()) for undo in track.undos)
    undoing = track.undoing if track.want is not None else ()
    track = replace(track, undos=undos, undoing=undoing)
    if asked.origin == "undo" or asked.cancel:
        return track
    left = with_implied_policy(applied.applied)
    undo = Undo(
        _back(track, applied), tuple(_spelt(left).items()), applied.version,
        trial=asked.trial_s is not None,
    )  # fmt: skip
    return replace(track, undos=(*undos, undo)[-_KEPT:], steered=True)


def _back(track: Track, applied: Applied) -> Want:
    """What takes a change back; a k of one's own has ended the policy of before."""
    from specdeck.engine.control.observe import back

    before = back(applied)
    policy = before.get("policy")
    if policy is None and "k" in before and track.known is not None:
        policy = track.known.policy if track.known.policy != "fixed" else None
    breaker = before.get("breaker")
    parameters = tuple(
        (name, "none" if value is None else value) for name, value in before.items() if "." in name
    )
    return Want(
        before.get("k"), before.get("mode"), policy, "undo",
        breaker if breaker in (None, "open", "probe") else "closed", parameters,
        origin="undo",
    )  # fmt: skip


def ready(track: Track) -> Track:
    """The track without latest changes that changed nothing, or that a trial has taken back."""
    while track.undos:
        last = track.undos[-1]
        if not _in_force(track, last) or (_moved(track, last) and not last.trial):
            break
        track = replace(track, undos=track.undos[:-1])
    return track


def latest(track: Track) -> Want | None:
    """The wish that takes this console's last change back; None without one."""
    return track.undos[-1].want if track.undos else None


def nothing(track: Track) -> str:
    """Why there is nothing to take back."""
    if track.steered:
        return "nothing left to undo"
    return "nothing to undo: this console has changed nothing"


def doubt(track: Track, spelt: Spelt) -> str | None:
    """Who moved what the last change had set; None where it is as this console left it.

    None as well where that has been said and the same is in force still.
    """
    undo = track.undos[-1]
    moved = _moved(track, undo)
    if not moved or moved == undo.doubted:
        return None
    who = _who(track, moved)
    if _in_force(track, undo):
        return f"nothing to take back: {who}, which is what it was before"
    keys = "; ".join(
        f"{spelt(_KEYS.get(name, 'parameters.edit'))} sets {name}" for name, _, _ in moved
    )
    wished = ", ".join(f"{name} {value}" for name, value in _wished(undo.want).items())
    return f"not undone: {who}: {keys}; {spelt('change.undo')} again sets {wished}"


def doubted(track: Track) -> Track:
    """The track once the doubt is said: the next press may go on, or needs no more."""
    undo = track.undos[-1]
    if _in_force(track, undo):
        return replace(track, undos=track.undos[:-1])
    said = replace(undo, doubted=_moved(track, undo))
    return replace(track, undos=(*track.undos[:-1], said))


def taking(track: Track) -> Track:
    """The track while its last change is being taken back."""
    return replace(track, undos=track.undos[:-1], undoing=(*track.undoing, track.undos[-1]))


def restored(track: Track) -> Track:
    """The track after an undo that was refused: what it would have taken back still can be."""
    undone = tuple(reversed(track.undoing))
    return replace(track, undos=(*track.undos, *undone)[-_KEPT:], undoing=())


def _who(track: Track, moved: tuple[tuple[str, str, str], ...]) -> str:
    """Who moved it since, as far as the engine's last change tells."""
    last = None if track.known is None else track.known.last_change
    after = _spelt(last.after) if last is not None else {}
    what = ", ".join(f"{name} {left} → {now}" for name, left, now in moved)
    if last is None or not any(after.get(name) == now for name, _, now in moved):
        alone = [name for name, _, _ in moved] == ["breaker"]
        return f"{'the engine' if alone else 'somebody'} changed {what} since"
    why = f" ({last.reason})" if last.reason and last.reason != KEY else ""
    return f"{last.who} changed {what} since{why}"


def _moved(track: Track, undo: Undo) -> tuple[tuple[str, str, str], ...]:
    """The knobs that are not as this console left them: name, as it was left, as it is."""
    now = _present(track, undo.version)
    return tuple((name, left, now[name]) for name, left in undo.left if now.get(name, left) != left)


def _in_force(track: Track, undo: Undo) -> bool:
    """Whether everything is already as it was before the change."""
    now, wished = _present(track, undo.version), with_implied_policy(_wished(undo.want))
    return all(now.get(name) == value for name, value in wished.items())


def _wished(want: Want) -> dict[str, str]:
    """The knobs of a wish; a breaker that recovers by itself is open."""
    breaker = "open" if want.breaker == "probe" else want.breaker
    knobs = {"k": want.k, "mode": want.mode, "policy": want.policy, "breaker": breaker}
    asked = {name: value for name, value in knobs.items() if value is not None}
    return _spelt({**asked, **dict(want.parameters)})


def _present(track: Track, version: int) -> dict[str, str]:
    """What is in force, and what is wished on top of it; no older word than of `version`."""
    state, tuning = track.known, track.tuning
    if state is None:
        return {}
    found: dict[str, Any] = {
        "k": state.k_set, "mode": state.mode, "policy": state.policy, "breaker": state.breaker,
    }  # fmt: skip
    if tuning is not None and tuning.instance == state.instance and tuning.version >= version:
        found |= {each.name: each.value for each in tuning.parameters}
    last = state.last_change
    if last is not None and state.version > version:
        found |= {name: value for name, value in last.after.items() if "." in name}
    if track.want is not None:
        found |= with_implied_policy(_wished(track.want))
    return _spelt(found)


def _spelt(knobs: dict[str, Any]) -> dict[str, str]:
    from specdeck.engine.control.observe import spelled

    return {name: spelled(value) for name, value in knobs.items()}
