"""Requests that accept nothing, left without drafts for a while: the batch's k is for the others.

drafts ── N looks in a row without an accepted token ──▶ rests ── M looks over ──▶ tried
  ▲                                                        ▲                        │
  └─────────────── something accepted ─────────────────────┼────────────────────────┤
                                                           └── nothing again: M x 2 ┘
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Final

EVERY: Final = 4
"""Steps from one look to the next: a look goes through all requests of the step."""
TRIED_LOOKS: Final = 2
"""Looks in a row without an accepted token that end a try."""
REST_LOOKS: Final = 16
MOST_REST_LOOKS: Final = 128


class _Request:
    """One request that accepted nothing lately."""

    __slots__ = ("looks", "rest", "rests_until")

    def __init__(self) -> None:
        self.looks = 0
        """In a row without an accepted token, of those at which it had a draft."""
        self.rest = REST_LOOKS
        """Looks that its next rest lasts."""
        self.rests_until = 0
        """The look at which it is tried again; 0 while it drafts."""


class Fruitless:
    """Knows which requests rest; what it does not know of accepted something lately.

    >>> found = Fruitless(looks=3)
    >>> for _ in range(3):
    ...     moved = found.look(drafted=["a", "b"], accepted=["b"])
    >>> moved, sorted(found.resting)
    (True, ['a'])
    """

    def __init__(self, looks: int) -> None:
        """`looks` in a row without an accepted token put a request to rest."""
        self.looks = looks
        self.resting: set[str] = set()
        """Requests that are to have no drafts."""
        self._known: dict[str, _Request] = {}
        self._now = 0

    def look(self, drafted: Iterable[str], accepted: Collection[str]) -> bool:
        """Takes in one step; whether `resting` is another one now.

        `drafted` are the requests whose drafts the step verified, `accepted` those of them that
        had a token accepted.
        """
        self._now += 1
        before = len(self.resting)
        moved = False
        known = self._known
        for request_id in drafted:
            if request_id in accepted:
                if request_id in known:
                    del known[request_id]
                    self.resting.discard(request_id)
                continue
            one = known.get(request_id)
            if one is None:
                one = known[request_id] = _Request()
            if one.rests_until:
                continue  # drafted before it was put to rest
            one.looks += 1
            if one.looks >= self.looks:
                one.rests_until = self._now + one.rest
                one.rest = min(2 * one.rest, MOST_REST_LOOKS)
                one.looks = max(0, self.looks - TRIED_LOOKS)
                self.resting.add(request_id)
                moved = True
        for request_id in [each for each in self.resting if known[each].rests_until <= self._now]:
            known[request_id].rests_until = 0
            self.resting.discard(request_id)
            moved = True
        return moved or len(self.resting) != before

    def keep(self, living: Container[str]) -> None:
        """Lets go of requests that have ended."""
        for request_id in [each for each in self._known if each not in living]:
            del self._known[request_id]
            self.resting.discard(request_id)

    def clear(self) -> None:
        """Has every request draft again."""
        self._known.clear()
        self.resting.clear()
