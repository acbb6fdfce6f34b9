"""What `set` says while a change or a trial is under way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.engine_state import engine_state

from specdeck.console.cli.main import outcome
from specdeck.console.cli.set import ChangeOutcome, Narrator, outcome_lines
from specdeck.engine.errors import EngineError, SpecdeckError
from specdeck.engine.operations.change import (
    ChangeApplied,
    ChangeNotObserved,
    ChangeObserved,
    WaitsFor,
)
from specdeck.engine.operations.record import NotRecorded
from specdeck.engine.operations.trial import (
    TrialEnded,
    TrialSeen,
    TrialStopped,
    TrialUnseen,
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


def test_a_change_that_reached_one_of_several_engines_ends_in_failure() -> None:
    narrator = Narrator(Change(k=3), URL, on_line=lambda _: None)
    narrator.take(ChangeApplied(narrator.change, APPLIED, 10.0, UNDO))
    narrator.take(ChangeNotObserved("another_engine"))
    assert narrator.is_contradicted
    assert "several engines answer at this address" in narrator.later[-1]


def told(end: TrialEnded) -> tuple[list[str], Narrator]:
    """The outcome of a trial that ended so, in lines."""
    narrator = Narrator(TRIAL, URL, attended=True, on_line=lambda _: None)
    narrator.take(ChangeApplied(TRIAL, APPLIED, 10.0, UNDO))
    narrator.take(end)
    return outcome_lines(narrator.outcome()), narrator


def test_a_kept_change_is_not_applied_while_nothing_is_drafted_by_it() -> None:
    state = engine_state(k_set=3, k=0, breaker="open")
    found, narrator = told(TrialEnded(*tuning("kept", None), 3.0, 40.0, found=state))
    assert found[1] == (
        "stored     k=3 (was k=5), after 10 ms: it takes effect when the breaker closes"
    )
    assert narrator.outcome().as_json()["waits_for"] == "breaker"
    assert not narrator.is_contradicted


@pytest.mark.parametrize(
    ("end", "state", "line"),
    [
        ("reverted", {}, "reverted: k=5 applies again"),
        (
            "reverted",
            {"mode": "target-only", "k": 0},
            "reverted: k=5 is stored: it takes effect when speculation is back",
        ),
        ("reverted", {"k_set": 2}, "reverted: k=2 is in force"),
        ("abandoned", {}, "not made: k=5 still applies"),
        ("abandoned", {"k_set": 2}, "not made: k=2 is in force"),
        ("kept", {}, "said to be kept: k=5 is in force"),
    ],
)
def test_after_a_trial_it_is_told_what_is_in_force(
    end: Phase, state: dict[str, Any], line: str
) -> None:
    found, narrator = told(TrialEnded(*tuning(end, None), None, None, found=engine_state(**state)))
    assert found[1] == f"on trial   k=3, {line}"
    assert narrator.outcome().as_json()["applied"] == {"k": state.get("k_set", 5)}


def test_a_trial_whose_end_is_contradicted_is_not_told_as_it_says() -> None:
    trial, seen = tuning("kept", None)
    kept = TrialEnded(
        replace(trial, pairs_planned=16), seen, None, None, found=engine_state(k_set=3)
    )
    found, narrator = told(kept)
    assert found[1] == "on trial   k=3, said to be kept: not shown to be in force"
    assert "trial      NOT kept: better: +3 %" in found
    assert narrator.is_contradicted
    assert narrator.later == [kept.line()]


def test_an_end_of_which_the_state_was_not_read_says_so() -> None:
    error = SpecdeckError("no answer")
    _, narrator = told(TrialEnded(*tuning("kept", None), None, None, error=error))
    assert narrator.later == ["not observed: the engine's state: no answer"]


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


@pytest.mark.parametrize("error", [None, EngineError("busy")])
def test_a_trial_that_the_engine_tells_nothing_of_is_not_said_to_be_under_way(
    error: EngineError | None,
) -> None:
    change = as_trial(Change(k=3), trial_s=30.0, attended=False)
    narrator = Narrator(change, URL, on_line=lambda _: None)
    narrator.take(ChangeApplied(change, APPLIED, 10.0, UNDO))
    narrator.take(TrialUnseen(error))
    assert narrator.is_contradicted is (error is None)
    assert narrator.later[-1].startswith("NOT on trial") is (error is None)


LEASED = Change(k=3, lease_s=30.0)


def leased(
    end: ChangeObserved | ChangeNotObserved, waits_for: WaitsFor | None = None
) -> tuple[Narrator, list[str]]:
    """What is known of a leased change, and its outcome in lines."""
    narrator = Narrator(LEASED, URL, on_line=lambda _: None)
    narrator.take(ChangeApplied(LEASED, APPLIED, 10.0, UNDO, waits_for))
    narrator.take(end)
    return narrator, outcome_lines(narrator.outcome())


def test_a_lease_that_has_ended_is_not_said_to_end() -> None:
    end = ChangeNotObserved("lease_ended", back={"k": 5})
    narrator, lines = leased(end, "speculation")
    assert narrator.later == ["not observed: the lease has ended: the engine is back at k=5"]
    assert narrator.lease_left_s is None
    assert not narrator.is_contradicted
    assert lines == ["requested  k=3", "applied    k=3 (was k=5), after 10 ms", "observed   –"]
    found = narrator.outcome().as_json()
    assert (found["reverted"], found["waits_for"]) == ({"k": 5}, None)
    assert (found["applied"], found["undo"]) == ({"k": 3}, UNDO)


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (ChangeObserved(3.0, 400.0, 3.0, lease_left_s=28.2), 29.0),
        (ChangeObserved(3.0, 400.0, 3.0, lease_left_s=0.0), 1.0),
        (ChangeObserved(3.0, 400.0, 3.0), 30.0),
        (ChangeObserved(5.0, 400.0, 3.0, lease_left_s=28.2), None),
        (ChangeNotObserved("no_traffic", lease_left_s=28.2), 29.0),
        (ChangeNotObserved("unreachable"), 30.0),
        (ChangeNotObserved("superseded", lease_left_s=7.5), 8.0),
        (ChangeNotObserved("superseded"), None),
        (ChangeNotObserved("restarted"), None),
    ],
    ids=str,
)
def test_what_is_left_of_a_lease_is_what_the_engine_last_said(
    end: ChangeObserved | ChangeNotObserved, left: float | None
) -> None:
    narrator, lines = leased(end)
    assert narrator.lease_left_s == left
    assert narrator.outcome().as_json()["reverted"] is None
    assert lines[-1] == f"undo       {UNDO}"


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lease", "5"], "the breaker takes no lease: set it without --lease"),
        (["--trial", "20"], "the breaker cannot be put on trial: set it without --trial"),
    ],
)
def test_a_breaker_is_set_until_it_is_set_again(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(["set", "127.0.0.1:9", "breaker=open", *options]) == 2
    assert words in capsys.readouterr().err
