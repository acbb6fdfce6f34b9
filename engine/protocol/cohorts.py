"""What finished requests drafted, by the kind of request: the reply to `GET /v1/specdeck/cohorts`.

A *cohort* is all requests that have the same word in each of eight dimensions. Nothing in it
comes from a prompt but its length, and no request is named. Adapters' names, the only words that
an operator chooses, are made safe by the plugin. The standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from operator import add
from typing import Any, Self

from specdeck.engine.protocol.codec import K_MOST, Count, UnixTime, WrongType, read_record

OTHER = "other"
"""The word for whatever has none of its own: more adapters than are told apart, for one."""
NONE = "none"
"""No adapter, no structure."""
MOST_ADAPTERS = 16
"""Adapters that are told apart at a time, the most seen ones."""
MOST_CELLS = 512
"""Cohorts that are told apart at a time, those seen last."""
_MOST_RANKS = 16
"""Data-parallel ranks with cells of their own that a reply is read for."""
_MOST_WORDS = 32
"""Of a dimension; of adapters each rank has its own. A reader compares each with each."""
_LONGEST_WORD = 80


@dataclass(frozen=True, slots=True)
class Cohort:
    """A kind of request, by one word of each dimension."""

    prompt: str
    """Tokens of the prompt, by powers of four: `0`, `1-3`, `4-15`, … `262144+`."""
    cached: str
    """Share of the prompt that came from the prefix cache: `0%`, `1-24%`, … `75-100%`; `other`
    where the request was never scheduled."""
    output: str
    """Tokens generated, as `prompt`."""
    adapter: str
    """Name of the LoRA adapter; `none`, or `other` for those not among the most seen."""
    structured: str
    """What the output had to obey, and the draft does not know: a structure (`json`, `regex`,
    `choice`, `grammar`, …), `allowed_tokens`, `logit_bias`, `bad_words`, `penalties`; or `none`."""
    temperature: str
    """`greedy` or `sampled`."""
    pinned: str
    """`yes` for a request with a k of its own, `no` otherwise."""
    finish: str
    """`stop`, `length`, `abort`, `error` or `repetition`."""


DIMENSIONS: tuple[str, ...] = tuple(field.name for field in fields(Cohort))
BROUGHT = ("prompt", "cached", "adapter", "structured", "temperature")
"""Dimensions that a request brings along; the others are what came of it."""


@dataclass(frozen=True, slots=True)
class CohortCounts:
    """What requests did in all; positions count from the first drafted token."""

    requests: Count
    prompt_tokens: Count
    output_tokens: Count
    preemptions: Count
    drafts: Count
    drafted_per_position: tuple[Count, ...]
    """Drafts that had a token at each position; length k_max."""
    accepted_per_position: tuple[Count, ...]
    """Drafts whose token at each position was accepted."""

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return sum(self.drafted_per_position)

    @property
    def accepted(self) -> int:
        """Drafted tokens that were accepted."""
        return sum(self.accepted_per_position)

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def observed_k(self) -> float | None:
        """Tokens of a draft; None without drafts."""
        return self.drafted / self.drafts if self.drafts else None

    def accepted_of_first(self, depth: int) -> float | None:
        """What was accepted of the first `depth` tokens of drafts, as a share; None without any.

        >>> CohortCounts(1, 9, 30, 0, 10, (10, 10, 5), (8, 6, 1)).accepted_of_first(2)
        0.7
        """
        drafted = sum(self.drafted_per_position[:depth])
        return sum(self.accepted_per_position[:depth]) / drafted if drafted else None


_PLAIN = 5
"""Figures that are not by position."""


def _list_figures(counts: CohortCounts) -> list[int]:
    plain = (
        counts.requests, counts.prompt_tokens, counts.output_tokens, counts.preemptions,
        counts.drafts,
    )  # fmt: skip
    return [*plain, *counts.drafted_per_position, *counts.accepted_per_position]


def _read_figures(figures: Sequence[int], k_max: int) -> CohortCounts:
    by_position = figures[_PLAIN:]
    drafted, accepted = tuple(by_position[:k_max]), tuple(by_position[k_max:])
    requests, prompt, output, preemptions, drafts = figures[:_PLAIN]
    return CohortCounts(requests, prompt, output, preemptions, drafts, drafted, accepted)


def no_counts(k_max: int) -> CohortCounts:
    """What nobody did.

    >>> no_counts(2).accepted_per_position
    (0, 0)
    """
    return CohortCounts(0, 0, 0, 0, 0, (0,) * k_max, (0,) * k_max)


def sum_counts(counts: Iterable[CohortCounts], k_max: int) -> CohortCounts:
    """All of them together."""
    total = _list_figures(no_counts(k_max))
    for each in counts:
        total = list(map(add, total, _list_figures(each)))
    return _read_figures(total, k_max)


def _list_fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


@dataclass(frozen=True, slots=True)
class CohortCell:
    """A cohort, and what its requests did since the cell was made."""

    cohort: Cohort
    counts: CohortCounts


@dataclass(frozen=True, slots=True)
class CohortWord:
    """All requests with one word of one dimension."""

    by: str
    """The dimension."""
    word: str
    counts: CohortCounts


@dataclass(frozen=True, slots=True)
class Cohorts:
    """Finished requests by cohort, since the plugin took hold.

    The cells, what was folded and what is unfinished are together `drafts`, `drafted_per_position`
    and `accepted_per_position`: vLLM's own counters at that moment.
    """

    instance: str
    t: UnixTime
    """Unix time, seconds."""
    cells: tuple[CohortCell, ...]
    """At most `MOST_CELLS`, of several data-parallel ranks for each."""
    folded: tuple[CohortWord, ...]
    """What left `cells` for cohorts that were seen later, dimension by dimension: each of them
    has all of it. Empty where there is room for all."""
    unfinished: CohortCounts
    """Of requests under way; their tokens are counted when they finish."""
    drafts: Count
    drafted_per_position: tuple[Count, ...]
    accepted_per_position: tuple[Count, ...]

    @property
    def k_max(self) -> int:
        """The length of what is told by position."""
        return len(self.drafted_per_position)

    def sum_finished(self) -> CohortCounts:
        """All finished requests together."""
        folded = (word.counts for word in self.folded if word.by == DIMENSIONS[0])
        return sum_counts((*(cell.counts for cell in self.cells), *folded), self.k_max)

    def by_word(self) -> dict[tuple[str, str], CohortCounts]:
        """Finished requests by dimension and word; those of a dimension are all of them."""
        found = {(each.by, each.word): _list_figures(each.counts) for each in self.folded}
        for cell in self.cells:
            row = _list_figures(cell.counts)
            for pair in zip(DIMENSIONS, astuple(cell.cohort), strict=True):
                had = found.get(pair)
                found[pair] = row if had is None else list(map(add, had, row))
        return {pair: _read_figures(row, self.k_max) for pair, row in found.items()}

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists, for the wire."""
        # By hand: `asdict` copies every figure, which takes a server ten times as long.
        return {
            **_list_fields(self),
            "cells": [
                {"cohort": _list_fields(cell.cohort), "counts": _list_fields(cell.counts)}
                for cell in self.cells
            ],
            "folded": [
                {**_list_fields(each), "counts": _list_fields(each.counts)} for each in self.folded
            ],
            "unfinished": _list_fields(self.unfinished),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What a plugin sent; raises WrongType on nonsense, and for more than any engine tells."""
        for name in ("cells", "folded"):
            _require_few(data.get(name), name, MOST_CELLS * _MOST_RANKS)
        found = read_record(cls, data)
        _check_words(found)
        inside = (*(cell.counts for cell in found.cells), *(each.counts for each in found.folded))
        _check_positions([found, found.unfinished, *inside])
        return found


def _require_few(told: object, name: str, most: int) -> None:
    if isinstance(told, Sequence) and len(told) > most:
        raise WrongType(f"{name} has more than {most} of them")


def _check_words(found: Cohorts) -> None:
    words: dict[str, set[str]] = {name: set() for name in DIMENSIONS}
    for cell in found.cells:
        for name, word in zip(DIMENSIONS, astuple(cell.cohort), strict=True):
            words[name].add(word)
    for each in found.folded:
        if each.by not in words:
            raise WrongType("folded.by is no dimension")
        words[each.by].add(each.word)
    for name, told in words.items():
        most = (MOST_ADAPTERS + 2) * _MOST_RANKS if name == "adapter" else _MOST_WORDS
        if len(told) > most or any(len(word) > _LONGEST_WORD for word in told):
            raise WrongType(f"{name} has more than {most} words, or too long ones")


def _check_positions(counted: Iterable[CohortCounts | Cohorts]) -> None:
    lengths = set()
    for each in counted:
        lengths |= {len(each.drafted_per_position), len(each.accepted_per_position)}
    if len(lengths) != 1 or max(lengths) > K_MOST:
        raise WrongType("positions are not the same everywhere")


def merge_cohorts(replies: Sequence[Cohorts]) -> Cohorts:
    """Those of several data-parallel ranks, as those of one engine; the first one's name and time.

    >>> counts = CohortCounts(1, 9, 4, 0, 2, (2,), (1,))
    >>> words = ("4-15", "0%", "4-15", "none", "none", "greedy", "no", "stop")
    >>> rank = Cohorts("i", 1.0, (CohortCell(Cohort(*words), counts),), (), counts, 4, (4,), (2,))
    >>> both = merge_cohorts([rank, rank])
    >>> len(both.cells), both.sum_finished().drafts, both.unfinished.drafts, both.drafts
    (1, 4, 4, 8)
    """
    first, k_max = replies[0], replies[0].k_max
    cells: dict[Cohort, list[CohortCounts]] = {}
    folded: dict[tuple[str, str], list[CohortCounts]] = {}
    for reply in replies:
        for cell in reply.cells:
            cells.setdefault(cell.cohort, []).append(cell.counts)
        for each in reply.folded:
            folded.setdefault((each.by, each.word), []).append(each.counts)
    return Cohorts(
        first.instance,
        first.t,
        tuple(CohortCell(cohort, sum_counts(each, k_max)) for cohort, each in cells.items()),
        tuple(CohortWord(*pair, sum_counts(each, k_max)) for pair, each in folded.items()),
        sum_counts((reply.unfinished for reply in replies), k_max),
        sum(reply.drafts for reply in replies),
        tuple(map(sum, zip(*(each.drafted_per_position for each in replies), strict=True))),
        tuple(map(sum, zip(*(each.accepted_per_position for each in replies), strict=True))),
    )
