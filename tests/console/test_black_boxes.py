"""A console with black boxes: what it records is what it shows of the past, also the next time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.pilot import press, run
from tests.support.readings import START, URL
from tests.support.screen_text import screen_text

from specdeck.console.app import Console
from specdeck.console.widgets.charts import Chart
from specdeck.console.widgets.text import Line
from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.event import BoxEvent
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import between

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole

NOW = START + 200
TURN = START + 60


def sample(n: int) -> Sample:
    """Counters of an engine that accepts 70 % of its drafts, and 5 % from a moment on."""
    good = min(n, 60)
    accepted = good * 350.0 + (n - good) * 25.0
    return Sample(
        START + n, float(n), "demo-target", generated=n * 100.0 + accepted, drafts=n * 100.0,
        drafted=n * 500.0, accepted=accepted, running=4.0, waiting=0.0,
    )  # fmt: skip


def record(folder: Path, kit: type[Kit], seconds: int = 180, *, told: bool = True) -> None:
    """What another console has recorded before it was killed."""
    box = open_box(box_path(folder, URL), URL, name="demo")
    assert box is not None
    before = None
    for n in range(seconds):
        now = sample(n)
        window = None if before is None else between(before, now)
        box.append(Reading(now.t, URL, now, window, kit.state))
        before = now
    if told:
        box.add_event(BoxEvent(TURN, "change", "bob changed k 3 → 5", "accent", "k5", who="bob"))
    box.close()


async def test_the_past_is_there_after_the_console_was_killed(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    record(tmp_path, kit)
    app = console(kit.engine([kit.reading(199)]), clock=lambda: NOW, black_boxes=tmp_path)
    async with run(app, size=(80, 24)) as pilot:
        assert "bob changed k 3 → 5" in screen_text(app)
        await press(pilot, "g", *"-100s", "enter")
        track = app.context.timeline.track
        assert track.reading is not None
        assert track.reading.t == NOW - 100
        assert track.reading.window == between(sample(99), sample(100))
        assert "5.0 %" in screen_text(app)
        assert "PAST" in screen_text(app)
        await press(pilot, "left_curly_bracket")
        assert app.context.timeline.view.t == pytest.approx(TURN + 1, abs=0.2)
        assert "5.0 %" in screen_text(app)
        assert "acceptance fell from 70 % to 5 %" in screen_text(app)
        await press(pilot, "left_curly_bracket")
        assert app.context.timeline.view.t == TURN
        assert "70.0 %" in screen_text(app)
        await press(pilot, "enter")
        for one in ("bob", "a change", "30 s before", "70.0 %", "5.0 %"):
            assert one in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_console_that_comes_later_shows_at_once_what_was_recorded(
    kit: type[Kit], console: MakeConsole, tmp_path: Path, size: tuple[int, int]
) -> None:
    record(tmp_path, kit, 198, told=False)
    app = console(kit.engine([kit.reading(199)]), clock=lambda: NOW, black_boxes=tmp_path)
    async with run(app, size=size) as pilot:
        await press(pilot)
        assert "04:41:01  acceptance fell from 70 % to 5 %" in screen_text(app)
        lane = app.screen.query_one("#lane", Line).row
        assert "".join(cell.text for cell in lane.left).startswith(" • 04:41:01 ◂ 04:4")
        chart = app.screen.query_one("#acceptance", Chart)
        known = [value for value in chart.series.window(chart.columns)[1] if value is not None]
        assert len(known) > chart.columns / 2
        assert known[-3] == pytest.approx(0.05)
        assert not app.controller.tracks[0].events
        await press(pilot, "e")
        assert "events of demo  1" in screen_text(app)
        await press(pilot, "enter")
        assert app.context.timeline.view.t == pytest.approx(TURN + 1, abs=0.2)


async def test_a_longer_span_now_has_what_another_console_recorded(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    record(tmp_path, kit)
    app = console(kit.engine([kit.reading(199)]), clock=lambda: NOW, black_boxes=tmp_path)
    async with run(app, size=(120, 40)) as pilot:
        await press(pilot, "greater_than_sign", "greater_than_sign")
        stretch = app.context.timeline.stretch(50)
        assert stretch is not None
        known = [one for one in stretch.acceptance if one is not None]
        assert min(one.low for one in known) < 0.06
        assert max(one.high for one in known) > 0.69


async def test_the_black_box_of_an_engine_is_replayed_with_its_url(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    from specdeck.console.state.recorded import RecordedBox
    from specdeck.engine.blackbox.folder import open_history

    record(tmp_path, kit)
    found = open_history(tmp_path, "demo")
    app = Console([RecordedBox(found, name=found.name, url=found.url)], clock=lambda: NOW)
    async with run(app, size=(80, 24)) as pilot:
        assert "REPLAY" in screen_text(app)
        assert "5.0 %" in screen_text(app)
        await press(pilot, *["left_curly_bracket"] * 2)
        assert app.context.timeline.view.t == TURN


async def test_a_fall_a_minute_after_the_record_began_is_found_much_later(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    record(tmp_path, kit, 1000, told=False)
    app = console(kit.engine([kit.reading(999)]), clock=lambda: START + 999, black_boxes=tmp_path)
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "left_curly_bracket")
        assert app.context.timeline.view.t == pytest.approx(TURN, abs=5)
        assert "acceptance fell from 70 % to 5 %" in screen_text(app)
