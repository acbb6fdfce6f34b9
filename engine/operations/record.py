"""What was done to an engine, in the audit log: a change, a trial, and what came of either.

A change is written down before it is asked for, with an unknown outcome, and again with the
engine's word: whoever is killed in between leaves an entry. A log that cannot be written is told
once the engine has made the change, and takes nothing back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from specdeck.engine.errors import (
    Conflict,
    NoReply,
    SpecdeckError,
    Stalled,
    Unauthorized,
    Unreachable,
    Unsupported,
    UsageError,
)
from specdeck.engine.operations.assignments import format_undo
from specdeck.engine.protocol.messages import AppliedChange, Change, Origin
from specdeck.engine.store.audit import Action, Outcome


def is_refusal(error: SpecdeckError) -> bool:
    """Whether the engine has not done what was asked for; else it may have.

    >>> is_refusal(Conflict("changed by bob")), is_refusal(Unreachable("refuses connections"))
    (True, True)
    >>> is_refusal(NoReply("closed the connection")), is_refusal(SpecdeckError("answers 500"))
    (False, False)
    """
    if isinstance(error, NoReply | Stalled):
        return False
    return isinstance(error, Conflict | Unsupported | Unauthorized | UsageError | Unreachable)


class Audit(Protocol):
    """Remembers every change; every method raises SpecdeckError where it cannot."""

    def add(self, action: Action) -> int:
        """Writes a change down; the number of its entry, for `set_observed`."""

    def replace(self, entry: int, action: Action) -> None:
        """Writes what has come of a change in the place of what was asked for."""

    def remove(self, entry: int) -> None:
        """Takes out a change that was asked for and has not been made."""

    def set_observed(self, entry: int, draft_tokens_per_draft: float) -> None:
        """Adds what the counters showed after the change."""

    def set_outcome(self, entry: int, outcome: Outcome) -> None:
        """Writes what has come of a change beside what the engine said of it."""


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """The engine did what was asked, and the audit log could not be written."""

    error: SpecdeckError


@dataclass(slots=True)
class ChangeRecord:
    """The entries of one change of one engine."""

    audit: Audit
    change: Change
    url: str
    engine: str
    """What people call it."""
    wall: Callable[[], float]
    """Unix time, seconds."""
    _entry: int | None = None
    """The first entry, that of the change itself; None where it could not be written."""
    _asked: int | None = None
    """The entry of what was asked for, until it is known what came of it."""

    def ask(self, before: Mapping[str, Any], *, instance: str | None) -> None:
        """Writes down what will be asked for of an engine that has the knobs `before`.

        A log that cannot be written is told by `add`, which tries again.
        """
        action = Action(
            t=self.wall(), who=self.change.who or "", url=self.url, engine=self.engine,
            before=dict(before), after=self.change.knobs(),
            undo=format_undo(self.url, dict(before)), instance=instance,
            reason=self.change.reason, origin=self.change.origin, outcome="unknown",
        )  # fmt: skip
        with suppress(SpecdeckError):
            self._asked = self.audit.add(action)

    def fail(self, error: SpecdeckError) -> None:
        """Takes back what `ask` wrote, where the engine has not made the change by this error."""
        entry, self._asked = self._asked, None
        if entry is not None and is_refusal(error):
            with suppress(SpecdeckError):
                self.audit.remove(entry)

    def add(
        self,
        applied: AppliedChange,
        *,
        instance: str | None,
        after: Mapping[str, Any] | None = None,
        reason: str | None = None,
        origin: Origin | None = None,
        observed: float | None = None,
    ) -> NotRecorded | None:
        """Writes down what the engine made of the change; whether, and why, that failed.

        `instance` is the start of the engine. What is not given is as the change has it.
        """
        action = Action(
            t=self.wall(),
            who=self.change.who or "",
            url=self.url,
            engine=self.engine,
            before=applied.before,
            after=applied.applied if after is None else dict(after),
            undo=self.undo(applied),
            instance=instance,
            reason=self.change.reason if reason is None else reason,
            origin=self.change.origin if origin is None else origin,
            observed=observed,
        )
        asked, self._asked = self._asked, None
        try:
            if asked is None:
                entry = self.audit.add(action)
            else:
                self.audit.replace(entry := asked, action)
        except SpecdeckError as error:
            return NotRecorded(error)
        self._entry = entry if self._entry is None else self._entry
        return None

    def add_observed(self, k: float) -> NotRecorded | None:
        """Adds to the first entry what the counters showed; whether, and why, that failed."""
        if self._entry is None:
            return None
        try:
            self.audit.set_observed(self._entry, k)
        except SpecdeckError as error:
            return NotRecorded(error)
        return None

    def deny(self) -> None:
        """Writes down that the change is not in force, whatever the engine said of it.

        What fails by now failed at the change, or will be seen there.
        """
        if self._entry is not None:
            with suppress(SpecdeckError):
                self.audit.set_outcome(self._entry, "not made")

    def undo(self, applied: AppliedChange) -> str:
        """The command that takes the change back."""
        return format_undo(self.url, knobs_to_undo(applied))


def knobs_to_undo(applied: AppliedChange) -> dict[str, Any]:
    """What takes a change back: the engine's own word for it, or the knobs as they were."""
    return applied.before if applied.undo is None else applied.undo
