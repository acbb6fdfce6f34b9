"""An engine's three names as they were last looked at, and whether one differs from its pin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdeck.engine.fingerprint.drift import Sight


@dataclass(frozen=True, slots=True)
class FingerprintNames:
    """The names of build, path and behaviour."""

    build: str
    path: str
    behaviour: str | None = None
    """None while the probe set was not asked of this path."""
    reading: str | None = None
    """How far the engine is with reading its weights; None when it is done."""
    pinned: bool = False
    """Whether there is a pin to differ from."""
    differs: str | None = None
    """The layer that differs from its pin, the lowest one; None when none does."""


def note_sight(sight: Sight, old: FingerprintNames | None) -> FingerprintNames:
    """The names after a look; a behaviour that was known of the same path stays known."""
    seen, found = sight.seen, sight.comparison
    behaviour = seen.names["behaviour"]
    if behaviour is None and old is not None and old.path == seen.path:
        behaviour = old.behaviour
    differs = None
    if found is not None and not found.same:
        moved = (layer for layer in ("build", "path", "behaviour") if found.layers[layer])
        differs = next(moved, "path")
    reading = None if seen.progress.finished else seen.progress.line()
    return FingerprintNames(seen.build, seen.path, behaviour, reading, found is not None, differs)
