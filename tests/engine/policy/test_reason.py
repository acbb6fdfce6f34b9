"""Why k moved: figures while it moves, words when somebody looks."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from specdeck.engine.policy import reason
from specdeck.engine.policy.parameters import Catalogue
from specdeck.engine.policy.runner import PolicyRunner
from specdeck.engine.protocol.messages import Policy
from specdeck.engine.protocol.tuning import KChange

WORDED = [each for each in (*get_args(reason.Reason), reason.Repetition) if each is not str]


def watched_runner(policy: Policy) -> PolicyRunner:
    catalogue = Catalogue()
    runner = PolicyRunner.watching(catalogue, k=5, k_max=5, zero=True, wall=lambda: 1.0)
    runner.follow(policy, k=5, catalogue=catalogue)
    return runner


def play(engine: Any, runner: PolicyRunner, text: str, seconds: float) -> None:
    """As the plugin drives it, the log of moves included."""
    end = engine.t + seconds
    while engine.t < end:
        runner.step(engine.step(text, 4, runner.decision.k(4)), steering=True)


@pytest.mark.parametrize("policy", ["goodput", "threshold"])
def test_no_move_of_k_makes_a_sentence_before_somebody_looks(
    engine: Any, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    def refuse(self: object) -> str:
        raise AssertionError(f"{type(self).__name__} became words in the middle of a step")

    runner = watched_runner(policy)
    with monkeypatch.context() as patch:
        for each in WORDED:
            patch.setattr(each, "__str__", refuse)
        for text in ("predictable", "hard", "predictable", "loop"):
            play(engine, runner, text, 60)
    assert len(runner.moves) > 3
    assert runner.breaker.alarm is not None
    for move in runner.moves:
        told = move.as_change()
        assert isinstance(told, KChange)
        assert told.reason == str(move.reason)
        assert told.reason


def test_the_figures_of_a_move_are_there_to_be_read(engine: Any) -> None:
    runner = watched_runner("threshold")
    while not runner.moves:
        play(engine, runner, "hard", 0.1)
    why = runner.moves[0].reason
    assert isinstance(why, reason.Rounds)
    assert (why.before, why.after, why.rounds) == (5, runner.moves[0].after, 3)
    assert why.accepted < why.threshold


def test_a_breaker_that_opens_says_what_its_windows_showed(engine: Any) -> None:
    runner = watched_runner("threshold")
    play(engine, runner, "hard", 60)
    opened = next(move for move in runner.moves if move.who == "breaker" and move.after == 0)
    assert isinstance(opened.reason, reason.Opened)
    assert isinstance(opened.reason.why, reason.Slower | reason.LowAcceptance)
    assert str(opened.reason) == f"breaker opened: {opened.reason.why}"
