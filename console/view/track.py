"""What a screen remembers of one engine: readings folded into one value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from specdeck.console.view.fingerprint_badge import Named
from specdeck.console.widgets.cells import Tone
from specdeck.console.widgets.format import oneline
from specdeck.engine.control.protocol import Change, EngineState, Mode, Origin, Policy, Value
from specdeck.engine.control.tuning import Tuning
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.metrics.reading import Reading

POINTS: Final = 1200
"""Samples kept for the charts; wider terminals do not exist."""
EVENTS: Final = 200
KEY: Final = "key"
"""The reason of a change that has no better one."""
TRIAL_LEASE_S: Final = 15.0
"""A trial of a console that is gone ends after so long, seconds."""


@dataclass(frozen=True, slots=True)
class Point:
    """One reading's share of the charts; None is a gap in the line."""

    t: float
    tokens: float | None = None
    acceptance: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the time axis where something changed."""

    at: int
    """Which reading, counted from the first."""
    label: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in plain words."""

    t: float
    text: str
    tone: Tone = "plain"
    reason: str | None = None
    """The reason that the engine was given, of a change that was made from here."""


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

    @classmethod
    def of(cls, change: Change) -> Self:
        """The wish that a request was made of."""
        parameters = tuple((change.parameters or {}).items())
        trial_s = change.trial_s if change.judge else None
        return cls(
            change.k, change.mode, change.policy, change.reason or "",
            "probe" if change.probe else change.breaker,
            parameters, trial_s, change.cancel, change.origin,
        )  # fmt: skip

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

    def change(self, who: str, version: int | None) -> Change:
        """The request that says so."""
        return Change(
            k=self.k,
            mode=self.mode,
            policy=self.policy,
            breaker="open" if self.breaker == "probe" else self.breaker,
            probe=self.breaker == "probe",
            parameters=dict(self.parameters) or None,
            lease_s=None if self.trial_s is None else TRIAL_LEASE_S,
            judge=self.trial_s is not None,
            trial_s=self.trial_s,
            cancel=self.cancel,
            reason=self.reason,
            who=who,
            expect_version=version,
            origin=self.origin,
        )


@dataclass(frozen=True, slots=True)
class Undo:
    """One change of this console, and what takes it back."""

    want: Want
    left: tuple[tuple[str, str], ...]
    """The knobs as the change has left them, spelt as `specdeck set` takes them."""
    version: int
    """The control version that the change made."""
    trial: bool = False
    """Whether it was on trial, which may have taken it back."""
    doubted: tuple[tuple[str, str, str], ...] = ()
    """Who presses undo has been told that these are no longer as they were left: name, as it
    was left, as it is."""


@dataclass(frozen=True, slots=True)
class Said:
    """The latest reason of a policy that was told."""

    t: float
    text: str | None


@dataclass(frozen=True, slots=True)
class Track:
    """One engine over time, as far as a screen needs it."""

    name: str
    url: str
    recorded: bool = False
    """Whether it is a recording, in which nothing runs that could be asked."""
    reading: Reading | None = None
    """The latest one, whatever it says."""
    figures: Reading | None = None
    """The latest one with a sample: shown muted while the engine is down."""
    known: EngineState | None = None
    """The plugin's last word in this life of the engine, however old."""
    lost: float | None = None
    """Unix time since which the engine answers and its plugin does not."""
    said: Said | None = None
    named: Named | None = None
    """Its fingerprint when it was last looked at; None while nobody looked."""
    tuning: Tuning | None = None
    """The plugin's last word on policy, breaker and trial; asked for while somebody looks."""
    untuned: SpecdeckError | None = None
    """Why the last question for it had no answer."""
    sweeping: bool = False
    """Whether this console sweeps it: k moves all the time then, and that is no news."""
    since: float | None = None
    """Unix time at which the engine came up or went away."""
    points: tuple[Point, ...] = ()
    total: int = 0
    """Readings so far; `points` are the last of them."""
    marks: tuple[Mark, ...] = ()
    events: tuple[Event, ...] = ()
    want: Want | None = None
    version: int | None = None
    """The control version that the next change may expect."""
    undos: tuple[Undo, ...] = ()
    """What takes this console's changes back, the latest last."""
    undoing: tuple[Undo, ...] = ()
    """Those that the engine has been asked for and has not answered."""
    steered: bool = False
    """Whether this console has changed anything in this life of the engine."""

    @property
    def up(self) -> bool | None:
        """Whether the engine answered last time; None before the first reading."""
        return None if self.reading is None else self.reading.up

    @property
    def state(self) -> EngineState | None:
        """The plugin's latest word; None without one or while the engine is down."""
        return None if self.reading is None else self.reading.state

    @property
    def k_wanted(self) -> int | None:
        """The k that the operator has asked for, shown before the engine answers.

        While a policy chooses, the k that it has chosen.
        """
        if self.want is not None and self.want.k is not None:
            return self.want.k
        if self.known is None:
            return None
        return self.known.k_set if self.policy_wanted == "fixed" else self.known.k

    @property
    def mode_wanted(self) -> Mode | None:
        """The mode that the operator has asked for."""
        if self.want is not None and self.want.mode is not None:
            return self.want.mode
        return None if self.known is None else self.known.mode

    @property
    def policy_wanted(self) -> Policy | None:
        """The policy that the operator has asked for; a k of one's own asks for none."""
        if self.want is not None and self.want.policy is not None:
            return self.want.policy
        if self.want is not None and self.want.k is not None:
            return "fixed"
        return None if self.known is None else self.known.policy

    def told(
        self, t: float, text: str, tone: Tone = "plain", *, reason: str | None = None
    ) -> Track:
        """The same with one more event."""
        event = Event(t, oneline(text), tone, reason)
        return replace(self, events=(*self.events, event)[-EVENTS:])

    def marked(self, label: str) -> Track:
        """The same with a mark at the latest reading, where the last change wins."""
        at = self.total - 1
        kept = tuple(mark for mark in self.marks if at - POINTS < mark.at < at)
        return replace(self, marks=(*kept, Mark(at, label)))
