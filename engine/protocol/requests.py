"""What runs in an engine right now: the reply to `GET /v1/specdeck/requests`.

Never a prompt, nor anything of an answer, nor vLLM's id of a request, which its client may have
chosen: requests are told apart by the order in which they came. The standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, Self

from specdeck.engine.protocol.codec import Count, DraftLength, UnixTime, read_record

MOST_RUNNING = 256
MOST_WAITING = 64
MOST_FINISHED = 64
"""Requests of each kind in a reply, of each data-parallel rank."""
MOST_RANKS = 16
"""As many ranks' requests are read at most; `running` and `waiting` count those of all."""


@dataclass(frozen=True, slots=True)
class RequestLine:
    """One request, under way or finished."""

    number: Count
    """Counts requests since the plugin took hold."""
    state: str
    """`running`, `waiting` or `preempted`; of a finished one why it ended: `stop`, `length`, …"""
    age_s: float
    """Since it arrived, seconds; of a finished one until it ended."""
    prompt_tokens: Count
    output_tokens: Count
    k: DraftLength | None
    """The k of its own; None where it has the engine's."""
    drafts: Count
    drafted: Count
    accepted: Count
    preemptions: Count
    cached: str
    """The words of its cohort, as `protocol.cohorts` has them."""
    adapter: str
    structured: str
    temperature: str
    rank: Count = 0
    """The data-parallel rank that has it."""
    ended: UnixTime | None = None
    """Unix time; None while it is under way."""

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests under way, and those that ended last."""

    instance: str
    t: UnixTime
    """Unix time, seconds."""
    k: DraftLength
    """The k of requests that have none of their own."""
    running: Count
    waiting: Count
    """All of them; `active` may have fewer."""
    active: tuple[RequestLine, ...]
    finished: tuple[RequestLine, ...]
    """The newest first."""

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists, for the wire."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What a plugin sent; raises WrongType on nonsense.

        Of each rank no more is kept than a plugin tells: a reply is long enough for thousands of
        lines, which would be drawn and searched at every look.
        """
        found = read_record(cls, data)
        return replace(
            found,
            active=_cut(found.active, MOST_RUNNING + MOST_WAITING),
            finished=_cut(found.finished, MOST_FINISHED),
        )


def _cut(lines: tuple[RequestLine, ...], most: int) -> tuple[RequestLine, ...]:
    """At most so many lines of each rank, in their order."""
    if len(lines) <= most:
        return lines
    counts: dict[int, int] = {}
    kept = []
    for line in lines:
        if line.rank not in counts and len(counts) == MOST_RANKS:
            continue
        counts[line.rank] = counts.get(line.rank, 0) + 1
        if counts[line.rank] <= most:
            kept.append(line)
    return tuple(kept)


def merge_requests(replies: Sequence[Requests]) -> Requests:
    """Those of several data-parallel ranks, each with its rank.

    >>> one = Requests("i", 1.0, 5, 1, 2, (), ())
    >>> both = merge_requests([one, one])
    >>> both.running, both.waiting
    (2, 4)
    """
    told = [
        [
            tuple(replace(line, rank=rank) for line in lines)
            for lines in (each.active, each.finished)
        ]
        for rank, each in enumerate(replies)
    ]
    finished = chain.from_iterable(ended for _, ended in told)
    return replace(
        replies[0],
        running=sum(each.running for each in replies),
        waiting=sum(each.waiting for each in replies),
        active=tuple(chain.from_iterable(active for active, _ in told)),
        finished=tuple(sorted(finished, key=lambda line: -(line.ended or 0.0))),
    )
