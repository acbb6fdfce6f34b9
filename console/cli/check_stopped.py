"""What `specdeck check` says after a signal: how far it came, and whether it goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdeck.engine.divergence.runner import Found, Progress

if TYPE_CHECKING:
    from specdeck.engine.divergence.lab import Lab


@dataclass(slots=True)
class Standing:
    """How far a check is."""

    of: int
    """Prompts there are."""
    fresh: bool = False
    """Whether the command begins anew whenever it is given."""
    done: int = 0
    kept: bool = True
    """Whether what was done is found again by the same command."""
    named: bool = True
    """Whether the engines are known again after a restart."""
    finished: bool = False

    def opened(self, lab: Lab, *, stored: bool, anew: bool) -> None:
        """The arms are known; `anew` is a reference that this command starts for itself."""
        self.named = all(arm.facts.fingerprint is not None for arm in lab.arms)
        # Its port is another the next time, and only a whole fingerprint stands for it then.
        self.kept = stored and not (anew and lab.arms[1].key()["url"] is not None)

    def also(self, said: Callable[[Progress | Found], None]) -> Callable[[Progress | Found], None]:
        """`said`, with this hearing of everything before it."""

        def heard(event: Progress | Found) -> None:
            if isinstance(event, Progress):
                self.done = event.done
            said(event)

        return heard

    def line(self) -> str:
        """One line for the operator.

        >>> Standing(200, done=30).line()
        'stopped after 30 of 200 prompts: the same command goes on from there'
        >>> Standing(200, done=30, kept=False).line()
        'stopped after 30 of 200 prompts: the same command begins anew'
        """
        if self.finished:
            return "stopped when all was compared: `specdeck check URL --history` shows it"
        if not self.done:
            return "stopped before any prompt was compared"
        far = f"stopped after {self.done} of {self.of} prompts"
        if not self.kept:
            return f"{far}: the same command begins anew"
        same = "the same command without --fresh" if self.fresh else "the same command"
        while_ = "" if self.named else ", unless an engine is restarted"
        return f"{far}: {same} goes on from there{while_}"
