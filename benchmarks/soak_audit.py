"""The changes that an engine has made, against the entries of an audit log.

What was changed is known from two sides: from the replies that passed on the link, and from the
engine itself, which is asked directly for its last change. So a change whose reply nobody got is
known as well. Each console has a name of its own, so that no console's entry stands for another
one's change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.slow_link import AppliedChange

from specdeck.engine.client.engine_client import open_client
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.protocol.messages import EngineState, with_implied_policy
from specdeck.engine.store.audit import Action

LOOK_S = 0.5
WRITTEN_S = 30.0
"""How long after a change its entry may be written: a reply that stalls, or is lost, is looked
for in the engine's state, for fifteen seconds after the client has given up."""
_CLOCKS_S = 1.0
"""By how much an entry may seem to come before the reply."""
_ASKED_S = 30.0
"""By how much the entry of a change may, whose outcome its console did not live to hear."""
_BY_ITSELF = ("sweep", "trial", "policy", "breaker", "lease")
"""Origins of changes without an entry each: a sweep and a trial have theirs, and the engine's own
moves are in its state."""


@dataclass(frozen=True, slots=True)
class MadeChange:
    """One that an engine has made for a console."""

    t: float
    """Unix time, seconds."""
    who: str
    knobs: dict[str, Any]
    """What it turned, as asked and as the engine has it."""
    delivered: bool
    """Whether the reply went on to whoever had asked."""


@dataclass(slots=True)
class Witness:
    """Asks the engine itself, not over the link, for its last change."""

    url: str
    life: Callable[[], int]
    """The number of the engine's life; a version is told apart by it."""
    seen: dict[tuple[int, int], MadeChange] = field(default_factory=dict)
    """By life and control version."""

    async def look(self, until: float) -> None:
        """Looks twice a second, to `until` by the monotonic clock."""
        client = open_client(self.url)
        try:
            while time.monotonic() < until:
                life = self.life()
                try:
                    state = await client.state()
                except SpecdeckError:
                    pass
                else:
                    self._take(life, state)
                await asyncio.sleep(LOOK_S)
        finally:
            await client.close()

    def _take(self, life: int, state: EngineState) -> None:
        last = state.last_change
        if last is not None and life == self.life() and last.origin not in _BY_ITSELF:
            made = MadeChange(last.t, last.who, last.after, delivered=False)
            self.seen.setdefault((life, state.version), made)


def gather_changes(
    replies: Iterable[AppliedChange], witness: Witness, kills: list[float], consoles: set[str]
) -> list[MadeChange]:
    """Every change of a console that either side knows of, the oldest first.

    `kills` are the times at which an engine was killed.
    """
    # By version only where no reply is known: what changes nothing has the version of before.
    found, unseen = [], dict(witness.seen)
    for reply in replies:
        asked = reply.asked
        if asked.get("origin") in _BY_ITSELF or asked.get("renew"):
            continue
        life = sum(kill < reply.t for kill in kills)
        seen = witness.seen.get((life, reply.version))
        knobs = with_implied_policy({**asked, **asked.get("parameters", {})}) | reply.applied
        knobs = knobs if seen is None else {**seen.knobs, **knobs}
        found.append(MadeChange(reply.t, asked.get("who", ""), knobs, reply.delivered))
        unseen.pop((life, reply.version), None)
    ours = (change for change in (*found, *unseen.values()) if change.who in consoles)
    return sorted(ours, key=lambda change: change.t)


def compare_with_log(
    changes: Iterable[MadeChange], entries: Iterable[Action]
) -> tuple[list[MadeChange], list[Action]]:
    """Changes without an entry, and entries without a change; each stands for one of the other.

    An entry is of a change if it is its console's, has its knobs with their values, and was
    written within WRITTEN_S.
    """
    left = [entry for entry in entries if entry.origin not in _BY_ITSELF]
    missing = []
    for change in changes:
        entry = next((one for one in left if _is_of(one, change)), None)
        if entry is None:
            missing.append(change)
        else:
            left.remove(entry)
    return missing, [entry for entry in left if entry.outcome == "applied"]


def _is_of(entry: Action, change: MadeChange) -> bool:
    early_s = _CLOCKS_S if entry.outcome == "applied" else _ASKED_S
    if entry.who != change.who or not -early_s < entry.t - change.t < WRITTEN_S:
        return False
    return all(change.knobs.get(name) == value for name, value in entry.after.items())
