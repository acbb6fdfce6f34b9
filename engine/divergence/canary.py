"""A canary: does the engine still differ where it always did, and no more often?

Night after night the same prompts are asked, each twice of both arms, and every engine has some
whose answers are close calls. A change is called where two things speak for it at once:

* *By prompt.* Where nothing has changed, the nights of one prompt could have come in any order:
  of a prompt that differed in c of T nights, the latest is one of these with the chance c / T. How
  much likelier tonight is, had differences become θ times as frequent, is a fair bet for every
  prompt, whatever its own rate. These bets know which prompts differ, and take them to be
  independent.
* *By night.* A busy night makes many prompts differ at once. So the night as a whole is ranked
  among all nights, by how many pairs differ in it: where nothing has changed every rank is equally
  likely, whatever the prompts of a night have in common, and independent of the ranks before it
  (Vovk's conformal test). Bets on a high rank multiply; ties count against a change.

Summed over all nights at which the change may have come (Shiryaev and Roberts), the second passes
`LIMIT` in honest nights once in as many at most, on average, however often one looks; so both do no
more often. As ranks of few nights prove little, differences that are *many* times as frequent are
called by prompt alone: beyond what a night explains that is `BUSY` times as noisy as others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
BUSY = 2.5
"""How many times as often as usual prompts may differ in a night in which nothing has changed."""
GROSS = (5.0, 10.0)
"""By how much differences have become more frequent where no night is as noisy by itself."""
GROSS_LIMIT = 10_000.0
"""Held against the evidence for that: with LIMIT, a false alarm in 900 nights at most."""
LEAST_NIGHTS = 14
"""Before so many there is too little past to tell a change from a busy week."""
_WIDTHS = (1, 2, 3)
"""A night after the change is bet to be among so many highest, for each night since then."""
_STAKE = 0.9
_MOST_STARTS = 60
"""Nights at which a change may have come that are told apart; earlier ones are one."""
_MOST_NIGHTS = 2000
"""That tonight is ranked among: the latest."""
_MOST_LOG = 60.0
_MOST_EVIDENCE = 1e15
"""Far beyond the limit, and a number that the store gives back."""
_Nights = Annotated[int, Within(0, 1_000_000)]
_Evidence = Annotated[float, Within(0.0, _MOST_EVIDENCE)]


@dataclass(frozen=True, slots=True)
class Canary:
    """What is known of an engine's nights since its baseline was pinned."""

    nights: _Nights = 0
    counts: Mapping[str, tuple[_Nights, _Nights]] = field(default_factory=dict)
    """Nights in which one pair of answers of a prompt differed, and both; by its hash.

    Prompts that never did are left out.
    """
    evidence: tuple[_Evidence, ...] = (0.0,) * len(FACTORS)
    """By prompt, that differences became so much more frequent, for each of FACTORS."""
    gross: tuple[_Evidence, ...] = (0.0,) * len(GROSS)
    """The same for each of GROSS, where a night may be BUSY."""
    nightly: tuple[_Nights, ...] = ()
    """Pairs of answers that differed in each night, tonight's last."""
    starts: tuple[_Evidence, ...] = ()
    """By night, that the change came tonight, a night before, and so on."""
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
    def by_prompt(self) -> float:
        """The evidence that knows which prompts differ."""
        return sum(self.evidence) / len(self.evidence)

    @property
    def by_night(self) -> float:
        """The evidence that knows how nights vary."""
        return sum(self.starts)

    @property
    def is_beyond_limit(self) -> bool:
        """Whether the evidence of tonight is enough to speak of a change."""
        if sum(self.gross) / len(self.gross) >= GROSS_LIMIT:
            return True
        return min(self.by_prompt, self.by_night) >= LIMIT

    def next_night(self, differing: Mapping[str, int]) -> Self:
        """After one more night, with how many pairs (1 or 2) of which prompts differed in it."""
        nights, counts = self.nights + 1, dict(self.counts)
        for one, pairs in differing.items():
            once, twice = counts.get(one, (0, 0))
            counts[one] = (once + (pairs == 1), twice + (pairs == 2))
        pairs = sum(differing.values())
        nightly = (*self.nightly, pairs)[-_MOST_NIGHTS:]

        def weigh(
            evidence: Iterable[float], factors: Iterable[float], busy: float
        ) -> Iterator[float]:
            for before, factor in zip(evidence, factors, strict=True):
                bet = _bet(factor, pairs, counts.values(), nights, busy)
                yield min((before + 1) * exp(min(_MOST_LOG, bet)), _MOST_EVIDENCE)

        found = type(self)(
            nights,
            counts,
            evidence=tuple(weigh(self.evidence, FACTORS, 1.0)),
            gross=tuple(weigh(self.gross, GROSS, BUSY)),
            nightly=nightly,
            starts=_weigh_rank(self.starts, nightly),
            since=self.since,
            differing=pairs,
            expected=sum(once + 2 * twice for once, twice in counts.values()) / nights,
        )
        if found.since is None and found.is_beyond_limit:
            return replace(found, since=nights)
        return found

    def line(self) -> str:
        """One line for the operator.

        >>> Canary(30, {"a": (0, 30)}, differing=2, expected=2.0).line()
        'as before: 2 pairs of answers differ, usually 2.0 a night over 30 nights'
        >>> Canary(3).line().rpartition("; ")[2]
        'judged from night 14'
        """
        differ = "differs" if self.differing == 1 else "differ"
        pairs, nights = format_count(self.differing, "pair"), format_count(self.nights, "night")
        usual = f"usually {self.expected:.1f} a night over {nights}"
        said = f"{self.word}: {pairs} of answers {differ}, {usual}"
        if self.since is not None:
            said += f"; more often since night {self.since} or shortly before"
        elif self.word == "too early":
            said += f"; judged from night {LEAST_NIGHTS}"
        return said

    def as_json(self, *, counts: bool = True) -> dict[str, Any]:
        """Plain values, for the store; without `counts`, for a report."""
        said = {"word": self.word, "limit": LIMIT, "by_night": self.by_night}
        data = {**said, **asdict(self)}
        if not counts:
            for name in ("counts", "nightly", "starts"):
                del data[name]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Self:
        """What `as_json` gave; the beginning where there is nothing. Raises WrongType."""
        if not data:
            return cls()
        found = read_record(cls, data, "canary")
        if any(once + twice > found.nights for once, twice in found.counts.values()):
            raise WrongType("canary.counts has more nights than there were")
        same = len(found.evidence) == len(FACTORS) and len(found.gross) == len(GROSS)
        return found if same else cls()


