"""What is said of a check that a signal has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from specdeck.console.cli.check_stopped import Standing
from specdeck.engine.divergence.arms import Arm, Facts


def standing(fingerprint: str | None, *, stored: bool = True, anew: bool = False) -> str:
    serving = Arm("serving", "http://a:1", "serving", Facts("demo", fingerprint="sd1:p01"))
    reference = Arm("reference", "http://b:2", "hard", Facts("demo", fingerprint=fingerprint))
    lab: Any = SimpleNamespace(arms=(serving, reference))
    found = Standing(200, done=30)
    found.opened(lab, stored=stored, anew=anew)
    return found.line()


def test_a_check_goes_on_where_its_engines_are_known_again() -> None:
    goes_on = "stopped after 30 of 200 prompts: the same command goes on from there"
    assert standing("sd1:p02") == goes_on
    assert standing("sd1:p02", anew=True) == goes_on
    assert standing(None) == f"{goes_on}, unless an engine is restarted"


def test_a_check_that_is_not_found_again_says_so() -> None:
    begins = "stopped after 30 of 200 prompts: the same command begins anew"
    assert standing("sd1:p02", stored=False) == begins
    assert standing("sd1:p~2" + "0" * 15, anew=True) == begins
    assert standing(None, anew=True) == begins


def test_a_check_that_is_finished_need_not_go_on() -> None:
    assert "--history" in Standing(200, done=200, finished=True).line()
