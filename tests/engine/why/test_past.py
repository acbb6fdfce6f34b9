"""Why, out of a black box: a stretch that was recorded, against an hour before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.engine_state import engine_state
from tests.support.recorded_engine import busy_sample
from tests.support.recorded_fall import FALL, record_fall
from tests.support.simulated_traffic import T0, URL, Request, Traffic

from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.errors import Unsupported
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.window import between
from specdeck.engine.why.past import compare_with_past, recall, recall_before, recall_hour_ago
from specdeck.engine.why.ranking import diagnose

MINUTE = 60.0
COLLAPSE = 3900.0
"""Seconds after the beginning at which JSON requests collapse and each step takes longer."""
END = 4800.0


def suffer(request: Request, t: float) -> float:
    return 0.25 if request.structured == "json" and t > COLLAPSE else 0.72


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour and a third: readings every ten seconds, cohorts every minute."""
    folder = tmp_path_factory.mktemp("boxes")
    box = open_box(box_path(folder, URL), URL, name="demo")
    assert box is not None
    traffic = Traffic(1, accept=suffer, rate=1.5, step_s=1.0)
    before: Reading | None = None
    step = 0
    with closing(box):
        for second in range(0, int(END) + 1, 10):
            step += 400 if second <= COLLAPSE else 250  # 25 ms, then 40 ms
            sample = busy_sample(second, t=T0 + second, start=T0)
            state = engine_state(instance="one", started=T0, step=step)
            window = (
                None if before is None or before.sample is None else between(before.sample, sample)
            )
            before = Reading(T0 + second, URL, sample, window, state)
            box.append(before)
            if second % 60 == 0:
                if second:
                    traffic.run(MINUTE, pieces=1)
                box.add_cohorts(T0 + second, replace(traffic.tell(), t=T0 + second))
    return box_path(folder, URL)


@pytest.fixture
def history(recorded: Path) -> Iterator[History]:
    with closing(History(recorded)) as found:
        yield found


def test_a_collapse_of_the_past_is_named_against_an_hour_before(history: History) -> None:
    evidence = recall(history, T0 + COLLAPSE, T0 + END)
    assert evidence.baseline is not None
    assert evidence.baseline.source == "history"
    assert evidence.baseline.span.end <= T0 + COLLAPSE
    assert len(evidence.series) >= 5
    found = diagnose(evidence)
    named = {cause.name: cause for cause in found.causes}
    assert named["structured_output"].movement == "fell"
    assert found.moved is not None
    assert found.moved.after < found.moved.before


def test_a_stretch_before_it_has_no_cause(history: History) -> None:
    found = diagnose(recall(history, T0 + 1800, T0 + 3600))
    assert found.causes == ()


def test_steps_that_became_slower_are_seen_between_readings(history: History) -> None:
    evidence = recall(history, T0 + 1200, T0 + END)
    assert len(evidence.step_means) > 200
    found = diagnose(evidence)
    named = {cause.name: cause for cause in found.causes}
    since = named["step_time_latched"].since
    assert since is not None
    assert abs(since - (T0 + COLLAPSE)) < 240
    assert named["step_time_latched"].figure.value == pytest.approx(40, rel=0.1)


def test_a_time_without_a_record_says_so(history: History) -> None:
    with pytest.raises(Unsupported, match="no cohorts"):
        recall(history, T0 - 7200, T0 - 3600)


def test_too_short_a_past_is_no_baseline(history: History) -> None:
    assert recall_hour_ago(history, T0 + 30) is None
    assert recall_hour_ago(history, T0 - 30) is None
    assert recall_hour_ago(history, T0 + END) is not None


def test_an_engine_is_compared_with_the_time_before_its_fall(tmp_path: Path) -> None:
    traffic = record_fall(tmp_path / "a.db", FALL + 240)
    evidence = traffic.forget().run(30.0, pieces=6).evidence()
    with closing(History(tmp_path / "a.db")) as history:
        found = compare_with_past(evidence, history)
        assert found.baseline is not None
        assert found.baseline.source == "history"
        assert found.baseline.span.end <= T0 + FALL
        moved = diagnose(found).moved
        assert moved is not None
        assert moved.before > 2 * moved.after


def test_an_engine_is_not_compared_with_another_that_had_its_address(tmp_path: Path) -> None:
    traffic = record_fall(tmp_path / "a.db", FALL + 240)
    evidence = traffic.forget().run(30.0, pieces=6).evidence()
    with closing(History(tmp_path / "a.db")) as history:
        same = compare_with_past(replace(evidence, model="demo-target"), history)
        assert same.baseline is not None
        assert same.baseline.source == "history"
        other = replace(evidence, model="other")
        assert compare_with_past(other, history) == other
        assert recall_before(history, T0 + FALL + 240, model="other") is None
        assert recall(history, T0 + FALL, T0 + FALL + 240).model == "demo-target"


def test_what_was_recorded_for_a_moment_only_knows_the_life_before_the_fall(
    tmp_path: Path,
) -> None:
    record_fall(tmp_path / "a.db", FALL + 240, since=FALL - 60)
    with closing(History(tmp_path / "a.db")) as history:
        found = recall_before(history, T0 + FALL + 240)
        assert found is not None
        assert found.source == "life"
        assert found.span.end <= T0 + FALL
        assert found.span.total.requests > 500


def test_an_engine_is_compared_with_the_time_before_a_gap_that_it_fell_in(tmp_path: Path) -> None:
    gap = range(FALL - 150, FALL + 150)
    record_fall(tmp_path / "a.db", FALL + 600, gap=gap)
    with closing(History(tmp_path / "a.db")) as history:
        found = recall_before(history, T0 + FALL + 600)
    assert found is not None
    assert found.span.end <= T0 + gap.start
