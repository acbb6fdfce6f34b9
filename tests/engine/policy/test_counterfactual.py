"""What other k's would give, from the counters of the ones that ran."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.estimates import tokens_by_k

counts = st.lists(st.integers(0, 1000), min_size=5, max_size=5)


@given(counts, counts)
def test_more_k_never_means_fewer_tokens(drafted: list[int], accepted: list[int]) -> None:
    found = tokens_by_k(drafted, [min(a, d) for a, d in zip(accepted, drafted, strict=True)], 5)
    if found is None:
        assert drafted[0] == 0
        return
    values = [tokens.value for tokens in found]
    assert values == sorted(values)
    marks = [tokens.extrapolated for tokens in found]
    assert marks == sorted(marks)


def test_counters_of_a_moving_k_keep_their_own_denominators() -> None:
    found = tokens_by_k([1000, 100], [800, 50], 2)
    assert found is not None
    assert found[2].value == pytest.approx(1 + 0.8 + 0.5)
    assert not found[2].extrapolated
