"""How a sweep has left the engine: as it was found, or otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from specdeck.engine.errors import SpecdeckError

Left = Literal["untouched", "restored", "changed", "restarted", "not_restored", "unknown"]
"""untouched: nothing was turned; restored: it is as it was found; changed: somebody else has turned
it meanwhile, which stays; restarted: it is as its config says; not_restored: it has what the sweep
turned; unknown: it could not be looked at."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an engine was left, by its own state."""

    left: Left = "untouched"
    breaker: str | None = None
    """Its breaker by then; None where that is not known."""
    has_breaker_opened: bool = False
    """Whether it was found closed, and is not any more."""
    lease_s: float | None = None
    """Seconds within which the engine takes what was turned back by itself; None where it has no
    lease of the sweep any more."""
    version: int | None = None
    """The control version by then, or of what the sweep turned last; None where it turned
    nothing."""
    error: SpecdeckError | None = None
    """What kept the sweep from giving it back, or from looking at it."""

    @property
    def is_left_turned(self) -> bool:
        """Whether the engine has, or may have, what the sweep turned."""
        return self.left in ("not_restored", "unknown")

    def line(self, after: Mapping[str, Any] | None) -> str:
        """Of an engine that may be left turned; `after` are its knobs, None where not known.

        >>> print(Ending("not_restored", lease_s=6.2).line({"k": 2, "mode": "speculate"}))
        NOT given back: the engine has k=2 mode=speculate; it takes that back by itself within 7 s
        >>> print(Ending("unknown", lease_s=8.0, error=SpecdeckError("no answer")).line(None))
        not known whether k is given back: no answer; the engine does so by itself within 8 s
        >>> print(Ending("unknown").line(None))
        not known whether k is given back; the engine was to do so by itself by now
        """
        why = "" if self.error is None else f": {self.error.line()}"
        within = None if self.lease_s is None else f"by itself within {ceil(self.lease_s)} s"
        if self.left == "unknown" or after is None:
            does = f"does so {within}" if within else "was to do so by itself by now"
            return f"not known whether k is given back{why}; the engine {does}"
        later = f"; it takes that back {within}" if within else ""
        return f"NOT given back{why}: the engine has {knob_words(after)}{later}"


UNTOUCHED = Ending()


def knob_words(found: Mapping[str, Any]) -> str:
    """Knobs and values; how target-only is made goes without saying.

    >>> knob_words({"k": 3, "mode": "speculate", "policy": "fixed", "fallback": "warm"})
    'k=3 mode=speculate policy=fixed'
    """
    return " ".join(f"{name}={value}" for name, value in found.items() if name != "fallback")
