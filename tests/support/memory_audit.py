"""An audit log in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from specdeck.engine.errors import SpecdeckError
from specdeck.engine.store.audit import Action, Outcome


@dataclass
class MemoryAudit:
    """Keeps every entry; one that is full refuses to write."""

    actions: list[Action] = field(default_factory=list)
    full: bool = False

    def add(self, action: Action) -> int:
        self._require_room()
        self.actions.append(action)
        return len(self.actions)

    def replace(self, entry: int, action: Action) -> None:
        self._require_room()
        self.actions[entry - 1] = action

    def remove(self, entry: int) -> None:
        self._require_room()
        del self.actions[entry - 1]

    def set_observed(self, entry: int, draft_tokens_per_draft: float) -> None:
        self._require_room()
        entries = self.actions
        entries[entry - 1] = replace(entries[entry - 1], observed=draft_tokens_per_draft)

    def set_outcome(self, entry: int, outcome: Outcome) -> None:
        self._require_room()
        self.actions[entry - 1] = replace(self.actions[entry - 1], outcome=outcome)

    def _require_room(self) -> None:
        if self.full:
            raise SpecdeckError("the disk is full")


ACTION = Action(
    t=1000.0,
    who="ana",
    url="http://gpu-1:8000",
    engine="demo",
    before={"k": 5},
    after={"k": 3},
    undo="specdeck set http://gpu-1:8000 k=5",
    instance="one",
    reason="trying",
    observed=3.0,
    origin="undo",
)
"""A change as the audit log has it."""
