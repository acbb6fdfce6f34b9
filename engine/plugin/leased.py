"""Knobs on lease: when they are taken back, and to what."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Self

from specdeck.engine.plugin.knobs import Knobs

logger = logging.getLogger("vllm.specdeck")

_AGAIN_S = 1.0
"""Seconds until a lease that could not be taken back is tried again."""


@dataclass(frozen=True, slots=True)
class Leased:
    """The lease in force on one engine."""

    ends: float
    """By the controller's clock, seconds."""
    back: Knobs
    tries: int = 3
    """To take it back, before it is given up."""

    def tried(self, now: float) -> Self | None:
        """The lease should taking it back fail at `now`; None when this is the last try."""
        if self.tries <= 1:
            logger.error("specdeck tries for the last time to take a lease back")
            return None
        return replace(self, ends=now + _AGAIN_S, tries=self.tries - 1)
