"""The plane through measured step times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.policy.cost import Cell, CostModel, fit

positive = st.floats(1e-5, 1e-2)


@given(positive, positive, positive, positive)
def test_what_a_plane_made_is_found_again(base: float, request: float, k: float, t: float) -> None:
    true = CostModel(base, request, k, t)
    cells = [Cell(b, k, true.seconds(b, k), 2000) for b in (1, 4, 16, 64) for k in (0, 1, 3, 5)]
    found = fit(cells)
    assert found is not None
    for batch, k_ in ((2, 2), (32, 4), (64, 0)):
        assert found.seconds(batch, k_) == pytest.approx(true.seconds(batch, k_), rel=0.25)


@given(
    st.lists(
        st.builds(Cell, st.integers(1, 512), st.integers(0, 8), positive, st.floats(1, 1e4)),
        min_size=1,
        max_size=40,
    )
)
def test_no_estimate_falls_with_k_or_batch(cells: list[Cell]) -> None:
    model = fit(cells)
    assert model is not None
    assert min(model.base, model.per_request, model.per_k, model.per_token) >= 0


def test_one_cell_gives_a_model_in_which_drafting_costs() -> None:
    model = fit([Cell(8, 5, 0.02, 100)])
    assert model is not None
    assert model.seconds(8, 5) == pytest.approx(0.02, rel=0.1)
    assert model.seconds(8, 0) < model.seconds(8, 5)


def test_nothing_gives_no_model() -> None:
    assert fit([]) is None
    assert fit([Cell(1, 1, 0.0, 5)]) is None
