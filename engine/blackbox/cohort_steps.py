"""Cohorts as the black box stores them: whole now and then, in between what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final

from specdeck.engine.blackbox.row import Damaged
from specdeck.engine.protocol.codec import Count, WrongType, read_value
from specdeck.engine.protocol.cohorts import (
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    CohortWord,
)

MOST_STEPS: Final = 30
"""Changes from one whole to the next: half an hour of them."""
MOST_COHORTS: Final = 8_192
"""Of one moment: as many as a reply of several data-parallel ranks may tell."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is written of one moment."""

    whole: bool
    data: dict[str, Any]
    """JSON values."""


def write_step(base: Cohorts | None, cohorts: Cohorts) -> Step:
    """What leads from `base` to `cohorts`; all of it without a base, and in another life."""
    if base is not None and (base.instance, base.k_max) != (cohorts.instance, cohorts.k_max):
        base = None
    if base is not None and not _words(base) <= _words(cohorts):
        base = None  # what was folded is never taken back in one life
    had = {} if base is None else {cell.cohort: cell.counts for cell in base.cells}
    words = {} if base is None else {(one.by, one.word): one.counts for one in base.folded}
    stay = {cell.cohort for cell in cohorts.cells}
    return Step(
        base is None,
        {
            "instance": cohorts.instance,
            "t": cohorts.t,
            "cells": [
                [*astuple(cell.cohort), _write_counts(cell.counts)]
                for cell in cohorts.cells
                if had.get(cell.cohort) != cell.counts
            ],
            "gone": [astuple(cohort) for cohort in had if cohort not in stay],
            "folded": [
                [one.by, one.word, _write_counts(one.counts)]
                for one in cohorts.folded
                if words.get((one.by, one.word)) != one.counts
            ],
            "unfinished": _write_counts(cohorts.unfinished),
            "drafts": cohorts.drafts,
            "drafted": cohorts.drafted_per_position,
            "accepted": cohorts.accepted_per_position,
        },
    )


def read_steps(steps: Iterable[Mapping[str, Any]]) -> Cohorts | None:
    """The cohorts after all `steps`, the first of them whole; None without any.

    The cells may stand in another order than they did. Raises Damaged for what is no step.
    """
    cells: dict[Cohort, CohortCounts] = {}
    folded: dict[tuple[str, str], CohortCounts] = {}
    found: Cohorts | None = None
    try:
        for step in steps:
            for words in read_value(tuple[tuple[str, ...], ...], step.get("gone"), "gone"):
                cells.pop(_cohort(words), None)
            for cell in read_value(tuple[tuple[Any, ...], ...], step.get("cells"), "cells"):
                words = read_value(tuple[str, ...], cell[:-1], "cells")
                cells[_cohort(words)] = _read_counts(cell[-1:])
                if len(cells) > MOST_COHORTS:
                    raise Damaged("more kinds of requests than any engine tells apart")
            for word in read_value(tuple[tuple[str, str, Any], ...], step.get("folded"), "folded"):
                folded[word[0], word[1]] = _read_counts(word[2:])
            found = Cohorts.from_json(
                {
                    "instance": step.get("instance"),
                    "t": step.get("t"),
                    "cells": (),
                    "folded": (),
                    "unfinished": _read_counts([step.get("unfinished")]),
                    "drafts": step.get("drafts"),
                    "drafted_per_position": step.get("drafted"),
                    "accepted_per_position": step.get("accepted"),
                }
            )
    except WrongType as error:
        raise Damaged(str(error)) from None
    if found is None:
        return None
    return Cohorts(
        found.instance,
        found.t,
        tuple(CohortCell(cohort, counts) for cohort, counts in cells.items()),
        tuple(CohortWord(*pair, counts) for pair, counts in folded.items()),
        found.unfinished,
        found.drafts,
        found.drafted_per_position,
        found.accepted_per_position,
    )


def _words(cohorts: Cohorts) -> set[tuple[str, str]]:
    return {(one.by, one.word) for one in cohorts.folded}


def _cohort(words: tuple[str, ...]) -> Cohort:
    if len(words) != len(Cohort.__slots__):
        raise Damaged("a cohort of other dimensions")
    return Cohort(*words)


def _write_counts(counts: CohortCounts) -> list[Any]:
    return [
        counts.requests, counts.prompt_tokens, counts.output_tokens, counts.preemptions,
        counts.drafts, counts.drafted_per_position, counts.accepted_per_position,
    ]  # fmt: skip


def _read_counts(value: Any) -> CohortCounts:
    """The counts in a list of one."""
    hint = tuple[Count, Count, Count, Count, Count, tuple[Count, ...], tuple[Count, ...]]
    if len(value) != 1:
        raise Damaged("a cohort without counts")
    return CohortCounts(*read_value(hint, value[0], "counts"))
