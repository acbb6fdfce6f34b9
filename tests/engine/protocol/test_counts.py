"""Counts in replies: none is below zero, nor beyond what every JSON parser reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.engine_state import engine_state
from tests.support.tuned_engine import tuning

from specdeck.engine.protocol.calibration import DummySteps
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.protocol.messages import AppliedChange, EngineState
from specdeck.engine.protocol.tuning import Tuning

CHANGED = {"before": {"k": 5}, "applied": {"k": 3}, "version": 4, "step": 90, "trial": 1}
MADE = DummySteps("i", 4, 3, (0.01,), interrupted=False, real_s=0.01).as_json()


@pytest.mark.parametrize("count", [-1, 2**53 + 1])
@pytest.mark.parametrize(
    ("read", "told", "name"),
    [
        *[
            (EngineState.from_json, engine_state().as_json(), name)
            for name in (
                "version",
                "step",
                "drafts",
                "running",
                "waiting",
                "pinned",
                "exact_tokens",
            )
        ],
        *[(Tuning.from_json, tuning().as_json(), name) for name in ("version", "resting")],
        *[(AppliedChange.from_json, CHANGED, name) for name in ("version", "step", "trial")],
        (DummySteps.from_json, MADE, "batch"),
        (DummySteps.from_json, MADE, "real_s"),
    ],
)
def test_a_count_that_none_is_is_refused(
    read: Callable[[dict[str, Any]], object], told: dict[str, Any], name: str, count: int
) -> None:
    read(told)
    with pytest.raises(WrongType, match=name):
        read(told | {name: count})


def test_a_step_takes_some_time() -> None:
    with pytest.raises(WrongType, match="real_s"):
        DummySteps.from_json(MADE | {"real_s": 5e-324})
