"""What speaks for a cause: who fell, who did not, how suddenly, and what stayed as it was."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.incident_engine import FALL, SECONDS, record_collapse, record_poison
from tests.support.readings import START, URL

from specdeck.engine.blackbox.event import BoxEvent, EventKind, EventTone
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.incident.collect import Sources, assemble
from specdeck.engine.incident.hypotheses import list_hypotheses
from specdeck.engine.incident.material import Material, Span
from specdeck.engine.incident.moves import Move
from specdeck.engine.incident.page import write_page
from specdeck.engine.text import format_duration


def collect(path: Path) -> Material:
    with closing(History(path)) as history:
        span = Span(START, START + SECONDS + 20.0)
        return assemble(Sources(URL, "demo", history=history), span, None, written=span.end)


@pytest.fixture
def poisoned(tmp_path: Path) -> Material:
    path = box_path(tmp_path, URL)
    record_poison(path)
    return collect(path)


def section(page: str, name: str) -> list[str]:
    """The lines under a heading."""
    return page.split(f"## {name}\n\n")[1].split("\n## ")[0].splitlines()


def test_the_fall_has_its_second_and_is_sudden(poisoned: Material) -> None:
    assert poisoned.fall is not None
    assert poisoned.onset is not None
    assert poisoned.fall.t == pytest.approx(START + FALL, abs=1.5)
    assert poisoned.onset.is_sudden


def test_the_case_has_who_fell_and_who_did_not(poisoned: Material) -> None:
    case = poisoned.case
    assert case is not None
    assert (case.group.by, case.pattern, case.is_longest) == ("prompt", "rejected", True)
    assert case.inside.held is False
    assert case.outside.held is True
    assert {(one.word, one.inside.held, one.outside.held) for one in case.contrasts} == {
        ("0%", False, True), ("50-74%", False, True),
    }  # fmt: skip
    assert case.share_before == pytest.approx(case.share_after, abs=0.02)
    assert [one.issue for one in list_hypotheses(case)].count("vllm#47930") == 1


def test_what_happened_begins_with_the_fall_and_whom_it_met(poisoned: Material) -> None:
    page = write_page(poisoned, (), time.gmtime)
    first = section(page, "What happened")[0]
    when = time.strftime("%H:%M:%S", time.gmtime(START + FALL))
    assert when in first
    assert "acceptance fell from 69% to 20%" in first
    assert "prompts of 64 or more tokens from 73% to 4%" in first
    assert "shorter ones did not fall (66% → 68%)" in first
    short = section(page, "In short")
    assert "acceptance fell from 69% to 20%" in short[0]
    started = poisoned.state["started"] if poisoned.state else None
    assert started is not None
    since = time.strftime("%H:%M:%S", time.gmtime(started))
    ran = format_duration(START + FALL - started)
    assert f"- The engine had run for {ran} by then, since {since}." in short


def test_another_load_shortly_before_the_fall_is_told(poisoned: Material) -> None:
    loads = [BoxEvent(START + FALL + by, "load", f"load profile of {by}") for by in (-200, -3, 60)]
    made = replace(poisoned, events=(*poisoned.events, *loads))
    short = section(write_page(made, (), time.gmtime), "In short")
    when = time.strftime("%H:%M:%S", time.gmtime(START + FALL - 3))
    found = [line for line in short if "load profile" in line]
    assert found == [f"- Shortly before: {when} load profile of -3"]


def test_what_moved_k_by_itself_shortly_before_the_fall_is_told(poisoned: Material) -> None:
    told: list[tuple[EventKind, EventTone, float]] = [
        ("policy", "accent", -200), ("policy", "accent", -9), ("policy", "accent", -3),
        ("policy", "accent", 4), ("breaker", "bad", 0), ("breaker", "warn", 0.9),
        ("breaker", "good", 2),
    ]  # fmt: skip
    events = [
        BoxEvent(START + FALL + by, kind, f"{kind} of {by:g}", tone) for kind, tone, by in told
    ]
    made = replace(poisoned, events=(*poisoned.events, *events))
    short = section(write_page(made, (), time.gmtime), "In short")
    found = [line for line in short if "policy of" in line or "breaker of" in line]
    at = [time.strftime("%H:%M:%S", time.gmtime(START + FALL + by)) for by in (-3, 0)]
    assert found == [
        f"- Shortly before: {at[0]} policy of -3", f"- Shortly before: {at[1]} breaker of 0",
    ]  # fmt: skip


def test_the_page_says_what_it_is_not_with_figures(poisoned: Material) -> None:
    why = "\n".join(section(write_page(poisoned, (), time.gmtime), "Why"))
    for words in (
        "the draft fails for prompts of 64 or more tokens since", "from the first token on",
        "tokens drafted for prompts of 64 or more tokens (", " on average) 7",
        "not a k that is too long", "no drift", "not another mix of traffic",
        "it is not the prefix cache", "steps are not slower", "no request was preempted",
        "the engine is the same: no restart", "nothing was set: k",
        "guesses", "vllm\\#47930", "last, as it interrupts every request: a restart",
    ):  # fmt: skip
        assert words in why, words


def test_what_was_tried_already_is_said_to_have_been(poisoned: Material) -> None:
    assert poisoned.fall is not None
    tried = {"policy": "goodput", "goodput.rest_rounds": 16}
    before = {"policy": "fixed", "goodput.rest_rounds": None}
    t = poisoned.fall.t
    assert "it was tried" not in write_page(poisoned, (), time.gmtime)
    begun = Move(t + 60, "ann", "operator", before, tried, None, "")
    ended = Move(t + 140, "specdeck", "trial", tried, before, "inconclusive", "")
    poisoned.moves = (begun, ended)
    times = [time.strftime("%H:%M:%S", time.gmtime(one.t)) for one in (begun, ended)]
    page = write_page(poisoned, (), time.gmtime)
    assert f"it was tried at {times[0]} and taken back at {times[1]}" in page
    poisoned.moves = (begun,)
    assert f"it was set at {times[0]}" in write_page(poisoned, (), time.gmtime)


def test_a_change_shortly_before_is_not_called_nothing(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    record_collapse(path)
    page = write_page(collect(path), (), time.gmtime)
    assert "nothing was set" not in page
    assert "Shortly before" in page
    assert "No change, no restart" not in page


def test_that_nothing_happened_before_is_said(poisoned: Material) -> None:
    short = "\n".join(section(write_page(poisoned, (), time.gmtime), "In short"))
    assert "No change, no restart and no event is known of the 3 min before that." in short


def test_what_is_ruled_out_does_not_deny_the_first_cause(poisoned: Material) -> None:
    why = "\n".join(section(write_page(poisoned, (), time.gmtime), "Why"))
    assert "its first tokens are accepted" not in why
    assert "the draft of another target: first tokens of shorter ones are accepted" in why


def test_the_speed_falls_with_acceptance_and_again_by_itself(tmp_path: Path) -> None:
    path = box_path(tmp_path, URL)
    record_poison(path, slower=450)
    made = collect(path)
    speeds = [one.t - START for one in made.falls if one.figure == "tokens_per_second"]
    assert speeds == pytest.approx([FALL, 450], abs=5.0)
    assert len(made.further) == 1
    _, before, after = made.further[0]
    assert before.step_s is not None
    assert after.step_s == pytest.approx(2 * before.step_s, rel=0.2)
    text = "\n".join(section(write_page(made, (), time.gmtime), "What happened"))
    assert "at the same second" in text
    assert "acceptance did not fall then" in text


def test_what_was_known_is_told_of_an_engine_that_hung_at_its_end(poisoned: Material) -> None:
    page = write_page(poisoned, (), time.gmtime)
    engine = "\n".join(section(page, "The engine"))
    assert "| model | demo" in engine
    assert "| vllm | 0.32" in engine
    when = time.strftime("%H:%M:%S", time.gmtime(START + SECONDS - 4))
    assert f"| last word of its plugin | {when} |" in engine
    assert "needs specdeck" not in page
    assert "the engine tells no steps" not in page


def test_kinds_of_few_requests_stand_last_and_are_marked(poisoned: Material) -> None:
    assert poisoned.kinds is not None
    prompts = [kind for kind in poisoned.kinds.list() if kind.by == "prompt"]
    assert [kind.word for kind in prompts] == ["64-255", "16-63", "256-1023"]
    assert [kind.few for kind in prompts] == [False, False, True]
    rows = section(write_page(poisoned, (), time.gmtime), "Who suffers")
    (row,) = (line for line in rows if "256-1023" in line)
    assert row.endswith("| few requests |")
