"""Target-only, warm and cold: what becomes of the drafter and of the operator's k."""

from __future__ import annotations

from tests.support.engine_core import FakeCore

from specdeck.engine.plugin.control import Control
from specdeck.engine.protocol.messages import Change


def test_target_only_keeps_the_operators_k(control: Control, engine: FakeCore) -> None:
    control.change(Change(k=3))
    control.change(Change(mode="target-only"))
    assert (engine.k, control.state().k, control.state().k_set) == (0, 0, 3)
    control.change(Change(k=4))
    assert engine.k == 0
    control.change(Change(mode="speculate"))
    assert engine.k == 4


def test_warm_target_only_leaves_the_drafter_running(control: Control, engine: FakeCore) -> None:
    control.change(Change(mode="target-only"))
    assert all(what != "skip" for what, _ in engine.calls)


def test_cold_stops_drafting_before_the_drafter_and_resyncs_on_the_way_back(
    control: Control, engine: FakeCore
) -> None:
    engine.calls.clear()
    control.change(Change(mode="target-only", fallback="cold"))
    assert engine.calls == [("k", 0), ("skip", True)]
    engine.calls.clear()
    notices = control.change(Change(mode="speculate")).notices
    assert engine.calls == [("k", 5), ("skip", False), ("resync", None)]
    assert "3 requests preempted" in notices[0]


def test_a_k_set_while_cold_is_in_force_from_the_moment_cold_is_left(
    control: Control, engine: FakeCore
) -> None:
    control.change(Change(mode="target-only", fallback="cold"))
    assert control.change(Change(k=3)).notices == ()
    assert (engine.k, control.state().k_set) == (0, 3)
    control.change(Change(mode="speculate"))
    assert engine.k == 3


def test_leaving_cold_for_warm_resyncs_too(control: Control, engine: FakeCore) -> None:
    control.change(Change(mode="target-only", fallback="cold"))
    engine.calls.clear()
    control.change(Change(fallback="warm"))
    assert engine.calls == [("k", 0), ("skip", False), ("resync", None)]
