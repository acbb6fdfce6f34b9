"""A canary: does the engine still differ where it always did, and no more often?

Night after night the same prompts are asked, each twice of both arms, and every engine has some
whose answers are close calls. Where nothing has changed, the nights of one prompt could have come
in any order: of a prompt that differed in c of T nights, the latest is one of these with the chance
c / T. How much likelier tonight is, had differences become θ times as frequent, is then a fair bet
for every prompt, whatever its own rate. The bets of the nights are independent, so that they
multiply, and the sum over all nights at which the change may have come (Shiryaev and Roberts)
passes `LIMIT` in honest nights once in as many at most, on average, however often one looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import exp, log
from typing import Annotated, Any, Literal, Self

from specdeck.engine.protocol.codec import Within, WrongType, read_record
from specdeck.engine.text import format_count

Word = Literal["as before", "changed", "too early"]

FACTORS = (1.5, 2.0, 3.0, 8.0)
"""By how much differences may have become more frequent; one of them is near enough."""
LIMIT = 1000.0
"""Nights: the mean time between false alarms is as long at least."""
LEAST_NIGHTS = 7
"""Before so many there is too little past to speak of."""
_MOST_LOG = 60.0
_MOST_EVIDENCE = 1e15
"""Far beyond the limit, and a number that the store gives back."""
_Nights = Annotated[int, Within(0, 1_000_000)]


@dataclass(frozen=True, slots=True)
class Canary:
    """What is known of an engine's nights since its baseline was pinned."""

    nights: _Nights = 0
    counts: Mapping[str, tuple[_Nights, _Nights]] = field(default_factory=dict)
    """Nights in which one pair of answers of a prompt differed, and both; by its hash.

    Prompts that never did are left out.
    """
    evidence: tuple[Annotated[float, Within(0.0, _MOST_EVIDENCE)], ...] = (0.0,) * len(FACTORS)
    """That differences became so much more frequent, for each of FACTORS."""
    since: int | None = None
    """The night at which it passed the limit; None while it has not."""
    differing: _Nights = 0
    """Pairs of answers that differed tonight."""
    expected: float = 0.0
    """As many as usual."""

    @property
    def word(self) -> Word:
        """The word on the latest night."""
        if self.since is not None:
            return "changed"
        return "too early" if self.nights < LEAST_NIGHTS else "as before"

    @property
    def total_evidence(self) -> float:
        """What is held against `LIMIT`."""
        return sum(self.evidence) / len(self.evidence)

    def next_night(self, differing: Mapping[str, int]) -> Self:
        """After one more night, with how many pairs (1 or 2) of which prompts differed in it."""
        nights, counts = self.nights + 1, dict(self.counts)
        for one, pairs in differing.items():
            once, twice = counts.get(one, (0, 0))
            counts[one] = (once + (pairs == 1), twice + (pairs == 2))
        pairs = sum(differing.values())
        evidence = tuple(
            min(
                (before + 1) * exp(min(_MOST_LOG, _bet(factor, pairs, counts.values(), nights))),
                _MOST_EVIDENCE,
            )
            for before, factor in zip(self.evidence, FACTORS, strict=True)
        )
        usual = sum(once + 2 * twice for once, twice in counts.values()) / nights
        found = type(self)(nights, counts, evidence, self.since, pairs, usual)
        if found.since is None and found.total_evidence >= LIMIT:
            return replace(found, since=nights)
        return found

    def line(self) -> str:
        """One line for the operator.

        >>> Canary(30, {"a": (0, 30)}, differing=2, expected=2.0).line()
        'as before: 2 pairs of answers differ, 2.0 usually in 30 nights'
        """
        differ = "differs" if self.differing == 1 else "differ"
        pairs, nights = format_count(self.differing, "pair"), format_count(self.nights, "night")
        said = f"{self.word}: {pairs} of answers {differ}, {self.expected:.1f} usually in {nights}"
        if self.since is not None:
            said += f"; more often since night {self.since} or shortly before"
        return said

    def as_json(self, *, counts: bool = True) -> dict[str, Any]:
        """Plain values, for the store; without `counts`, for a report."""
        data = {"word": self.word, "limit": LIMIT, **asdict(self)}
        if not counts:
            del data["counts"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Self:
        """What `as_json` gave; the beginning where there is nothing. Raises WrongType."""
        if not data:
            return cls()
        found = read_record(cls, data, "canary")
        if any(once + twice > found.nights for once, twice in found.counts.values()):
            raise WrongType("canary.counts has more nights than there were")
        return found if len(found.evidence) == len(FACTORS) else cls()


def _bet(factor: float, pairs: int, counts: Iterable[tuple[int, int]], nights: int) -> float:
    """The logarithm of how much likelier tonight is with `factor` times the odds."""
    usual = (
        log(1 + (once * (factor - 1) + twice * (factor**2 - 1)) / nights) for once, twice in counts
    )
    return pairs * log(factor) - sum(usual)
