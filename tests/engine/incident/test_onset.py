"""How sudden a fall was."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from specdeck.engine.blackbox.falls import Fall
from specdeck.engine.incident.onset import Point, find_onset


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 60))
def test_a_step_down_is_sudden(seed: int, at: int) -> None:
    chance = random.Random(seed)
    points = [
        Point(float(t), t + 1.0, (0.7 if t < at else 0.2) + chance.gauss(0, 0.06), 1000.0)
        for t in range(90)
    ]
    found = find_onset(points, Fall("acceptance", at + chance.uniform(-3, 3), 0.7, 0.2))
    assert found is not None
    assert found.is_sudden


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_a_slow_fall_is_not_sudden(seed: int) -> None:
    chance = random.Random(seed)

    def value(t: int) -> float:
        return 0.7 - 0.5 * min(1.0, max(0.0, (t - 60) / 50)) + chance.gauss(0, 0.05)

    points = [Point(float(t), t + 1.0, value(t), 1000.0) for t in range(180)]
    found = find_onset(points, Fall("acceptance", 85.0, 0.7, 0.2))
    assert found is not None
    assert not found.is_sudden
    assert 20.0 <= found.seconds <= 80.0


def test_few_points_have_no_onset() -> None:
    points = [Point(float(t), t + 1.0, 0.7, 1.0) for t in range(10)]
    assert find_onset(points, Fall("acceptance", 5.0, 0.7, 0.2)) is None
