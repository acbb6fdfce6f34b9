"""What can be changed on which engine, and the reasons where it cannot."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.support.engine_core import BUILD, Clock, FakeCore, make_control

from specdeck.engine.plugin.capabilities import capabilities
from specdeck.engine.plugin.engine import Build
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.protocol.full_graphs import Reach
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


PARALLEL = replace(BUILD, method="eagle3", parallel_drafting=True)
"""P-EAGLE, and PARD in the same way, which vLLM runs on its V1 runner only."""


@pytest.mark.parametrize(
    "change",
    [
        Change(k=1),
        Change(k=4),
        Change(k=3, lease_s=5.0),
        Change(k=3, trial_s=2.0, judge=True),
        Change(policy="goodput"),
        Change(policy="threshold"),
        Change(policy="goodput", trial_s=2.0, judge=True),
        Change(parameters={"goodput.min_draft_length": 2}),
    ],
    ids=str,
)
def test_parallel_drafting_never_meets_a_k_between_0_and_all(change: Change) -> None:
    engine = FakeCore(PARALLEL)
    control = make_control(engine, Clock())
    engine.calls.clear()
    with pytest.raises(Refusal, match="parallel drafting makes 5 tokens or none"):
        control.change(change)
    assert engine.calls == []


def test_parallel_drafting_goes_between_0_and_all() -> None:
    engine = FakeCore(PARALLEL)
    control = make_control(engine, Clock())
    for change, k in (
        (Change(k=0), 0),
        (Change(k=5), 5),
        (Change(mode="target-only"), 0),
        (Change(mode="speculate"), 5),
        (Change(breaker="open"), 0),
    ):
        control.change(change)
        assert engine.k == k
    able = {one.name: one for one in control.state().capabilities}
    assert "nothing between" in str(able["live_k"].reason)
    assert not able["intermediate_k"].available
    assert not able["policy.goodput"].available
    assert able["trial"].available


def test_a_policy_from_the_config_is_not_begun_under_parallel_drafting() -> None:
    engine = FakeCore(PARALLEL)
    control = make_control(engine, Clock(), {"adaptive_draft": True})
    assert control.state().policy == "fixed"
    assert {k for name, k in engine.calls if name == "k"} <= {0, 5}
    assert not [call for call in engine.calls if call[0] == "table"]


def test_a_schedule_of_ks_between_does_not_stay_in_force_under_parallel_drafting() -> None:
    engine = FakeCore(replace(PARALLEL, own_schedule=True))
    make_control(engine, Clock())
    assert engine.calls == [("k", 5)]
    usual = FakeCore(replace(BUILD, own_schedule=True))
    make_control(usual, Clock())
    assert usual.calls == []


@pytest.mark.parametrize(
    "build",
    [BUILD, replace(PARALLEL, method="dflash"), replace(PARALLEL, method="dspark")],
    ids=lambda build: build.method,
)
def test_drafts_sized_by_the_step_take_any_k(build: Build) -> None:
    engine = FakeCore(build)
    control = make_control(engine, Clock())
    control.change(Change(k=3))
    assert engine.k == 3
    assert control.state().can("intermediate_k").available


def test_one_parallel_token_is_all_of_them() -> None:
    control = make_control(FakeCore(replace(PARALLEL, k_max=1)), Clock())
    control.change(Change(k=1))
    assert control.state().can("intermediate_k").available


EAGLE_V2 = replace(BUILD, method="eagle3", runner="V2")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (EAGLE_V2, None),
        (replace(EAGLE_V2, drafter_captured=frozenset({2, 3, 4, 5})), None),
        (
            replace(EAGLE_V2, drafter_captured=frozenset({5})),
            "less verification, same drafting from k = 2 on",
        ),
        (replace(EAGLE_V2, drafter_captured=frozenset({2}), k_max=2), None),
        (replace(EAGLE_V2, drafter_captured=frozenset({4, 5})), "no CUDA graph at k = 2, 3"),
        (
            replace(EAGLE_V2, drafter_obeys=False),
            "less verification, same drafting: .* drafts 5 tokens at every k",
        ),
    ],
)
def test_what_a_smaller_k_saves_is_said_as_it_was_captured(
    build: Build, reason: str | None
) -> None:
    live_k = make_control(FakeCore(build), Clock()).state().can("live_k")
    assert live_k.available
    assert (live_k.reason is None) == (reason is None)
    assert reason is None or re.search(reason, str(live_k.reason))


def test_a_pin_says_that_it_takes_others_off_the_full_graphs() -> None:
    can = make_control(FakeCore(BUILD), Clock()).state().can("request_k")
    assert (can.available, can.reason) == (True, None)
    build = replace(BUILD, full_graphs=True)
    can = make_control(FakeCore(build), Clock()).state().can("request_k")
    assert can.available
    assert "off the full CUDA graphs" in str(can.reason)


def test_requests_rest_only_where_a_ragged_batch_costs_the_others_nothing() -> None:
    assert make_control(FakeCore(BUILD), Clock()).state().can("request_rest").available
    build = replace(BUILD, full_graphs=True)
    can = make_control(FakeCore(build), Clock()).state().can("request_rest")
    assert not can.available
    assert "off the full CUDA graphs" in str(can.reason)


def test_requests_rest_under_goodput_alone() -> None:
    engine = FakeCore(BUILD)
    control = make_control(engine, Clock())
    control.change(Change(policy="goodput"))
    assert engine.rest_rounds is None  # until somebody asks for it
    control.change(Change(parameters={"goodput.rest_rounds": 16}))
    assert engine.rest_rounds == 16
    control.change(Change(k=3))
    assert engine.rest_rounds is None
    graphs = FakeCore(replace(BUILD, full_graphs=True))
    control = make_control(graphs, Clock())
    control.change(Change(policy="goodput", parameters={"goodput.rest_rounds": 16}))
    assert graphs.rest_rounds is None


def test_the_price_of_soft_is_said_where_a_drafter_runs_on() -> None:
    able = {one.name: one for one in capabilities(BUILD)}
    assert able["target_only"].available
    assert "21.6 % at 189" in str(able["target_only"].reason)
    assert able["breaker"].reason is None
    ngram = replace(BUILD, method="ngram", can_skip_drafter=False)
    assert {one.name: one for one in capabilities(ngram)}["target_only"].reason is None


def test_the_reach_of_full_graphs_is_said_where_there_are_any() -> None:
    assert "full_graphs" not in {one.name for one in capabilities(BUILD)}
    build = replace(BUILD, full_graphs=True, graph_reach=(Reach(256, 164), Reach(83, 83)))
    (found,) = (one for one in capabilities(build) if one.name == "full_graphs")
    assert found.available
    assert str(found.reason) == (
        "full CUDA graphs to 256 requests at k = 0 (164 numbers of them), 83 at k = 1"
    )
