"""What a reply with cohorts may be: bounded, as a reader compares its words with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.cohorts import (
    MOST_CELLS,
    Cohort,
    CohortCell,
    CohortCounts,
    Cohorts,
    CohortWord,
)

COUNTS = CohortCounts(1, 9, 4, 0, 2, (2, 1), (1, 0))
USUAL = Cohort("4-15", "0%", "4-15", "none", "none", "greedy", "no", "stop")
TOLD = Cohorts(
    "i", 1.0, (CohortCell(USUAL, COUNTS),), (CohortWord("prompt", "4-15", COUNTS),), COUNTS,
    6, (6, 3), (3, 0),
)  # fmt: skip


def told(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    found = TOLD.as_json()
    change(found)
    return found


def test_what_a_plugin_tells_comes_back_as_it_was() -> None:
    assert Cohorts.from_json(TOLD.as_json()) == TOLD


def add_prompts(found: dict[str, Any]) -> None:
    (cell,) = found["cells"]
    found["cells"] = [
        {**cell, "cohort": {**cell["cohort"], "prompt": f"{n}-{n + 1}"}} for n in range(40)
    ]


def add_cells(found: dict[str, Any]) -> None:
    found["cells"] = list(found["cells"]) * (MOST_CELLS * 16 + 1)


def lengthen_a_word(found: dict[str, Any]) -> None:
    found["cells"][0]["cohort"]["adapter"] = "a" * 81


def shorten_positions(found: dict[str, Any]) -> None:
    found["cells"][0]["counts"]["accepted_per_position"] = (1,)


def deepen_positions(found: dict[str, Any]) -> None:
    for counts in (found, found["unfinished"], found["cells"][0]["counts"],
                   found["folded"][0]["counts"]):  # fmt: skip
        counts["drafted_per_position"] = counts["accepted_per_position"] = (1,) * 2_000


def count_below_zero(found: dict[str, Any]) -> None:
    found["cells"][0]["counts"]["drafts"] = -1


def fold_by_anything(found: dict[str, Any]) -> None:
    found["folded"][0]["by"] = "weather"


@pytest.mark.parametrize(
    "change",
    [
        add_prompts, add_cells, lengthen_a_word, shorten_positions, deepen_positions,
        count_below_zero, fold_by_anything,
    ],
)  # fmt: skip
def test_more_than_any_engine_tells_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    with pytest.raises(WrongType):
        Cohorts.from_json(told(change))
