"""Whether requests are accepted as before, whatever k was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from specdeck.engine.incident.acceptance_move import compare_acceptance
from specdeck.engine.incident.case import Side
from specdeck.engine.protocol.cohorts import CohortCounts, no_counts


def count(share: float, ks: Sequence[int]) -> CohortCounts:
    """Of a hundred drafts of each length, where each token is accepted with a share if those before
    it were."""
    had = tuple(sum(100 * (k > place) for k in ks) for place in range(5))
    taken = tuple(round(one * share ** (place + 1)) for place, one in enumerate(had))
    return replace(
        no_counts(5), requests=50, drafts=100 * len(ks), drafted_per_position=had,
        accepted_per_position=taken,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("was", "now", "held", "of"),
    [
        ((0.8, [5]), (0.8, [1]), True, "the first token of drafts"),
        ((0.8, [5]), (0.6, [1]), False, "the first token of drafts"),
        ((0.8, [1]), (0.8, [5]), True, "the first token of drafts"),
        ((0.8, [5]), (0.6, [5, 1]), False, "the first 3 tokens of drafts"),
        ((0.8, [5]), (0.6, [5]), False, "tokens drafted"),
        ((0.8, [5]), (0.79, [5]), True, "tokens drafted"),
    ],
)
def test_requests_are_compared_by_tokens_that_drafts_had_before_and_after(
    was: tuple[float, list[int]], now: tuple[float, list[int]], held: bool, of: str
) -> None:
    side = Side(count(*was), count(*now))
    assert side.held is held
    assert side.move is not None
    assert side.move.of == of


def test_nothing_is_compared_with_no_draft() -> None:
    assert compare_acceptance(count(0.8, [5]), no_counts(5)) is None
    assert Side(count(0.8, [5]), None).held is None
