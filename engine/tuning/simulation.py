"""An engine made of recorded steps: policies can be tried on it a million steps at a time.

Steps are those recorded of the same text, batch size and k, played in the order in which
they came and for a stretch at a time: a request that is easy to draft stays so for a while,
and a machine that is slow does too. Where a stretch begins is chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, NamedTuple

from specdeck.engine.policy.observed import Observer, StepSeen

FEWEST = 100
"""Steps of each k from which a batch size counts as recorded."""
_STRETCH = 64
"""Steps that are played in a row while k stays."""


class Drawn(NamedTuple):
    """What one step brought."""

    seconds: float
    committed: int
    drafts: int
    drafted: int
    accepted: tuple[int, ...]


Pools = dict[tuple[str, int, int], list[Drawn]]
"""Steps by text, batch size and k; k had been in force before the step as well."""


class Engine:
    """Plays steps; remembers which k the next one verifies."""

    def __init__(self, pools: Pools, random: Random) -> None:
        self._pools = pools
        self._mixed: dict[tuple[str, int, int, int], list[Drawn]] = {}
        self._random = random.random
        self._verified = 0
        self._played: list[Drawn] = []
        self._at = self._left = 0
        self.t = 0.0

    def step(self, text: str, requests: int, k: int) -> StepSeen:
        """One step at `k`."""
        verified, self._verified = self._verified, k
        settled = verified == k
        pool = self._pools[text, requests, k] if settled else self._mix(text, requests, verified, k)
        if pool is not self._played or not self._left:
            self._played, self._left = pool, _STRETCH
            self._at = int(self._random() * len(pool))
        self._left -= 1
        self._at = at = self._at + 1 if self._at + 1 < len(pool) else 0
        seconds, committed, drafts, drafted, accepted = pool[at]
        self.t = t = self.t + seconds
        return StepSeen(
            t, requests, k, verified, settled, seconds, committed, drafts, drafted, accepted, 0
        )

    def _mix(self, text: str, requests: int, verified: int, k: int) -> list[Drawn]:
        """Steps in which k changes: the tokens of the old k, half the time of each."""
        key = (text, requests, verified, k)
        if key not in self._mixed:
            old, new = self._pools[text, requests, verified], self._pools[text, requests, k]
            self._mixed[key] = [
                was._replace(seconds=(was.seconds + will.seconds) / 2)
                for was, will in zip(old, new, strict=False)
            ]
        return self._mixed[key]


def recorded(texts: Mapping[str, Iterable[Mapping[str, Any]]]) -> Pools:
    """Pools from the plugin's records of steps, by kind of text.

    Batch sizes at which some k has fewer than `FEWEST` steps are left out. At one stream a
    thousand of each k are wanted: what a pool says of its k is as good as its mean.
    """
    found: Pools = {}
    for text, records in texts.items():
        observer = Observer()
        for record in records:
            seen = observer.see(record)
            if seen.settled and not seen.prefill and seen.seconds is not None:
                drawn = Drawn(
                    seen.seconds,
                    seen.committed,
                    seen.drafts,
                    seen.drafted,
                    tuple(seen.accepted),
                )
                found.setdefault((text, seen.requests, seen.k), []).append(drawn)
    depth = 1 + max((k for _, _, k in found), default=0)
    whole = {
        (text, requests)
        for text, requests, _ in found
        if all(len(found.get((text, requests, k), ())) >= FEWEST for k in range(depth))
    }
    return {key: steps for key, steps in found.items() if key[:2] in whole}


def rate(pools: Pools, text: str, requests: int, k: int) -> float:
    """Committed tokens per second at a fixed k."""
    pool = pools[text, requests, k]
    return sum(drawn.committed for drawn in pool) / sum(drawn.seconds for drawn in pool)
