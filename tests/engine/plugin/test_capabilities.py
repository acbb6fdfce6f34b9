"""What can be changed on which engine, and the reasons where it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.engine_core import BUILD, Clock, FakeCore, make_control

from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.messages import Change


def test_cold_is_refused_where_blocks_are_kept_outside_of_the_engine() -> None:
    engine = FakeCore(replace(BUILD, kv_connector=True))
    control = make_control(engine, Clock())
    cold = control.state().can("cold")
    assert not cold.available
    assert "connector" in str(cold.reason)
    assert "warm" in str(cold.remedy)
    with pytest.raises(Refusal, match="connector"):
        control.change(Change(mode="target-only", fallback="cold"))
    assert engine.skips == []
    control.change(Change(mode="target-only"))
    assert engine.k == 0
