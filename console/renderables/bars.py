"""Horizontal bars with half-a-cell ends."""

from __future__ import annotations


def bar(share: float | None, width: int) -> tuple[str, str]:
    """A bar of `width` cells: what is filled to `share`, and the track that is left.

    >>> bar(0.5, 5), bar(None, 3), bar(1.0, 3)
    (('━━╸', '──'), ('', '───'), ('━━━', ''))
    """
    halves = 0 if share is None else round(min(1.0, max(0.0, share)) * width * 2)
    whole, rest = divmod(halves, 2)
    return "━" * whole + "╸" * rest, "─" * (width - whole - rest)
