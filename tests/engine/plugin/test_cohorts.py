"""The cells that finished requests are added up in: bounded, and nothing lost by that."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specdeck.engine.plugin.cohorts import (
    Adapters,
    CohortCells,
    cached_word,
    length_word,
    read_cohorts,
    safe_word,
)
from specdeck.engine.protocol.cohorts import (
    DIMENSIONS,
    MOST_ADAPTERS,
    OTHER,
    Cohorts,
    merge_cohorts,
)

K = 2


def told(cells: CohortCells) -> Cohorts:
    """What the cells say, with nothing under way."""
    answer: dict[str, Any] = {
        "k_max": K, "instance": "one", "t": 1.0,
        "cells": cells.cells(), "folded": cells.list_folded(),
        "unfinished": [0] * (4 + cells.size), "drafts": 0, "drafted_per_position": (0,) * K,
        "accepted_per_position": (0,) * K,
    }  # fmt: skip
    return read_cohorts(answer)


def key(word: object = "0", *, adapter: str = "none") -> tuple[str, ...]:
    return (str(word), "0%", "0", adapter, "none", "greedy", "no", "stop")


words = st.sampled_from("abcdef")
requests = st.lists(
    st.tuples(
        st.tuples(*[words] * len(DIMENSIONS)),
        st.lists(st.integers(0, 9), min_size=2 * (K + 1), max_size=2 * (K + 1)) | st.none(),
        st.integers(0, 1000),
    ),
    max_size=60,
)


@given(requests, st.integers(1, 5))
@settings(max_examples=40)
def test_whatever_comes_cells_stay_few_and_every_dimension_has_every_draft(
    finished: list[tuple[tuple[str, ...], list[int] | None, int]], most: int
) -> None:
    cells, expected = CohortCells(K, most=most), Counter[tuple[str, str, str]]()
    for words, tally, prompt in finished:
        cells.add(words, tally, prompt, 1, 0)
        for by, word in zip(DIMENSIONS, words, strict=True):
            expected[by, word, "requests"] += 1
            expected[by, word, "prompt"] += prompt
            expected[by, word, "drafts"] += sum((tally or [])[: K + 1])
    found = told(cells)
    assert len(found.cells) <= most
    assert len(found.folded) <= 6 * len(DIMENSIONS)
    by_word = found.by_word()
    for (by, word), counts in by_word.items():
        assert counts.requests == expected[by, word, "requests"]
        assert counts.prompt_tokens == expected[by, word, "prompt"]
        assert counts.drafts == expected[by, word, "drafts"]
    for by in DIMENSIONS:
        assert sum(c.requests for (b, _), c in by_word.items() if b == by) == len(finished)
    assert found.sum_finished().requests == len(finished)


def test_the_cohort_that_was_not_seen_for_longest_is_folded() -> None:
    cells = CohortCells(K, most=2)
    for word in "aba":
        cells.add(key(word), None, 1, 1, 0)
    cells.add(key("c"), None, 1, 1, 0)
    found = told(cells)
    assert [cell.cohort.prompt for cell in found.cells] == ["a", "c"]
    assert {each.word for each in found.folded if each.by == "prompt"} == {"b"}


def test_positions_follow_from_lengths_and_accepted_tokens() -> None:
    cells = CohortCells(K)
    # Four drafts: none, one and twice two tokens; 0, 0, 1 and 2 of them accepted.
    cells.add(key(), [1, 1, 2, 2, 1, 1], 9, 4, 1)
    (cell,) = told(cells).cells
    counts = cell.counts
    assert (counts.requests, counts.prompt_tokens, counts.output_tokens) == (1, 9, 4)
    assert counts.preemptions == 1
    assert (counts.drafts, counts.drafted_per_position) == (4, (3, 2))
    assert counts.accepted_per_position == (2, 1)
    assert (counts.drafted, counts.accepted, counts.acceptance) == (5, 3, 0.6)


def test_two_thousand_adapters_have_few_words_and_lose_no_request() -> None:
    cells = CohortCells(K)
    for number in range(2_000):
        word = cells.name_adapter(f"a{number}")
        cells.add(key(adapter=word), None, 1, 1, 0)
    found = told(cells)
    adapters = {word for by, word in found.by_word() if by == "adapter"}
    assert len(adapters) <= MOST_ADAPTERS + 1
    assert OTHER in adapters
    assert found.sum_finished().requests == 2_000


def test_an_adapter_that_is_seen_most_has_a_word_however_late_it_comes() -> None:
    cells = CohortCells(K)

    def see(name: str, times: int) -> str:
        for _ in range(times):
            word = cells.name_adapter(name)
            cells.add(key(adapter=word), None, 1, 1, 0)
        return word

    for number in range(MOST_ADAPTERS):
        see(f"early{number}", 3)
    assert see("late", 1) == OTHER
    assert see("late", 100) == "late"
    counts = {word: c for (by, word), c in told(cells).by_word().items() if by == "adapter"}
    assert len(counts) == MOST_ADAPTERS + 1
    assert sum(each.requests for each in counts.values()) == 3 * MOST_ADAPTERS + 101


def test_folded_requests_of_an_adapter_without_a_word_are_those_of_others() -> None:
    cells = CohortCells(K, most=1)
    for number in range(MOST_ADAPTERS):
        cells.add(key(adapter=cells.name_adapter(f"early{number}")), None, 1, 1, 0)
    for _ in range(10):
        cells.add(key(adapter=cells.name_adapter("late")), None, 1, 1, 0)
    words = {word for by, word in told(cells).by_word() if by == "adapter"}
    assert len(words) <= MOST_ADAPTERS + 1
    assert told(cells).sum_finished().requests == MOST_ADAPTERS + 10


def test_names_that_nobody_asked_for_again_leave_no_trace_in_memory() -> None:
    adapters = Adapters()
    for number in range(1_000):
        adapters.see(f"a{number}")
    assert len(adapters._seen) <= 80


@given(st.text(max_size=200))
def test_a_name_is_made_a_word_that_can_be_printed_encoded_and_told_from_our_own(name: str) -> None:
    word = safe_word(name)
    assert word.isprintable()
    assert 0 < len(word) <= 66
    assert word.encode()
    assert word not in ("none", "other")


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_words_of_lengths_and_shares_are_few(tokens: int, cached: int) -> None:
    low = length_word(tokens).rstrip("+").partition("-")[0]
    assert int(low) <= tokens
    assert cached_word(min(cached, tokens), tokens).endswith(("%", OTHER))


def test_ranks_are_told_as_one() -> None:
    cells = CohortCells(K, most=1)
    for word in "ab":
        cells.add(key(word), [0, 1, 2, 2, 1, 0], 9, 4, 0)
    rank = told(cells)
    both = merge_cohorts([rank, rank])
    assert both.sum_finished().requests == 2 * rank.sum_finished().requests
    assert {each.drafts for each in both.by_word().values()} <= {6, 12}
    assert Cohorts.from_json(both.as_json()) == both
