"""Causes as a person reads them: short lines, nothing of a terminal, every kind of cause."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.why.causes import NAMES, Cause, Figure, Group, Name, RuledOut, command_of
from specdeck.engine.why.figures import Estimate
from specdeck.engine.why.ranking import rank, sum_costs
from specdeck.engine.why.words import (
    TITLES,
    describe_cause,
    describe_ruled_out,
    describe_together,
)

SURE = Estimate(0.3, 0.2, 0.4)


@pytest.mark.parametrize("name", NAMES)
def test_each_cause_has_a_title_and_a_command(name: Name) -> None:
    cause = Cause(name, Figure("output_from_drafts", 0.3, 0.6), SURE, SURE, suggested=2)
    lines = describe_cause(cause, time.gmtime)
    assert lines[0].startswith(TITLES[name])
    assert all(line and "{" not in line for line in lines)
    command = command_of(cause, "http://engine")
    assert command.startswith(("specdeck ", "vllm serve ", "top "))
    assert "None" not in command
    assert "{" not in command


@pytest.mark.parametrize("name", NAMES)
def test_no_command_ends_an_engine_and_a_restart_is_said_to_interrupt(name: Name) -> None:
    cause = Cause(name, Figure("step_ms", 37.0, 18.0), SURE, SURE, suggested=2)
    command, words = command_of(cause, "http://engine"), " ".join(describe_cause(cause))
    assert not any(word in command for word in ("specdeck stop", "specdeck run", "kill", "restart"))
    if "vllm serve" in command or "restart" in words:
        assert "interrupts every request" in words


def test_slower_steps_are_looked_into_before_anything_is_done() -> None:
    cause = Cause("step_time_latched", Figure("step_ms", 37.0, 18.0), SURE, SURE)
    words = " ".join(describe_cause(cause))
    assert words.index("what shares it") < words.index("a restart is the last step")


@given(st.lists(st.floats(0.0, 0.95), min_size=1, max_size=6))
def test_shares_add_up_to_one_and_costs_to_no_more_than_all_of_the_speed(
    costs: list[float],
) -> None:
    figure = Figure("step_ms", 37.0, 18.0)
    causes = rank([
        Cause("step_time_latched", figure, SURE, Estimate(cost, 0.0, 0.99)) for cost in costs
    ])  # fmt: skip
    if any(costs):
        assert sum(cause.share or 0.0 for cause in causes) == pytest.approx(1.0)
    together = sum_costs(causes)
    assert (together is None) == (len(costs) < 2)
    if together is not None:
        assert max(costs) - 1e-9 <= together <= min(1.0, sum(costs) + 1e-9)


def test_two_causes_are_said_not_to_add_up() -> None:
    figure = Figure("step_ms", 37.0, 18.0)
    causes = [
        Cause("step_time_latched", figure, SURE, Estimate(cost, 0.0, 0.99)) for cost in (0.6, 0.5)
    ]
    assert describe_together(causes) == (
        "together they take 80 % of the speed: each, of what the others leave"
    )
    assert describe_together(causes[:1]) is None


def test_a_draft_that_a_figure_suspects_is_no_certain_one() -> None:
    figure = Figure("acceptance", 0.02, None)
    suspected = Cause("draft_of_another_target", figure, Estimate(0.02, 0.01, 0.03), None)
    assert "no draft can guess" in " ".join(describe_cause(suspected))
    proven = Cause("draft_of_another_target", Figure("same_vocabulary", 0.0, 1.0), SURE, None,
                   certain=True)  # fmt: skip
    assert "vocabulary is not the target's" in " ".join(describe_cause(proven))
    assert "no draft can guess" not in " ".join(describe_cause(proven))
    assert describe_ruled_out(RuledOut("draft_of_another_target", None)).endswith("accepted")


def test_what_an_adapter_is_called_is_one_line_without_escapes() -> None:
    group = Group("adapter", ("a\x1b[2J\nb",))
    cause = Cause("adapter", Figure("output_from_drafts", 0.3, 0.6), SURE, SURE, group)
    assert not any("\x1b" in line or "\n" in line for line in describe_cause(cause))
