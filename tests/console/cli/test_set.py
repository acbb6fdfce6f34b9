"""What `set` says while a change or a trial is under way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdeck.console.cli.set import ChangeOutcome, Narrator, outcome_lines
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.operations.change import ChangeApplied, ChangeNotObserved
from specdeck.engine.operations.record import NotRecorded
from specdeck.engine.operations.trial import (
    TrialEnded,
    TrialSeen,
    TrialStopped,
    as_trial,
)
from specdeck.engine.protocol.messages import AppliedChange, Change
from specdeck.engine.protocol.tuning import BreakerTuning, Phase, TrialTuning, Tuning

URL = "http://engine"
UNDO = f"specdeck set {URL} k=5"
APPLIED = AppliedChange({"k": 5}, {"k": 3}, version=1, step=9, notices=("a notice",))
TRIAL = as_trial(Change(k=3), trial_s=30.0)


def tuning(state: Phase, left: float | None) -> tuple[TrialTuning, Tuning]:
    trial = TrialTuning(
        state, "ana", {"k": 5}, {"k": 3}, 30.0, 1.0, seconds_left=left, reason="better: +3 %"
    )
    closed = BreakerTuning("closed", automatic=False)
    return trial, Tuning("one", 1, 0.0, "fixed", None, (), (), closed, trial)


def test_a_trial_is_told_once_for_each_phase_and_ten_seconds_of_work() -> None:
    lines: list[str] = []
    narrator = Narrator(TRIAL, URL, attended=True, on_line=lines.append)
    narrator.take(ChangeApplied(TRIAL, APPLIED, 10.0, UNDO))
    seen: list[tuple[Phase, float]] = [
        ("baseline", 8.0), ("baseline", 3.0), ("changed", 29.0), ("changed", 21.0),
        ("changed", 19.0),
    ]  # fmt: skip
    for state, left in seen:
        narrator.take(TrialSeen(*tuning(state, left)))
    narrator.take(TrialEnded(*tuning("kept", None), observed_k=3.0, observed_after_ms=40.0))
    assert lines == [
        "specdeck: a notice",
        "specdeck: trial: measuring the baseline, 8 s of work left",
        "specdeck: trial: measuring the change, 29 s of work left",
        "specdeck: trial: measuring the change, 19 s of work left",
        "specdeck: trial kept: better: +3 %",
    ]
    outcome = narrator.outcome().as_json()
    assert (outcome["applied"], outcome["observed_k"]) == ({"k": 3}, 3.0)
    assert outcome["trial"]["state"] == "kept"


def test_a_trial_whose_end_the_state_contradicts_ends_in_failure() -> None:
    narrator = Narrator(TRIAL, URL, attended=True, on_line=lambda _: None)
    narrator.take(ChangeApplied(TRIAL, APPLIED, 10.0, UNDO))
    narrator.take(TrialEnded(*tuning("kept", None), None, None, "k=5"))
    assert narrator.is_contradicted
    assert narrator.later == [
        "NOT made: the engine says that it kept the change, and its state has k=5"
    ]


def test_what_is_told_after_the_outcome_waits_for_it() -> None:
    lines: list[str] = []
    narrator = Narrator(Change(k=3), URL, on_line=lines.append)
    narrator.take(ChangeApplied(Change(k=3), APPLIED, 10.0, UNDO, "speculation"))
    narrator.take(NotRecorded(SpecdeckError("the disk is full")))
    narrator.take(ChangeNotObserved("superseded"))
    assert lines == [
        "specdeck: a notice",
        "specdeck: the change is made, but it is not in the audit log: the disk is full",
    ]
    assert narrator.later == [
        "not observed: a newer change took its place",
    ]
    outcome = narrator.outcome()
    assert outcome == ChangeOutcome(Change(k=3), APPLIED, 10.0, UNDO, waits_for="speculation")
    assert outcome.as_json()["waits_for"] == "speculation"


def test_a_k_that_is_only_stored_is_not_said_to_be_applied() -> None:
    """An engine in target-only drafts nothing, whatever k it has; the console says so as well."""
    stored = ChangeOutcome(Change(k=3), APPLIED, 10.0, UNDO, waits_for="breaker")
    assert outcome_lines(stored)[1] == (
        "stored     k=3 (was k=5), after 10 ms: it takes effect when the breaker closes"
    )
    lines: list[str] = []
    narrator = Narrator(Change(k=3, mode="target-only"), URL, on_line=lines.append)
    both = replace(APPLIED, applied={"k": 3, "mode": "target-only"})
    narrator.take(ChangeApplied(narrator.change, both, 10.0, UNDO, "speculation"))
    assert outcome_lines(narrator.outcome())[1].startswith("applied    k=3 mode=target-only")
    assert narrator.later == ["k is stored: it takes effect when speculation is back"]


@pytest.mark.parametrize(
    ("begun", "words"),
    [(False, "no reply from the engine yet: "), (True, "the change is reverted")],
)
def test_a_trial_is_said_to_be_taken_back_only_where_it_was_begun(begun: bool, words: str) -> None:
    narrator = Narrator(TRIAL, URL, attended=True, on_line=lambda line: None)
    if begun:
        narrator.take(ChangeApplied(TRIAL, APPLIED, 10.0, UNDO))
    narrator.stopped = TrialStopped("taken_back", 10.0)
    assert narrator.standing().startswith(words)
