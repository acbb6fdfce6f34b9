"""An engine's three names as they were last looked at, and whether one differs from its pin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdeck.engine.operations.drift import Named


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


def fold_names(event: Named, old: FingerprintNames | None) -> FingerprintNames:
    """The names after a fetch; a behaviour that was known of the same path stays known."""
    found, comparison = event.fingerprint, event.comparison
    behaviour = found.names["behaviour"]
    if behaviour is None and old is not None and old.path == found.path:
        behaviour = old.behaviour
    differs = None
    if comparison is not None and not comparison.same:
        moved = (layer for layer in ("build", "path", "behaviour") if comparison.layers[layer])
        differs = next(moved, "path")
    reading = None if found.progress.finished else found.progress.line()
    return FingerprintNames(
        found.build, found.path, behaviour, reading, comparison is not None, differs
    )
