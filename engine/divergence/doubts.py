"""What makes an upgrade gate's measurement no evidence, whatever its figures are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdeck.engine.divergence.verdict import IDLE


@dataclass(frozen=True, slots=True)
class Doubt:
    """One engine that was not measured as the figures have it."""

    kind: Literal["replaced", "refused"]
    """`replaced`: another process answers at its URL than before, whatever it serves."""
    engine: str
    """Its URL."""
    refused: int = 0
    """Requests that it would not answer while its speed was measured."""
    asked: int = 0
    """Requests of that time."""

    @property
    def line(self) -> str:
        """For one line.

        >>> Doubt("replaced", "http://e:1").line
        'http://e:1 was restarted or replaced while it was measured'
        >>> Doubt("refused", "http://e:1", 125, 250).line
        'http://e:1 refused 125 of 250 requests while it was measured'
        """
        if self.kind == "replaced":
            why = "was restarted or replaced while it was measured"
        else:
            why = f"refused {self.refused} of {self.asked} requests while it was measured"
        return f"{self.engine} {why}"


def doubt_refusals(engine: str, refused: int, asked: int) -> Doubt | None:
    """The doubt of an engine, a URL, that refused more than a tenth; None where they are few."""
    return Doubt("refused", engine, refused, asked) if refused > IDLE * asked else None
