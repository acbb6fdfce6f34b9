"""Which k's a sweep visits, and what forbids one."""

from __future__ import annotations

import pytest
from tests.support.engine_state import engine_state

from specdeck.engine.errors import Unsupported
from specdeck.engine.protocol.messages import INTERMEDIATE_K, Capability
from specdeck.engine.sweep.plan import every_k, plan, refuse

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
