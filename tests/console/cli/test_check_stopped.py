"""What is said of a check that a signal has ended."""

from __future__ import annotations

from specdeck.console.cli.check import ResumeState
from specdeck.engine.divergence.arms import Arm, Facts


def stopped(fingerprint: str | None, *, stored: bool = True, own: bool = False) -> str:
    serving = Arm("serving", "http://a:1", "serving", Facts("demo", fingerprint="sd1:p01"))
    reference = Arm("reference", "http://b:2", "hard", Facts("demo", fingerprint=fingerprint))
    state = ResumeState(200, done=30)
    state.note_arms((serving, reference), stored=stored, own=own)
    return state.line()


def test_a_check_goes_on_where_its_engines_are_known_again() -> None:
    goes_on = "stopped after 30 of 200 prompts: the same command resumes from there"
    assert stopped("sd1:p02") == goes_on
    assert stopped("sd1:p02", own=True) == goes_on
    assert stopped(None) == f"{goes_on}, unless an engine is restarted"


def test_a_check_that_is_not_found_again_says_so() -> None:
    begins = "stopped after 30 of 200 prompts: the same command starts over"
    assert stopped("sd1:p02", stored=False) == begins
    assert stopped("sd1:p~2" + "0" * 15, own=True) == begins
    assert stopped(None, own=True) == begins


def test_a_check_that_is_finished_need_not_go_on() -> None:
    assert "--history" in ResumeState(200, done=200, finished=True).line()
