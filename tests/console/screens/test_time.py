"""Time on every screen: the past is shown as the past, and nothing is steered there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.listed_history import ListedEvent, ListedHistory
from tests.support.pilot import press, run
from tests.support.readings import START, reading
from tests.support.screen_text import screen_text
from tests.support.tuned_engine import tuning

from specdeck.console.app import Console
from specdeck.console.screens.timeline.dialogs import EventDialog, MomentDialog
from specdeck.console.state.engine_state import Event
from specdeck.console.state.recorded import RecordedBox
from specdeck.console.widgets.charts import Chart
from specdeck.console.widgets.text import Feed, Line, Notice, Rows
from specdeck.engine.errors import ConfigError
from specdeck.engine.metrics.reading import Reading

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole

NOW = START + 600
COLLAPSE = START + 420


def collapsing(n: int) -> Reading:
    """Seven good minutes, after which next to nothing is accepted."""
    found = reading(n)
    if START + n < COLLAPSE or found.window is None:
        return found
    drafts = found.window.drafts or 0.0
    poor = tuple(drafts * 0.1**position for position in range(1, 6))
    window = replace(
        found.window, accepted=sum(poor), generated=drafts + sum(poor), accepted_per_position=poor
    )
    return replace(found, window=window)


EVENTS = (
    ListedEvent(START + 60, "ann changed k 3 → 5", "change", "accent", "k5", "operator", "ann",
                "more is better"),
    ListedEvent(COLLAPSE + 5, "breaker open: loses 12 %", "breaker", "bad", "breaker open"),
    ListedEvent(COLLAPSE + 9, "goodput: k 5 pays", "policy"),
    ListedEvent(START + 560, "the engine was restarted", "restart", "warn", "restart"),
)  # fmt: skip


@pytest.fixture
def history() -> ListedHistory:
    return ListedHistory([collapsing(n) for n in range(600)], EVENTS)


@pytest.fixture
def app(kit: type[Kit], console: MakeConsole, history: ListedHistory) -> Console:
    """A console that has looked at the engine for a second, and knows ten minutes of it."""
    engine = kit.engine([collapsing(598), collapsing(599)])
    return console(engine, clock=lambda: NOW, histories=lambda index: history)


def words(app: Console, name: str, kind: Any = Line) -> str:
    widget = app.screen.query_one(f"#{name}", kind)
    rows = [widget.row] if isinstance(widget, Line) else widget.rows
    return "\n".join("".join(c.text for c in (*row.left, *row.right)) for row in rows)


async def test_two_minutes_back_is_the_collapse_with_its_figures(app: Console) -> None:
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "g", *"-2m", "enter")
        assert "PAST 2026-11-21 04:48:00 · 2 min ago" in words(app, "identity")
        chart = app.screen.query_one("#acceptance", Chart).series
        assert chart.latest.text == "2.2 %"
        before = [value for value in chart.values if value is not None and value > 0.2]
        after = [value for value in chart.values if value is not None and value < 0.2]
        assert before
        assert after
        assert chart.cursor is not None
        text = screen_text(app)
        assert "■" in words(app, "lane")
        assert "breaker open: loses 12 %" in text


async def test_keys_go_from_event_to_event_and_back_to_now(app: Console) -> None:
    async with run(app) as pilot:
        timeline = app.context.timeline
        for wanted in (START + 560, COLLAPSE + 5, COLLAPSE, START + 60, START + 60):
            await press(pilot, "left_curly_bracket")
            assert timeline.view.t == pytest.approx(wanted, abs=1)
        assert "no event is recorded before this" in words(app, "notice", Notice)
        await press(pilot, "g", *"04:45", "enter", *["right_curly_bracket"] * 2)
        assert timeline.view.t == COLLAPSE + 5
        assert "acceptance fell from" in screen_text(app)
        await press(pilot, "end")
        assert timeline.view.t is None
        assert "PAST" not in words(app, "identity")
        assert words(app, "notice", Notice) == ""


async def test_a_fall_that_nobody_has_told_of_is_an_event(
    app: Console, history: ListedHistory
) -> None:
    history.told.clear()
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "left_curly_bracket")
        assert app.context.timeline.view.t == pytest.approx(COLLAPSE, abs=5)
        assert "•" in words(app, "lane")
        await press(pilot, "enter")
        assert isinstance(app.screen, EventDialog)
        assert "acceptance fell from" in screen_text(app)


@pytest.mark.parametrize("kind", ["engine", "recording"])
async def test_a_fall_is_one_fact_from_whatever_moment_and_span_it_is_looked_at(
    kit: type[Kit], console: MakeConsole, kind: str
) -> None:
    story = [replace(collapsing(100 if n < 3000 else 430), t=START + n) for n in range(1, 4000)]
    history = ListedHistory(story)
    engine: Any = kit.engine(story[-1:])
    if kind == "recording":
        engine = RecordedBox(history, name="demo", url=history.url)
    app = console(engine, clock=lambda: START + 4000, histories=lambda index: history)
    timeline = app.context.timeline
    async with run(app):
        seen: set[tuple[Event, ...]] = set()
        for t in (START + 3001, START + 3100, START + 3500, START + 3900):
            timeline.go(t)
            for _ in range(9):
                timeline.widen(1)
                seen.add(timeline.track.events)
                stretch = timeline.stretch(53)
                assert stretch is not None
                inside = stretch.start <= START + 3000 <= stretch.start + stretch.seconds
                assert bool(stretch.events) is inside
            timeline.end()
        [[event]] = seen
        assert event.t == pytest.approx(START + 3000, abs=1)
        assert event.text == "acceptance fell from 29 % to 2 %"


async def test_a_fall_is_told_of_once_it_has_settled(
    kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    history.told.clear()
    now = COLLAPSE + 60
    history.listed = history.listed[:480]
    engine = kit.engine([collapsing(479)])
    app = console(engine, clock=lambda: now, histories=lambda index: history)
    async with run(app) as pilot:
        assert not app.context.timeline.track.events
        now = COLLAPSE + 120
        history.listed += [collapsing(n) for n in range(480, 540)]
        for n in (538, 539):
            engine.more.put_nowait(collapsing(n))
            await press(pilot)
        told = app.context.timeline.track.events
        assert [one.text for one in told] == ["acceptance fell from 40 % to 2 %"]
        await press(pilot, "g", *"-1m", "enter")
        assert app.context.timeline.track.events == told


async def test_a_fall_beyond_the_charts_is_found_to_its_seconds(
    kit: type[Kit], console: MakeConsole
) -> None:
    story = [kit.reading(0)]
    for n in range(1, 4000):
        found = collapsing(420 if n >= 1000 else 100)
        story.append(replace(found, t=START + n))
    history = ListedHistory(story)
    app = console(
        kit.engine(story[-1:]), clock=lambda: START + 4000, histories=lambda index: history
    )
    async with run(app) as pilot:
        await press(pilot, "left_curly_bracket")
        assert app.context.timeline.view.t == pytest.approx(START + 1000, abs=10)


async def test_an_even_past_has_no_fall(kit: type[Kit], console: MakeConsole) -> None:
    history = ListedHistory(kit.run(600))
    app = console(
        kit.engine(kit.run(1, first=599)), clock=lambda: NOW, histories=lambda index: history
    )
    async with run(app) as pilot:
        await press(pilot, "left_curly_bracket")
        assert app.context.timeline.view.t is None
        assert "no event is recorded before this" in words(app, "notice", Notice)


async def test_steps_and_spans(app: Console) -> None:
    async with run(app) as pilot:
        timeline = app.context.timeline
        await press(pilot, "left_square_bracket")
        assert timeline.view.t == NOW - 5
        await press(pilot, "left_square_bracket")
        await press(pilot, "right_square_bracket", "right_square_bracket")
        assert timeline.view.t is None
        await press(pilot, "left_square_bracket", "less_than_sign", "left_square_bracket")
        assert timeline.view.t == NOW - 6
        assert "span 1 min" in words(app, "notice", Notice)
        await press(pilot, *["greater_than_sign"] * 9)
        assert timeline.view.seconds == 86_400
        await press(pilot, "end", *["less_than_sign"] * 9)
        assert timeline.stretch(30) is None


async def test_a_longer_span_now_shows_what_was_recorded_before(app: Console) -> None:
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, *["greater_than_sign"] * 3)
        series = app.screen.query_one("#acceptance", Chart).series
        known = [value for value in series.values if value is not None]
        assert max(known) > 0.4
        assert min(low for low in series.lows if low is not None) < 0.12


@pytest.mark.parametrize("key", ["minus", "3", "t", "a", "b", "T", "w", "c", "z", "p"])
async def test_nothing_is_steered_in_the_past(
    key: str, kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    engine = kit.engine([collapsing(598), collapsing(599)], armed=False)
    app = console(engine, clock=lambda: NOW, histories=lambda index: history)
    async with run(app) as pilot:
        for screen in ("", "u"):
            await press(pilot, *screen)
            await press(pilot, "g", *"04:48", "enter")
            stack = len(app.screen_stack)
            await press(pilot, key)
            assert "this is 04:48:00, 2 min ago: press end for now" in words(app, "notice", Notice)
            assert len(app.screen_stack) == stack
    assert engine.asked == []
    assert not engine.armed


async def test_what_is_typed_at_once_after_the_key_is_a_moment_and_no_change(
    kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    engine = kit.engine([collapsing(598), collapsing(599)])
    app = console(engine, clock=lambda: NOW, histories=lambda index: history)
    async with run(app) as pilot:
        await pilot.press("g", *"-2m", "enter")
        await press(pilot)
        assert app.context.timeline.view.t == NOW - 120
    assert engine.asked == []


async def test_a_moment_that_is_none_is_said_and_the_dialog_stays(app: Console) -> None:
    async with run(app) as pilot:
        await press(pilot, "g", *"soon", "enter")
        assert isinstance(app.screen, MomentDialog)
        assert "soon is no time" in screen_text(app)
        await press(pilot, "escape")
        assert app.context.timeline.view.t is None


@pytest.mark.parametrize(("key", "title"), [("d", "identity"), ("f", "title"), ("u", "identity"),
                                            ("r", "identity")])  # fmt: skip
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_every_screen_says_that_it_is_the_past(
    app: Console, key: str, title: str, size: tuple[int, int]
) -> None:
    async with run(app, size=size) as pilot:
        await press(pilot, "g", *"04:48", "enter", key)
        assert "PAST 2026-11-21 04:48:00" in words(app, title)
        assert "end now" in screen_text(app)
        await press(pilot, "left_square_bracket")
        assert "PAST 2026-11-21 04:47:55" in words(app, title)
        await press(pilot, "end")
        assert "PAST" not in screen_text(app)


async def test_what_is_not_recorded_is_said_and_not_shown(app: Console) -> None:
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "g", *"04:48", "enter", "r")
        assert "requests are not recorded" in words(app, "requests", Rows)
        await press(pilot, "d")
        assert "a check asks the engine of now, and is not recorded" in screen_text(app)
        await press(pilot, "f")
        assert "facts are not" in screen_text(app)
        await press(pilot, "y")
        assert "causes are ranked by cohorts, and none are recorded here" in screen_text(app)
        assert "PAST" in words(app, "identity")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_tuning_of_a_moment_is_shown_with_its_age(
    app: Console, history: ListedHistory, size: tuple[int, int]
) -> None:
    breaker = replace(tuning().breaker, reason="then")
    told = replace(tuning(), breaker=breaker)
    history.kept = [("tuning", COLLAPSE, told.as_json())]
    history.listed = [
        replace(one, state=None if one.state is None else replace(one.state, breaker="open"))
        for one in history.listed
    ]
    history.told.clear()
    async with run(app, size=size) as pilot:
        await press(pilot, "g", *"04:49", "enter", "u")
        text = screen_text(app)
        assert "parameters, trial and measured speeds as recorded 2 min earlier" in text
        assert "fixed: k 5" in text  # as its reading has it, whatever was recorded then
        assert "goodput: k" not in text
        assert "open for 2 min 12 s: then" in text
        assert "846" in text  # of its curve
        await press(pilot, "g", *"04:47", "enter")
        assert "as recorded" not in screen_text(app)
        assert "open for 12 s: then" in screen_text(app)
        await press(pilot, "g", *"04:46", "enter")
        assert "not recorded of this moment" in screen_text(app)
        await press(pilot, "end")
        assert "s: then" not in screen_text(app)


async def test_prefix_cache_and_preemptions_are_those_of_the_minute_before(
    app: Console, history: ListedHistory
) -> None:
    history.listed = [
        replace(one, window=replace(
            one.window, preemptions=3.0, prefix_queries=200.0, prefix_hits=50.0
        )) if one.window is not None else one
        for one in history.listed
    ]  # fmt: skip
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "g", *"04:48", "enter")
        assert "3 in 1 min" in words(app, "traffic", Rows)
        assert "25 %" in words(app, "traffic", Rows)


class DemoLoad:
    profile = "steady"

    def next(self) -> str:
        self.profile = "hard"
        return self.profile


async def test_the_load_of_a_moment_is_not_the_one_of_now(
    kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    engine = kit.engine([collapsing(599)])
    app = console(engine, clock=lambda: NOW, histories=lambda index: history, load=DemoLoad())
    history.kept = [("load", COLLAPSE, {"profile": "recorded"})]
    async with run(app, size=(80, 24)) as pilot:
        assert "load steady" in words(app, "traffic-heading")
        await press(pilot, "space")
        app.controller.next_load()
        await press(pilot)
        assert "load steady" in words(app, "traffic-heading")
        await press(pilot, "end")
        assert "load hard" in words(app, "traffic-heading")
        await press(pilot, "g", *"04:48", "enter")
        assert "load recorded" in words(app, "traffic-heading")
        await press(pilot, "g", *"04:44", "enter")
        assert "load" not in words(app, "traffic-heading")


async def test_of_another_engine_nothing_of_now_is_shown_beside_the_past(
    kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    other = kit.engine([kit.down(599)], name="other", url="http://127.0.0.1:8001")
    app = console(
        kit.engine([collapsing(599)]), other, clock=lambda: NOW, histories=lambda index: history
    )
    async with run(app) as pilot:
        for screen in ((), ("u",)):
            await press(pilot, *screen)
            assert [one.text for one in app.screen.query_one("#engines", Line).row.left][4] == "●"
            await press(pilot, "g", *"04:48", "enter")
            assert [one.text for one in app.screen.query_one("#engines", Line).row.left][4] == "○"
            await press(pilot, "end")


async def test_an_event_is_opened_with_the_figures_around_it(app: Console) -> None:
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "left_curly_bracket", "left_curly_bracket", "enter")
        assert isinstance(app.screen, EventDialog)
        text = screen_text(app)
        for one in ("breaker open: loses 12 %", "04:47:05", "30 s before", "30 s after"):
            assert one in text
        await press(pilot, "enter")
        assert not isinstance(app.screen, EventDialog)


async def test_an_event_of_the_list_is_gone_to(app: Console) -> None:
    async with run(app) as pilot:
        await press(pilot, "left_square_bracket", "e", *["down"] * 4, "enter")
        assert app.context.timeline.view.t == START + 60
        assert "PAST" in words(app, "identity")


async def test_what_happened_before_the_console_was_opened_is_listed(app: Console) -> None:
    async with run(app, size=(80, 24)) as pilot:
        assert "04:49:20  the engine was restarted" in screen_text(app)
        assert app.controller.tracks[0].events == ()
        await press(pilot, "e")
        assert "ann changed k 3 → 5" in screen_text(app)


async def test_nothing_is_said_to_have_happened_only_where_nothing_is_recorded_before(
    app: Console, history: ListedHistory
) -> None:
    history.told.insert(0, ListedEvent(START - 1, "control armed", "control"))
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "g", *"04:40:30", "enter")
        assert "control armed" in screen_text(app)
        del history.told[0]
        await press(pilot, "left_square_bracket")
        assert "no event is recorded before this" in screen_text(app)
        history.told.clear()
        app.context.timeline.go(COLLAPSE + 1)
        await press(pilot)
        assert "acceptance fell" in words(app, "events", Feed)
        await press(pilot, *["greater_than_sign"] * 2)
        assert "acceptance fell" in words(app, "events", Feed)


async def test_events_that_there_is_no_room_for_are_counted(
    app: Console, history: ListedHistory
) -> None:
    history.told[:0] = [ListedEvent(START + n, f"ann changed k to {n}") for n in range(30)]
    async with run(app, size=(80, 24)) as pilot:
        assert "lists them" not in words(app, "events-heading")
        await press(pilot, "g", *"04:48", "enter")
        assert "34 up to here · e lists them" in words(app, "events-heading")


async def test_a_frozen_view_is_named_as_one(app: Console) -> None:
    async with run(app) as pilot:
        await press(pilot, "space")
        assert "FROZEN 2026-11-21 04:50:00" in words(app, "identity")
        await press(pilot, "minus")
        assert "press end for now" in words(app, "notice", Notice)
        await press(pilot, "left_square_bracket")
        assert "PAST 2026-11-21 04:49:55" in words(app, "identity")


@pytest.mark.parametrize("keys", [(), ("greater_than_sign",)])
async def test_a_frozen_lane_has_the_events_that_were_there(
    app: Console, keys: tuple[str, ...]
) -> None:
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, *keys)
        before = words(app, "lane")
        assert "▲" in before
        await press(pilot, "space")
        held = words(app, "lane")
        assert [before.count(sign) for sign in "▲■◆"] == [held.count(sign) for sign in "▲■◆"]
        assert held.split("─")[0] == before.split("─")[0]


async def test_time_goes_on_from_a_moment_of_the_past(
    kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    ticks: list[float] = []
    opened: list[Console] = []

    async def tick(seconds: float) -> None:
        ticks.append(seconds)
        if len(ticks) > 5:
            opened[0].context.timeline.toggle_freeze()

    found = console(
        kit.engine([collapsing(599)]), clock=lambda: NOW, histories=lambda index: history,
        sleep=tick,
    )  # fmt: skip
    opened.append(found)
    async with run(found) as pilot:
        await press(pilot, "g", *"-2m", "enter", "space")
        assert found.context.timeline.view.t == NOW - 115
        assert not found.context.timeline.view.playing


async def test_live_screens_go_on_collecting_meanwhile(
    kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    engine = kit.engine([collapsing(598)])
    app = console(engine, clock=lambda: NOW, histories=lambda index: history)
    async with run(app) as pilot:
        await press(pilot, "g", *"-2m", "enter")
        engine.more.put_nowait(collapsing(599))
        await press(pilot)
        assert app.controller.tracks[0].total == 2
        assert "PAST" in words(app, "identity")


async def test_without_a_record_the_keys_say_so(kit: type[Kit], console: MakeConsole) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app) as pilot:
        for key in ("left_square_bracket", "left_curly_bracket", "g"):
            await press(pilot, key)
            assert "nothing is recorded of this engine" in words(app, "notice", Notice)
        assert app.context.timeline.view.t is None


async def test_a_record_that_cannot_be_read_is_one_line(
    app: Console, history: ListedHistory
) -> None:
    async with run(app) as pilot:
        history.error = ConfigError("the black box is damaged")
        await press(pilot, "g", *"-2m", "enter")
        assert "the black box is damaged" in words(app, "notice", Notice)
        assert app.crash is None


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10), (20, 5), (1, 1)])
async def test_every_size_shows_the_past(app: Console, size: tuple[int, int]) -> None:
    async with run(app, size=size) as pilot:
        await press(pilot, "left_square_bracket")
        for key in ("", "d", "f", "u", "r"):
            await press(pilot, *key)
    assert app.crash is None


async def test_another_engine_is_shown_at_the_same_moment(
    kit: type[Kit], console: MakeConsole, history: ListedHistory
) -> None:
    west = kit.engine([collapsing(599)], name="west")
    east = kit.engine([kit.down(0)], name="east", url="http://east:8000")
    app = console(west, east, clock=lambda: NOW, histories=lambda index: None if index else history)
    async with run(app) as pilot:
        await press(pilot, "g", *"-2m", "enter", "tab")
        assert "PAST 2026-11-21 04:48:00" in words(app, "identity")
        assert "not recorded" in words(app, "notice", Notice)
        await press(pilot, "tab")
        assert app.context.timeline.track.reading is not None


async def test_names_that_were_looked_up_are_shown_and_nothing_of_the_pin_of_now(
    app: Console, history: ListedHistory
) -> None:
    names = {"build": "sd1:bcafe", "path": kit_path(history), "behaviour": "sd1:xbeef"}
    history.kept = [("fingerprint", COLLAPSE, names)]
    async with run(app, size=(80, 24)) as pilot:
        await press(pilot, "g", *"04:48", "enter", "f")
        text = screen_text(app)
        assert "sd1:bcafe" in text
        assert "sd1:xbeef" in text
        assert "no pin" not in words(app, "title")
        assert all(one.label != "fact" for one in app.screen.list_copies())  # type: ignore[attr-defined]
        await press(pilot, "g", *"04:46", "enter")
        assert "sd1:bcafe" not in screen_text(app)


def kit_path(history: ListedHistory) -> str:
    state = history.listed[0].state
    assert state is not None
    assert state.fingerprint is not None
    return state.fingerprint
