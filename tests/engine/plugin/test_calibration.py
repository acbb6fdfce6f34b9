"""Calibration in the engine: when it is made, what it teaches, and when it is refused."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_core import BUILD, Clock, FakeCore, make_control, work

from specdeck.engine.plugin.capabilities import capabilities
from specdeck.engine.plugin.control import Control
from specdeck.engine.plugin.reply import Refusal
from specdeck.engine.policy.table import bucket
from specdeck.engine.protocol.calibration import StepShape
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.messages import Change

ON_CPU = replace(
    BUILD, device="cpu", seats=32, step_tokens=2048, kv_kinds=("FullAttentionSpec",) * 2
)


def make(**other: Any) -> tuple[Control, FakeCore]:
    """The control over an idle engine that can be calibrated."""
    engine = FakeCore(replace(ON_CPU, **other), busy=(0, 0))
    return make_control(engine, Clock()), engine


def seconds(control: Control, batch: int, k: int) -> float | None:
    """What the cost model has for a step."""
    runner = control._steering.runner
    assert runner is not None
    return runner.estimates.times.seconds(bucket(batch), k)


def test_the_cost_model_knows_a_step_before_the_first_request() -> None:
    control, engine = make()
    before = control.state()
    for k in range(6):
        found = control.calibrate(StepShape(4, k, 3))
        assert (found.seconds, found.real_s) == ((engine.dummy_s(4, k),) * 3, None)
    assert engine.dummies == [(4, k, 3) for k in range(6)]
    for k in range(6):
        assert seconds(control, 4, k) == pytest.approx(engine.dummy_s(4, k), rel=0.03)
    assert control.state() == before
    assert engine.calls == [("k", 5)]


def test_real_steps_are_told_beside() -> None:
    control, engine = make()
    assert engine.k == 5
    work(engine, Clock())
    found = control.calibrate(StepShape(1, 5))
    assert found.real_s == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("busy", [(1, 0), (0, 1)])
def test_an_engine_with_requests_refuses(busy: tuple[int, int]) -> None:
    control, engine = make()
    engine.busy = busy
    with pytest.raises(Refusal, match="the engine has requests") as refused:
        control.calibrate(StepShape(1, 3))
    assert refused.value.status == 409
    assert engine.dummies == []
    assert seconds(control, 1, 3) is None


def test_cold_refuses_since_no_drafter_would_be_timed() -> None:
    control, engine = make()
    control.change(Change(mode="target-only", fallback="cold"))
    with pytest.raises(Refusal, match="left out of steps"):
        control.calibrate(StepShape(1, 3))
    assert engine.dummies == []


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (StepShape(33, 1), "at most 32 requests"),
        (StepShape(4, 6), "k is 0 to 5, not 6"),
        (StepShape(32, 5), "2048|at most 32 requests and 100 tokens, not 32 and 192"),
    ],
)
def test_a_shape_that_the_engine_cannot_have_is_refused(shape: StepShape, said: str) -> None:
    control, engine = make(step_tokens=100)
    with pytest.raises(Refusal, match=said) as refused:
        control.calibrate(shape)
    assert refused.value.status == 400
    assert engine.dummies == []


@pytest.mark.parametrize(("slots", "most"), [(0, 21), (1, 19), (8, 11)])
def test_the_rows_of_the_drafter_count_as_vllms_scheduler_counts_them(
    slots: int, most: int
) -> None:
    """More than the buffers have is written past their ends."""
    control, engine = make(step_tokens=192, k_max=8, draft_slots=slots)
    control.calibrate(StepShape(most, 8))
    assert engine.dummies == [(most, 8, 4)]
    with pytest.raises(Refusal, match=f"192 tokens, not {most + 1} and {(most + 1) * (9 + slots)}"):
        control.calibrate(StepShape(most + 1, 8))
    assert engine.dummies == [(most, 8, 4)]


def test_what_came_too_late_is_not_run() -> None:
    control, engine = make()
    payload = {"shape": StepShape(1, 3).as_json(), "until": time.time() - 1}
    assert control.answer("calibrate", payload)["error"]["code"] == "late"
    assert engine.dummies == []
    payload["until"] = time.time() + 60
    assert control.answer("calibrate", payload)["k"] == 3


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"runner": "V2"}, "held against real ones on the V1 runner"),
        ({"device": "cuda"}, "this is V1 on cuda"),
        ({"asynchronous": True}, "several steps under way"),
        ({"stages": 2}, "several steps under way"),
        ({"method": "ngram"}, "depends on the text"),
        ({"moe": True}, "the same experts"),
        ({"kv_connector": True}, "KV connector"),
        ({"kv_kinds": ("FullAttentionSpec", "MambaSpec")}, "MambaSpec"),
        ({"method": None, "k_max": 0}, "without speculative decoding"),
    ],
)
def test_an_engine_whose_dummy_steps_would_not_be_true_says_why(
    other: dict[str, Any], said: str
) -> None:
    build = replace(ON_CPU, **other)
    able = next(one for one in capabilities(build) if one.name == "calibration")
    assert not able.available
    assert said in str(able.reason)
    assert able.remedy
    engine = FakeCore(build, busy=(0, 0))
    with pytest.raises(Refusal) as refused:
        make_control(engine, Clock()).calibrate(StepShape(1, 1))
    assert refused.value.status == 501
    assert engine.dummies == []


def test_one_of_several_ranks_is_not_calibrated() -> None:
    control, engine = make()
    control.join()
    with pytest.raises(Refusal) as refused:
        control.calibrate(StepShape(1, 1))
    assert refused.value.status == 501
    assert engine.dummies == []


@given(
    st.one_of(
        st.none(), st.integers(), st.lists(st.integers(), max_size=3),
        st.dictionaries(
            st.sampled_from(["batch", "k", "steps", "who"]),
            st.one_of(st.none(), st.integers(-5, 9000), st.floats(), st.text(max_size=3)),
        ),
    )
)  # fmt: skip
def test_nonsense_is_no_shape_and_a_shape_is_bounded(asked: object) -> None:
    try:
        found = StepShape.from_json(asked)
    except WrongType:
        return
    assert 1 <= found.batch <= 4096
    assert 1 <= found.steps <= 16
    assert found.k >= 0
