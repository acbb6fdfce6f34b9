"""Where two sets of answers to one probe part, and how likely chance alone does that.

A greedy engine whose kernels differ from ask to ask takes either side of a close call, and after
it writes another text. Both sets are walked token by token: they part where each goes on after
the same beginning, and with no token in common. An engine that has not changed mixes its answers
over both sets alike, whatever its odds; so that of `n + m` of them just those `n` were the older
ones is one of so many choices.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Answers = Mapping[tuple[int, ...], int]
"""How often each answer, as its tokens, was given."""


@dataclass(frozen=True, slots=True)
class Parting:
    """A beginning that answers of both sets have, and after which they share no token."""

    token: int
    """How many tokens the beginning has."""
    before: int
    after: int
    """Answers of either set that begin so."""

    @property
    def log_chance(self) -> float:
        """The natural logarithm of the chance that one engine's answers fall apart so.

        >>> round(1 / math.exp(Parting(6, before=3, after=3).log_chance))
        20
        """
        ways = math.lgamma(self.before + self.after + 1)
        return math.lgamma(self.before + 1) + math.lgamma(self.after + 1) - ways


def find_partings(before: Answers, after: Answers) -> Iterator[Parting]:
    """Where the answers part, in no order.

    >>> list(find_partings({(1, 2, 3): 2, (1, 9, 9): 1}, {(1, 2, 4): 5, (1, 8, 8): 1}))
    [Parting(token=2, before=2, after=5)]
    >>> list(find_partings({(1, 2): 3}, {(1, 2): 1, (1, 3): 9}))
    []
    """
    pending = [(0, [*before.items()], [*after.items()])]
    while pending:
        token, old, new = pending.pop()
        olds, news = _split(old, token), _split(new, token)
        shared = olds.keys() & news.keys()
        if not shared and old and new:
            yield Parting(token, sum(n for _, n in old), sum(n for _, n in new))
        pending += [(token + 1, olds[one], news[one]) for one in shared if one is not None]


# Lists, as a table of answers would hash each of them once for every token.
_Counted = list[tuple[tuple[int, ...], int]]


def _split(answers: _Counted, at: int) -> dict[int | None, _Counted]:
    """The answers by their token at a place; None is where an answer ends before it."""
    found: dict[int | None, _Counted] = defaultdict(list)
    for tokens, count in answers:
        found[tokens[at] if at < len(tokens) else None].append((tokens, count))
    return found
