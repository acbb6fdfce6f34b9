"""Something that happened to an engine, as the black box keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, Self, get_args

from specdeck.engine.protocol.codec import OneOf, UnixTime, mend_text
from specdeck.engine.text import oneline

EventKind = Literal[
    "change", "policy", "breaker", "trial", "sweep", "lease", "restart", "down", "up", "control",
    "drift", "alert", "check", "load", "other",
]  # fmt: skip
"""What an event is about: `control` is the plugin's coming and going, `check` one of divergence."""

EVENT_KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)

EventTone = Literal["plain", "good", "warn", "bad", "accent", "muted"]

LONGEST_TEXT: Final = 700
"""Characters of an event; an engine's reasons have 500."""
_LONGEST_WORD: Final = 200


@dataclass(frozen=True, slots=True)
class BoxEvent:
    """One event, in plain words."""

    t: UnixTime
    """Unix time, seconds."""
    kind: Annotated[EventKind, OneOf(EVENT_KINDS)]
    text: str
    """Empty for a mark on the time axis that another event tells of."""
    tone: Annotated[EventTone, OneOf(get_args(EventTone))] = "plain"
    label: str | None = None
    """A short word for the time axis; None where the event leaves no mark there."""
    origin: str | None = None
    """Where a change came from, as `protocol.messages.Origin` has it; None where it is no change,
    or nobody tells."""
    who: str | None = None
    reason: str | None = None

    def shorten(self) -> Self:
        """The same with texts on one line, no longer than an event's, that any terminal shows."""
        return replace(
            self,
            text=_cut(self.text, LONGEST_TEXT),
            label=None if self.label is None else _cut(self.label, _LONGEST_WORD),
            origin=None if self.origin is None else _cut(self.origin, _LONGEST_WORD),
            who=None if self.who is None else _cut(self.who, _LONGEST_WORD),
            reason=None if self.reason is None else _cut(self.reason, LONGEST_TEXT),
        )


def _cut(text: str, longest: int) -> str:
    text = oneline(mend_text(text))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
