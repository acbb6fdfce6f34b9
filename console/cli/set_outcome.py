"""What became of a change that `specdeck set` asked for: said as it goes, printed at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from specdeck.console.cli.output import log
from specdeck.engine.operations.assignments import format_argument
from specdeck.engine.operations.change import (
    ChangeApplied,
    ChangeEvent,
    ChangeNotObserved,
    ChangeObserved,
    NotRecorded,
)
from specdeck.engine.operations.trial import (
    TrialEnded,
    TrialEvent,
    TrialSeen,
    TrialStopped,
    TrialUnseen,
)
from specdeck.engine.protocol.messages import Applied, Change
from specdeck.engine.protocol.tuning import TrialTuning
from specdeck.engine.text import UNKNOWN

_PHASES = {"baseline": "measuring the baseline", "changed": "measuring the change"}


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """A change that the engine has made, or has tried."""

    change: Change
    applied: Applied
    """The engine's word."""
    ack_ms: float
    """From the request to the engine's word, milliseconds."""
    undo: str
    """The command that takes the change back; empty where none can be given."""
    observed_k: float | None = None
    """Draft tokens per draft in steps after the change; None where none was seen."""
    observed_after_ms: float | None = None
    trial: TrialTuning | None = None
    """Of a judged change, as far as the engine has come with it."""

    @property
    def in_force(self) -> Mapping[str, Any]:
        """The knobs that the change turns, as they are by now."""
        if self.trial is None or not self.trial.over:
            return self.applied.applied
        return self.trial.after if self.trial.state == "kept" else self.trial.before

    def as_json(self) -> dict[str, Any]:
        """The keys of `set --json`."""
        k, after = self.observed_k, self.observed_after_ms
        found = {
            "requested": self.change.knobs(),
            "applied": dict(self.in_force),
            "before": self.applied.before,
            "ack_ms": round(self.ack_ms, 1),
            "observed_k": None if k is None else round(k, 3),
            "observed_after_ms": None if after is None else round(after),
            "undo": self.undo,
        }
        return found if self.trial is None else {**found, "trial": asdict(self.trial)}


@dataclass(slots=True)
class Narrator:
    """Says on stderr what happens to one change, and knows how things stand at any moment."""

    change: Change
    url: str
    attended: bool = False
    """Whether a trial is stayed with until its verdict."""
    on_line: Callable[[str], None] = log
    later: list[str] = field(default_factory=list)
    """What is said once the outcome is printed."""
    stopped: TrialStopped | None = None
    """What became of an attended trial that was cut short."""
    _begun: ChangeApplied | None = None
    _observed: tuple[float | None, float | None] = (None, None)
    _trial: TrialTuning | None = None
    _phase: tuple[str, int] | None = None

    def take(self, event: ChangeEvent | TrialEvent) -> None:
        """Says what is worth a line at once, and keeps what the outcome is made of."""
        if isinstance(event, ChangeApplied):
            self._begun = event
            for notice in event.applied.notices:
                self._say(notice)
            if event.is_dormant:
                self.later.append("k takes effect when speculation is back on")
        elif isinstance(event, NotRecorded):
            self._say(f"{self._made}, but it is not in the audit log: {event.error.line()}")
        elif isinstance(event, ChangeObserved):
            self._observed = (event.k, event.after_ms)
        elif isinstance(event, ChangeNotObserved):
            self.later.append(event.line())
        elif isinstance(event, TrialSeen):
            self._see(event.trial)
        elif isinstance(event, TrialUnseen) and event.error is not None:
            self.later.append(f"the trial has started and is not visible yet: {event.error.line()}")
        elif isinstance(event, TrialEnded):
            self._trial = event.trial
            self._observed = (event.observed_k, event.observed_after_ms)
            self._say(f"trial {event.trial.state}: {event.trial.reason}")

    def outcome(self) -> ChangeOutcome:
        """What became of it; there is none before the engine's word."""
        assert self._begun is not None
        begun, (k, after) = self._begun, self._observed
        return ChangeOutcome(
            self.change, begun.applied, begun.ack_ms, begun.undo, k, after, self._trial
        )

    def standing(self) -> str:
        """How things stand after a signal, and what to do."""
        lease = self.change.lease_s
        later = "" if lease is None else f"; the engine reverts it within {lease:g} s"
        if self._begun is None:
            look = f"`specdeck watch {self.url} --count 1` shows what is in force"
            return f"no reply from the engine yet: {look}{later}"
        if self.stopped is not None:
            return self.stopped.line()
        if self.attended:
            return f"the change is asked for{later}"
        undo = self._begun.undo
        return f"{self._made}: `{undo}` reverts it{later}" if undo else f"{self._made}{later}"

    @property
    def _made(self) -> str:
        return "the trial has started" if self.change.judge else "the change is made"

    def _see(self, trial: TrialTuning) -> None:
        """Says what a trial does, once for each of its phases and every ten seconds of work."""
        self._trial = trial
        left = trial.seconds_left
        phase = (trial.state, -1 if left is None else int(left // 10))
        if phase != self._phase:
            self._phase = phase
            self._say(f"trial: {_PHASES[trial.state]}, {left or 0:.0f} s of work left")

    def _say(self, line: str) -> None:
        self.on_line(f"specdeck: {line}")


def outcome_lines(outcome: ChangeOutcome) -> list[str]:
    """The outcome for a person, one thing a line.

    >>> applied = Applied({"k": 5}, {"k": 3}, version=1, step=9)
    >>> lines = outcome_lines(ChangeOutcome(
    ...     Change(k=3), applied, 12.14, "specdeck set URL k=5", 3.0, 340.2))
    >>> print(*lines, sep="\\n")
    requested  k=3
    applied    k=3 (was k=5), after 12 ms
    observed   3.00 draft tokens per draft, after 340 ms
    undo       specdeck set URL k=5
    """
    trial, k, after = outcome.trial, outcome.observed_k, outcome.observed_after_ms
    state = None if trial is None else trial.state
    lines = [f"requested  {_format_knobs(outcome.change.knobs())}", _format_applied(outcome)]
    if k is None:
        lines.append("observed   –")
    else:
        when = "" if after is None else f", after {after:.0f} ms"
        on_trial = " while on trial" if state == "reverted" else ""
        lines.append(f"observed   {k:.2f} draft tokens per draft{on_trial}{when}")
    if trial is not None:
        reason = f": {trial.reason}" if trial.reason else ""
        lines.append(f"trial      {trial.state}{reason}")
    if state not in ("reverted", "abandoned"):
        lines.append(f"undo       {outcome.undo or UNKNOWN}")
    return lines


def _format_applied(outcome: ChangeOutcome) -> str:
    """What the engine did: made the change, or tried it."""
    trial = outcome.trial
    if trial is None or trial.state in ("kept", "changed"):
        was = f"was {_format_knobs(outcome.applied.before)}"
        now = _format_knobs(outcome.in_force)
        return f"applied    {now} ({was}), after {outcome.ack_ms:.0f} ms"
    before = _format_knobs(trial.before)
    stands = {
        "reverted": f"reverted: {before} applies again",
        "abandoned": f"not made: {before} still applies",
        "baseline": f"not made yet: {before} is being measured",
    }[trial.state]
    return f"on trial   {_format_knobs(trial.after)}, {stands}"


def _format_knobs(knobs: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={format_argument(value)}" for name, value in knobs.items())
