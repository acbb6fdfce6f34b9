"""What stands at the top of each screen."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from rich.style import Style
from tests.support.readings import DOWN, STATE, URL, down, reading

from specdeck.console.screens.head import brief_control, notice, strip, title
from specdeck.console.state.engine_state import FingerprintNames, Track, fold_reading
from specdeck.console.state.tuning import LeftKnobs
from specdeck.console.widgets.text import row_strip
from specdeck.engine.metrics.window import Window
from specdeck.engine.protocol.messages import Breaker, LastChange, Policy


def words(track: Track) -> str:
    return " ".join(cell.text for cell in title(track, armed=False).right)


def test_threads_that_wait_for_cpus_stand_in_the_title_from_a_fifth_of_the_time_on() -> None:
    up = fold_reading(Track("demo", URL), reading(1))
    for waited, shown in ((22.2, True), (12.0, True), (11.0, False)):
        minute = Window(60.0, cpu_watched=60.0, worker_waited=waited)
        found = words(replace(up, last_minute=minute))
        assert ("CPU wait" in found) == shown
    assert "CPU wait 37 %" in words(
        replace(up, last_minute=Window(60.0, cpu_watched=60.0, worker_waited=22.2))
    )
    assert "CPU" not in words(replace(up, last_minute=Window(60.0)))
    assert "CPU" not in words(up)


def test_what_a_sweep_left_turned_stays_until_it_is_answered() -> None:
    left = LeftKnobs({"k": 5, "mode": "speculate"}, "NOT given back", "specdeck set e k=5", 3)
    swept = LastChange(0.0, "ann", "sweep", {"k": 5}, {"k": 2}, "sweep")
    theirs = replace(swept, who="bob", origin="operator")
    turned = replace(STATE, k=2, k_set=2, version=3, last_change=swept)

    def shown(track: Track) -> str:
        rows = notice(track, time.gmtime)
        return " ".join(cell.text for row in rows for cell in row.left)

    before = fold_reading(Track("demo", URL), reading(1, turned))
    track = fold_reading(replace(before, left=left), reading(2, turned))
    assert shown(track) == " sweep: NOT given back  → `specdeck set e k=5`"
    late = replace(turned, k=3, k_set=3, version=4)
    assert shown(fold_reading(track, reading(3, late)))
    down = fold_reading(track, reading(3).as_down(DOWN))
    assert "sweep: NOT given back" in shown(down)

    back = fold_reading(track, reading(3, replace(STATE, version=4, last_change=theirs)))
    assert shown(back) == ""
    assert "the engine is as the sweep found it" in [event.text for event in back.events]
    taken = replace(turned, k=4, k_set=4, version=4, last_change=theirs)
    changed = fold_reading(track, reading(3, taken))
    assert shown(changed) == ""
    assert "bob has changed what the sweep left" in [event.text for event in changed.events]
    assert shown(fold_reading(track, reading(3, replace(turned, instance="b")))) == ""


def test_the_wait_for_cpus_goes_before_the_name_and_the_light_of_an_engine() -> None:
    up = fold_reading(Track("demo", URL), reading(1))
    minute = Window(60.0, cpu_watched=60.0, worker_waited=22.2)
    names = FingerprintNames("b", "p", pinned=True, differs="path")
    row = title(replace(up, last_minute=minute, names=names), armed=True)

    def drawn(width: int) -> str:
        return row_strip(row, width, lambda tone: Style()).text

    assert "CPU wait 37 %  ≠ pin: path  ● up  armed" in drawn(80)
    assert drawn(50).startswith(" specdeck  demo ")
    assert drawn(50).endswith(" ≠ pin: path  ● up  armed ")
    assert drawn(40).startswith(" specdeck  demo ")
    assert drawn(40).endswith(" ≠ pin: path  ● up ")
    assert drawn(20) == " specdeck  demo ● up"


@pytest.mark.parametrize(
    ("width", "policy", "breaker", "shown"),
    [
        (70, "fixed", "closed", "speculate"),
        (70, "fixed", "open", "speculate · breaker open"),
        (70, "goodput", "half-open", "speculate · policy goodput · breaker half-open"),
        (40, "goodput", "closed", "speculate · goodput"),
        (40, "goodput", "open", "breaker open"),
        (36, "fixed", "open", "breaker open"),
    ],
)
def test_a_narrow_screen_has_the_breaker_beside_k(
    width: int, policy: Policy, breaker: Breaker, shown: str
) -> None:
    state = replace(STATE, policy=policy, breaker=breaker)
    row = brief_control(fold_reading(Track("demo", URL), reading(1, state)))
    drawn = row_strip(row, width, lambda tone: Style()).text
    assert drawn.removeprefix("".join(cell.text for cell in row.left)).strip() == shown


@pytest.mark.parametrize(
    ("width", "selected", "shown"),
    [
        (200, 0, " ●[m0] ● m1  ● m2  ● m3  ● m4  ● m5  ● m6  ● m7  ● m8  ● m9     tab next "),
        (60, 0, " ●[m0] ● m1  ● m2  ● m3  6›      1 of 10 down  tab next "),
        (60, 5, "‹4 ● m4  ●[m5] ● m6  ● m7  2›    1 of 10 down  tab next "),
        (60, 9, "‹6 ● m6  ● m7  ● m8  ●[m9]       1 of 10 down  tab next "),
        (24, 5, "‹5 ●[m5] 4›"),
    ],
)
def test_of_many_engines_the_selected_one_is_seen_and_how_many_are_down(
    width: int, selected: int, shown: str
) -> None:
    tracks = [fold_reading(Track(f"m{n}", URL), reading(1)) for n in range(10)]
    tracks[7] = fold_reading(tracks[7], down(2))
    row = strip(tuple(tracks), selected, lambda _: "tab", width)
    drawn = row_strip(row, width, lambda tone: Style()).text
    assert len(drawn) == width
    assert drawn.split() == shown.split()
