"""What was asked of an engine and is not seen yet, and what is refused before it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from specdeck.console.widgets.format import KeyLabel
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.protocol.messages import Change, EngineState, Mode, Origin, Policy, Value

KEY: Final = "key"
"""The reason of a change that has no better one."""


@dataclass(frozen=True, slots=True)
class Want:
    """What the operator asked for and the engine has not answered yet."""

    k: int | None = None
    mode: Mode | None = None
    policy: Policy | None = None
    reason: str = KEY
    breaker: Literal["open", "closed", "probe"] | None = None
    parameters: tuple[tuple[str, Value], ...] = ()
    """By their dotted names."""
    trial_s: float | None = None
    """Seconds for which the engine judges it before it keeps it or takes it back."""
    cancel: bool = False
    """Takes back what is on trial; stands alone."""
    origin: Origin = "operator"
    """`undo` where it takes a change of this console back."""

    def then(self, later: Want) -> Want:
        """Both wishes as one; the later one wins where they meet.

        >>> both = Want(k=4).then(Want(k=3)).then(Want(mode="target-only"))
        >>> both.k, both.mode, both.policy
        (3, 'target-only', None)
        >>> Want(policy="goodput").then(Want(k=3)).policy  # a k of one's own ends a policy
        """
        if later.cancel:
            return later
        policy = later.policy or (self.policy if later.k is None else None)
        k = later.k if later.k is not None else self.k
        return Want(
            k, later.mode or self.mode, policy, later.reason, later.breaker or self.breaker,
            tuple({**dict(self.parameters), **dict(later.parameters)}.items()), later.trial_s,
            origin=later.origin,
        )  # fmt: skip

    def as_change(self, who: str, version: int | None) -> Change:
        """The request that says so; `version` is the one that the engine is expected to be at."""
        change = Change(
            k=self.k,
            mode=self.mode,
            policy=self.policy,
            breaker="open" if self.breaker == "probe" else self.breaker,
            probe=self.breaker == "probe",
            parameters=dict(self.parameters) or None,
            cancel=self.cancel,
            reason=self.reason,
            who=who,
            expect_version=version,
            origin=self.origin,
        )
        if self.trial_s is None:
            return change
        from specdeck.engine.operations.trial import as_trial

        return as_trial(change, trial_s=self.trial_s)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a key does nothing, and what would help."""

    reason: str
    remedy: str | None = None

    def line(self) -> str:
        """Both on one line."""
        return f"{self.reason}: {self.remedy}" if self.remedy else self.reason


def find_obstacle(
    want: Want,
    reading: Reading | None,
    *,
    pending: Want | None = None,
    armed: bool = True,
    recorded: bool = False,
    sweeping: bool = False,
    key_label: KeyLabel,
) -> Obstacle | None:
    """Why an engine cannot be asked for this; None where it can.

    `reading` is its latest one, `pending` what it has been asked for and has not answered.

    >>> find_obstacle(Want(k=3), None, key_label=str)
    Obstacle(reason='the engine has not answered yet', remedy=None)
    """
    if recorded:
        return Obstacle("this is a recording: there is no engine to change")
    if reading is None:
        return Obstacle("the engine has not answered yet")
    if not reading.up:
        return Obstacle("the engine is down", "its state is on the screen")
    state = reading.state
    if state is None:
        error = reading.control_error
        if error is None:
            return Obstacle("the engine runs without the specdeck plugin")
        return Obstacle(str(error), error.remedy)
    if not armed:
        return Obstacle("control is read-only", f"press {key_label('control.arm')} to arm it")
    if sweeping:
        stop = key_label("sweep.toggle")
        return Obstacle("a sweep is changing k", f"{stop} stops it and restores k")
    busy = _busy(state, want, pending, key_label)
    if busy is not None:
        return busy
    for name in _capabilities(want):
        able = state.can(name)
        if not able.available:
            return Obstacle(f"{_spoken(name)}: {able.reason or 'not on this engine'}", able.remedy)
    return _beyond(state, want)


def _busy(
    state: EngineState, want: Want, pending: Want | None, key_label: KeyLabel
) -> Obstacle | None:
    if want.cancel and state.trial is None and state.lease is None:
        return Obstacle("no trial is running")
    if want.trial_s is None:
        return None
    if state.trial is not None or state.lease is not None:
        return Obstacle("a trial is already running", f"{key_label('change.undo')} takes it back")
    if pending is not None:
        return Obstacle("a change is pending", "try again once it is applied")
    return None


def _capabilities(want: Want) -> tuple[str, ...]:
    """The capabilities that a wish rests on.

    >>> _capabilities(Want(k=3, policy="goodput"))
    ('live_k', 'policy.goodput')
    """
    policy = None if want.policy is None else f"policy.{want.policy}"
    names = (
        "live_k" if want.k is not None else None, want.mode and "target_only", policy,
        want.breaker and "breaker", "trial" if want.trial_s is not None else None,
    )  # fmt: skip
    return tuple(name for name in names if name)


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("target only", "target-only").replace(".", " ")


def _beyond(state: EngineState, want: Want) -> Obstacle | None:
    if want.k is None or 0 <= want.k <= state.k_max:
        return None
    if want.k < 0:
        return Obstacle("k is 0 already", "+ drafts again")
    return Obstacle(
        f"k_max is {state.k_max}: the engine's buffers are sized by it",
        f"start it with num_speculative_tokens {want.k}",
    )
