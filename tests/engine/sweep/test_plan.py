"""Which k's a sweep visits, and what forbids one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_state import engine_state

from specdeck.engine.errors import Unsupported
from specdeck.engine.protocol.messages import INTERMEDIATE_K, Capability
from specdeck.engine.sweep.plan import LATE, LEAST_ROUNDS, every_k, plan, refuse

ABLE = (Capability("live_k", True), Capability("target_only", True))
ALL_OR_NONE = Capability(INTERMEDIATE_K, False, "5 tokens or none", "use k=0 or k=5")


def test_a_k_that_would_end_the_engine_is_not_visited() -> None:
    assert every_k(engine_state(capabilities=ABLE)) == [0, 1, 2, 3, 4, 5]
    state = engine_state(capabilities=(*ABLE, ALL_OR_NONE))
    assert every_k(state) == [0, 5]
    refuse(state, plan(every_k(state), seconds=10.0))
    with pytest.raises(Unsupported, match="k=3 cannot be visited: 5 tokens or none") as refused:
        refuse(state, plan([0, 3, 5], seconds=10.0))
    assert refused.value.remedy == "use k=0 or k=5"


@given(
    ks=st.integers(2, 9),
    seconds=st.floats(1.0, 600.0),
    made=st.integers(1, 12),
    pace=st.floats(0.1, 100.0),
)
def test_rounds_fit_the_time_or_are_the_fewest_that_tell_something(
    ks: int, seconds: float, made: int, pace: float
) -> None:
    planned = plan(range(ks), seconds=seconds)
    made = min(made, planned.rounds)
    fitted = planned.fit_rounds(made, made * pace)
    assert made <= fitted.rounds <= planned.rounds
    least = max(made, LEAST_ROUNDS)
    assert fitted.rounds <= least or fitted.rounds * pace <= seconds * (1 + LATE) + 1e-6
    # None is left out that had room.
    assert fitted.rounds == planned.rounds or (fitted.rounds + 1) * pace > seconds
    assert replace(planned, limit_s=None).fit_rounds(made, 1e6).rounds == planned.rounds
