"""What drift is: a fingerprint that differs from its pin, reported once for as long as it does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdeck.engine.fingerprint.compare import Comparison, compare
from specdeck.engine.fingerprint.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True)
class Drift:
    """An engine that no longer matches its pin, or matches it again."""

    t: float
    """Unix time, seconds."""
    pin: Path
    comparison: Comparison

    @property
    def line(self) -> str:
        """For one line: an event, or a message on stderr."""
        if self.comparison.same:
            return f"as pinned again: {self.pin.name}"
        return f"drift from {self.pin.name}: {'; '.join(self.comparison.lines())}"

    def as_json(self) -> dict[str, Any]:
        """What a webhook gets; names and words, and no facts."""
        found = self.comparison
        return {
            "event": "fingerprint.restored" if found.same else "fingerprint.drift",
            "kind": "drift",
            "t": round(self.t, 3),
            "engine": found.after.url,
            "pin": str(self.pin),
            "verdict": found.verdicts[0][0],
            "text": self.line,
            "layers": found.layers,
            "before": found.before.names,
            "after": found.after.names,
            "system_fingerprint": {
                "before": found.before.system_fingerprint,
                "after": found.after.system_fingerprint,
                "moved": found.system_fingerprint_moved,
            },
            "differences": [one.line() for one in found.differences[:20]],
        }


class DriftDetector:
    """Compares fingerprints with one pin, and knows what it has reported already.

    A k that moves on while it differs from its pin anyway is no second drift.
    """

    def __init__(self, pinned: Fingerprint, place: Path) -> None:
        self.pinned = pinned
        self.place = place
        self._reported: frozenset[str] = frozenset()

    def detect(self, found: Fingerprint, t: float) -> tuple[Comparison, Drift | None]:
        """The comparison with the pin at Unix time `t`, and the drift where that is news."""
        comparison = compare(self.pinned, found)
        differing: frozenset[str] = frozenset()
        if not comparison.same:
            facts = (one.fact for one in comparison.differences)
            differing = frozenset((*facts, *(kind for kind, _ in comparison.verdicts)))
        is_news, self._reported = differing != self._reported, differing
        return comparison, Drift(t, self.place, comparison) if is_news else None
