"""Dummy steps of one shape: what is asked for with `POST /v1/specdeck/calibrate`, and the reply.

The standard library only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from specdeck.engine.protocol.codec import Count, DraftLength, Within, WrongType, read_record

MOST_BATCH = 4096
MOST_STEPS = 16
_Seconds = Annotated[float, Within(1e-7, 1e6)]


@dataclass(frozen=True, slots=True)
class StepShape:
    """What dummy steps look like.

    >>> StepShape.from_json({"batch": 4, "k": 3, "steps": 5}).tokens
    16
    """

    batch: int
    """Requests in a step, from 1."""
    k: DraftLength
    """Tokens that each of them verifies, and has drafted."""
    steps: int = 4
    """How many of them."""

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.batch * (1 + self.k)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The shape that a client asks for; raises WrongType on nonsense."""
        if isinstance(data, dict) and (unknown := data.keys() - {"batch", "k", "steps"}):
            raise WrongType(f"unknown key {min(map(str, unknown))!r:.40}")
        found = read_record(cls, data)
        if not 1 <= found.batch <= MOST_BATCH:
            raise WrongType(f"batch is 1 to {MOST_BATCH}")
        if not 1 <= found.steps <= MOST_STEPS:
            raise WrongType(f"steps is 1 to {MOST_STEPS}")
        return found

    def as_json(self) -> dict[str, Any]:
        """For the wire."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DummySteps:
    """What dummy steps of one shape took."""

    instance: str
    """Which start of the engine made them."""
    batch: Count
    k: DraftLength
    seconds: tuple[_Seconds, ...]
    """Of each; empty where they were interrupted before the first."""
    interrupted: bool
    """Whether they ended early, since somebody asked the engine for something."""
    real_s: _Seconds | None = None
    """What a real step of this shape takes, where the engine has measured some; seconds."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The reply of a plugin; raises WrongType on nonsense."""
        return read_record(cls, data)

    def as_json(self) -> dict[str, Any]:
        """For the wire."""
        return asdict(self)
