"""What the console needs of a load generator."""

from __future__ import annotations

from typing import Protocol


class Load(Protocol):
    """Load that specdeck puts on an engine."""

    @property
    def profile(self) -> str:
        """The profile that runs."""

    def next(self) -> str:
        """Switch to the next profile and name it."""
