"""The table that vLLM reads at its next start."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.tuning.schedule import tiers


@given(st.dictionaries(st.integers(1, 300), st.integers(0, 8), min_size=1), st.integers(1, 300))
def test_tiers_cover_every_batch_size_once(best: dict[int, int], seqs: int) -> None:
    found = tiers(best, seqs)
    assert found[0][0] == 1
    assert found[-1][1] == seqs
    assert all(first <= last for first, last, _ in found)
    assert all(a[1] + 1 == b[0] and a[2] != b[2] for a, b in pairwise(found))
    for size, k in best.items():
        if size <= seqs:
            assert next(t[2] for t in found if t[0] <= size <= t[1]) == k


@pytest.mark.parametrize(("best", "seqs"), [({}, 8), ({1: 3}, 0)])
def test_nothing_to_write_is_said(best: dict[int, int], seqs: int) -> None:
    with pytest.raises(ValueError, match=r"measured|max_num_seqs"):
        tiers(best, seqs)
