"""How many requests full CUDA graphs serve, as an engine says it of each k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdeck.engine.protocol.codec import Count


@dataclass(frozen=True, slots=True)
class Reach:
    """The steps that run from full graphs at one k."""

    requests: Count
    """The most requests of such a step; 0 where there is none."""
    sizes: Count
    """How many of the numbers of requests from 1 to that have one."""


def describe_reach(reach: Reach, k: int) -> str:
    """The reach at one k in words.

    >>> describe_reach(Reach(83, 83), 5)
    'full graphs to 83 requests at k = 5'
    >>> describe_reach(Reach(83, 54), 5)
    'full graphs to 83 requests at k = 5, but for 29 numbers of requests below'
    >>> describe_reach(Reach(0, 0), 2)
    'no full graphs at k = 2'
    """
    if not reach.requests:
        return f"no full graphs at k = {k}"
    words = f"full graphs to {reach.requests} requests at k = {k}"
    gaps = reach.requests - reach.sizes
    return f"{words}, but for {gaps} numbers of requests below" if gaps else words


def describe_all(found: Sequence[Reach]) -> str:
    """The reach at every k that has one.

    >>> describe_all([Reach(0, 0), Reach(128, 107), Reach(83, 83)])
    'full CUDA graphs to 128 requests at k = 1 (107 numbers of them), 83 at k = 2'
    """
    parts = [
        f"{each.requests} at k = {k}"
        + (f" ({each.sizes} numbers of them)" if each.sizes < each.requests else "")
        for k, each in enumerate(found)
        if each.requests
    ]
    parts[:1] = [part.replace(" at", " requests at", 1) for part in parts[:1]]
    return f"full CUDA graphs to {', '.join(parts)}"