def _bet(
    factor: float, pairs: int, counts: Iterable[tuple[int, int]], nights: int, busy: float
) -> float:
    """The logarithm of how much likelier tonight is with `factor` times the odds than `busy`."""
    usual = (
        log(
            (nights + once * (factor - 1) + twice * (factor**2 - 1))
            / (nights + once * (busy - 1) + twice * (busy**2 - 1))
        )
        for once, twice in counts
    )
    return pairs * log(factor / busy) - sum(usual)


def _weigh_rank(starts: Sequence[float], nightly: Sequence[int]) -> tuple[float, ...]:
    """The evidence for each night at which the change may have come, after the latest."""
    rank, of = sum(one >= nightly[-1] for one in nightly), len(nightly)
    found = [
        min(before * _bet_on_rank(rank, of, since), _MOST_EVIDENCE)
        for since, before in enumerate((1.0, *starts), start=1)
    ]
    latest, first = found[: _MOST_STARTS - 1], found[_MOST_STARTS - 1 :]
    return (*latest, min(sum(first), _MOST_EVIDENCE)) if first else tuple(latest)


def _bet_on_rank(rank: int, of: int, since: int) -> float:
    """How much likelier a night is `rank`th of so many that is one of `since` after a change.

    Over all ranks the mean is 1.

    >>> round(sum(_bet_on_rank(rank, 31, 4) for rank in range(1, 32)), 9)
    31.0
    """
    reaches = [min(of, width * since) for width in _WIDTHS]
    bet = sum(of / reach for reach in reaches if rank <= reach) / len(reaches)
    return 1 - _STAKE + _STAKE * bet
