"""The tuning screen in a pilot's hands: what it shows, what its keys do, and how it looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.memory_audit import MemoryAudit
from tests.support.pilot import press, run, settle, type_at_once, until
from tests.support.readings import START
from tests.support.screen_text import screen_text
from tests.support.tuned_engine import (
    ABLE,
    RATES,
    TRIAL,
    WHY,
    WON,
    TunedClient,
    TunedEngine,
    tuning,
)
from textual.widgets import Input, Label, OptionList

from specdeck.console.app import Console
from specdeck.console.screens.dialogs import Dialog
from specdeck.console.screens.engine_screen import TYPING_S
from specdeck.console.screens.live.screen import LiveScreen
from specdeck.console.screens.tuning.dialogs import (
    ParametersScreen,
    TrialDialog,
    ValueDialog,
    parse_value,
    parse_wish,
    suggest_trial,
)
from specdeck.console.screens.tuning.screen import TuningScreen
from specdeck.console.screens.tuning.view import feed, status
from specdeck.console.state.engine_state import Cause, Track, fold_reading
from specdeck.console.widgets.charts import CurveBars
from specdeck.console.widgets.text import Feed, Notice
from specdeck.engine.errors import Conflict, UsageError
from specdeck.engine.protocol.full_graphs import Reach
from specdeck.engine.protocol.messages import (
    AppliedChange,
    Capability,
    Change,
    EngineState,
    LastChange,
    Lease,
)
from specdeck.engine.protocol.tuning import (
    HardBaseline,
    KChange,
    LedgerTuning,
    Parameter,
    SavedTime,
    Tuning,
)

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole
    from textual.app import App
    from textual.pilot import Pilot

Compare = Callable[..., bool]
MakeTuned = Callable[..., tuple["App[str]", TunedClient, list[Change]]]
PAUSE = "specdeck.console.screens.engine_screen.TYPING_S"
"""After a refusal, until keys are meant for the screen again."""


@pytest.fixture
def tuned(kit: type[Kit], console: MakeConsole) -> MakeTuned:
    """A console on an engine that tells its tuning, and what is asked of it."""

    def make(
        found: Tuning | None = None, state: EngineState | None = None, **settings: object
    ) -> tuple[App[str], TunedClient, list[Change]]:
        state = replace(state or kit.state, capabilities=ABLE)
        client = TunedClient(found or tuning())
        client.states = [state]
        engine = TunedEngine(kit.run(40, state), client, armed=bool(settings.pop("armed", 1)))
        return console(engine, **settings), client, engine.asked

    return make


def live(app: App[str]) -> LiveScreen:
    return next(screen for screen in app.screen_stack if isinstance(screen, LiveScreen))


def said(app: App[str]) -> list[str]:
    return [event.text for event in live(app).controller.tracks[0].events]


def rows(app: App[str], name: str) -> str:
    """The words of one of the screen's feeds."""
    shown = app.screen.query_one(name, Feed).rows
    return "\n".join("".join(cell.text for cell in row.left) for row in shown)


def have_tuning_wait(client: TunedClient, patch: pytest.MonkeyPatch) -> asyncio.Event:
    """From here on the engine tells its tuning once the event is set."""
    answered, tell = asyncio.Event(), client.tuning

    async def tell_late() -> Tuning:
        await answered.wait()
        return await tell()

    patch.setattr(client, "tuning", tell_late)
    return answered


async def opened(pilot: Pilot[str]) -> None:
    await settle(pilot)
    await press(pilot, "u")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 20), (40, 10)])
def test_the_tuning_screen(
    size: tuple[int, int], kit: type[Kit], tuned: MakeTuned, snap_compare: Compare
) -> None:
    state = replace(kit.state, policy="goodput", breaker="open", k=0)
    app, _, _ = tuned(replace(tuning(), trial=TRIAL), state)
    assert snap_compare(app, terminal_size=size, run_before=opened)


def test_an_older_plugin_leaves_what_the_counters_say(
    kit: type[Kit], tuned: MakeTuned, snap_compare: Compare
) -> None:
    app, asked, _ = tuned()
    asked.told = None
    assert snap_compare(app, terminal_size=(80, 24), run_before=opened)


@pytest.mark.parametrize(("key", "size"), [("T", (60, 20)), ("T", (40, 10)), ("p", (80, 24))])
def test_the_dialogs(
    key: str, size: tuple[int, int], tuned: MakeTuned, snap_compare: Compare
) -> None:
    app, _, _ = tuned()

    async def ask(pilot: Pilot[str]) -> None:
        await opened(pilot)
        await press(pilot, key)
        for field in app.screen.query(Input):
            field.cursor_blink = False
        await settle(pilot)

    assert snap_compare(app, terminal_size=size, run_before=ask)


async def test_the_parameter_under_the_cursor_is_told_whole_at_80_columns(
    tuned: MakeTuned,
) -> None:
    doc = "The least share by which a k has to be better than the one in force. " * 2 + "THE END"
    long = Parameter("goodput.margin", 0.03, 0.015, "number", 0.0, 0.5, doc=doc)
    short = Parameter("goodput.other", 1, 1, "whole", 0.0, None, doc="Short.")
    app, _, _ = tuned(replace(tuning(), parameters=(long, short)))
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await press(pilot, "p")
        assert "THE END" in screen_text(app)
        assert "a number from 0 to 0.5" in screen_text(app)
        await press(pilot, "down")
        assert "THE END" not in screen_text(app)
        assert "Short." in screen_text(app)


async def test_the_smallest_terminal_shows_the_k_in_force_and_both_fields_of_a_trial(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    app, _, _ = tuned()
    async with app.run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        bars = app.screen.query_one(CurveBars)
        lines = [bars.render_line(y).text for y in range(bars.size.height)]
        assert any(line.startswith("► 5") for line in lines)
        await press(pilot, "T")
        inside = app.screen.query_one("#dialog").content_region
        assert all(inside.contains_region(field.region) for field in app.screen.query(Input))
        labels = [label for label in app.screen.query(Label) if label.display]
        assert all(inside.contains_region(label.region) for label in labels)
        cut = [str(label.content) for label in labels if label.size.height > 1]
        cut += [text for label in labels if len(text := str(label.content)) > label.size.width]
        assert cut == []


async def test_the_live_screen_counts_a_trial_down(kit: type[Kit], tuned: MakeTuned) -> None:
    state = replace(kit.state, trial="changed")
    app, _, _ = tuned(replace(tuning(), trial=TRIAL), state)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await press(pilot, "escape")
        right = live(app).view.control.right
    assert "trial, 41 s to go" in "".join(cell.text for cell in right)


async def test_the_screen_says_why_and_when_the_breaker_is_tried_again(tuned: MakeTuned) -> None:
    app, _, _ = tuned()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        status, moved = rows(app, "#status"), rows(app, "#feed")
    assert "open for 12 s: loses 8 % against target-only in 3 windows; next probe in 3 s" in status
    assert "5 min 12 s saved (+26 %) this hour" in status
    assert "2 running, 120 requests" in status
    assert "goodput.margin 0.03 (was 0.015)" in status
    assert WHY in moved
    assert "k 3 → 0: loses 8 % against target-only" in moved


async def test_savings_are_told_against_what_they_were_measured_against(tuned: MakeTuned) -> None:
    app, _, _ = tuned()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        status = " ".join(rows(app, "#status").split())
    assert "this day, against soft k = 0" in status
    assert "soft k = 0; `specdeck sweep --hard` measures no speculation" in status


async def test_a_loss_against_no_speculation_shows_where_soft_zero_is_slower_still(
    tuned: MakeTuned,
) -> None:
    known = tuning()
    lost = replace(
        known,
        ledger=LedgerTuning(SavedTime(-12.0, 110.0, 10.0), SavedTime(-12.0, 110.0, 10.0), "hard"),
        baseline=HardBaseline(0.22, 812.4, -0.098),
    )
    app, _, _ = tuned(lost)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        status = " ".join(rows(app, "#status").split())
    assert "12 s lost (-10 %) this hour" in status
    assert "this hour and day, against no speculation" in status
    assert "soft k = 0 takes 22.0 % longer than no speculation" in status
    assert "~812 tokens/s are expected; -10 % against it lately" in status


async def test_a_change_of_this_console_is_told_once(kit: type[Kit], tuned: MakeTuned) -> None:
    app, asked, _ = tuned()
    bobs = KChange(kit.start + 59.5, 4, 3, "key", "bob")
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        for key in ("4", "z"):
            await press(pilot, key)
        found, now = asked.told, kit.start + 60.2
        assert found is not None
        mine = (KChange(now, 5, 4, "key", "ann"), KChange(now, 4, 5, "undo", "ann"))
        asked.told = replace(found, changes=(bobs, *mine))
        live(app).controller.look(0)
        await settle(pilot)
        told = rows(app, "#feed").splitlines()
    assert sorted(line.split("  ", 1)[1].split(" · ")[0] for line in told) == [
        "bob: k 4 → 3: key", "k 5 → 4", "undone, k 4 → 5",
    ]  # fmt: skip


async def test_an_event_with_the_word_key_in_it_is_told_beside_the_changes_by_key(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    bobs = KChange(kit.start + 50, 5, 3, "key", "bob")
    app, _, _ = tuned(replace(tuning(), changes=(bobs,)))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        theirs = LastChange(kit.start + 50, "bob", "key", {"k": 5}, {"k": 3}, "operator")
        state = replace(kit.state, version=2, k=3, k_set=3, last_change=theirs)
        live(app).controller.engine.more.put_nowait(kit.reading(51, state))  # type: ignore[attr-defined]  # the fake's
        await settle(pilot)
        assert said(app) == ["bob changed k 5 → 3 (key)"]
        live(app).controller.tell("the API key is missing")
        await settle(pilot)
        told = rows(app, "#feed")
    assert "the API key is missing" in told
    assert told.count("5 → 3") == 1


def test_whether_something_is_told_twice_is_no_matter_of_its_wording() -> None:
    found = replace(tuning(), changes=(KChange(START + 12, 5, 3, WHY, "policy", "policy"),))
    track = Track("demo", "http://demo", tuning=found)
    track = track.add_event(START + 13, f"goodput: {WHY}", cause=Cause("policy", "policy", WHY))
    track = track.add_event(START + 14, f"alarm: streams repeat since {WHY}")
    told = ["".join(cell.text for cell in row.left) for row in feed(track, time.gmtime, "ann")]
    assert [line.split("  ", 1)[1] for line in told] == [f"alarm: streams repeat since {WHY}", WHY]


def test_what_moved_no_k_is_left_to_the_list_of_events() -> None:
    track = Track("demo", "http://demo", tuning=tuning())
    track = track.add_event(START + 12, "control is armed already", "muted", kind="control")
    track = track.add_event(START + 13, "acceptance 97 % for 14 windows", "bad", kind="alert")
    track = track.add_event(START + 14, "the API key is missing", "warn")
    told = "".join(cell.text for row in feed(track, time.gmtime, "ann") for cell in row.left)
    assert "the API key is missing" in told
    assert "armed already" not in told
    assert "14 windows" not in told


def test_a_key_that_moves_no_k_under_an_open_breaker_is_told_with_what_k_is() -> None:
    changes = (
        KChange(START + 12, 0, 0, "key", "bob", "operator"),
        KChange(START + 13, 0, 0, "trial kept, better", "trial", "trial"),
    )
    track = Track("demo", "http://demo", tuning=replace(tuning(), changes=changes))
    told = ["".join(cell.text for cell in row.left) for row in feed(track, time.gmtime, "ann")]
    lines = [line.split("  ", 1)[1] for line in told]
    assert lines == ["trial: trial kept, better", "bob: k stays 0: key"]


async def test_a_sweep_that_never_began_was_not_stopped(tuned: MakeTuned) -> None:
    app, asked, _ = tuned()
    asked.states = [replace(asked.states[0], lease=Lease(9.0, 5, "speculate"))]
    async with run(app) as pilot:
        await press(pilot, "w")
        assert said(app)[-1].startswith("no sweep: a change under a lease is in force")


def test_time_saved_in_the_hour_alone_is_told_once() -> None:
    """Where it is the day's as well, the panel of 24 lines has no room for both."""
    hour = SavedTime(81.0, 45.0)
    same = replace(tuning(), ledger=LedgerTuning(hour, hour))
    rows = status(Track("demo", "http://demo", tuning=same), str)
    told = ["".join(cell.text for cell in row.left) for row in rows]
    (saved,) = [line for line in told if line.startswith(" saved")]
    assert saved.count("1 min 21 s") == 1
    assert "this hour and day" in saved


async def test_k_without_a_measurement_is_a_forecast(tuned: MakeTuned) -> None:
    app, _, _ = tuned()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        curve = app.screen.query_one(CurveBars).curve
    assert [row.expected for row in curve.rows] == [False, True, False, False, False, False]
    assert "~3.00" in "".join(cell.text for cell in curve.rows[5].right[0])


def aged(found: Tuning) -> Tuning:
    """The load has turned hard: k 3 to 5 were measured before, and far more is told of them."""
    old = {3: 45.0, 4: 400.0, 5: 400.0}
    curve = tuple(
        replace(point, age_s=old[point.k], tokens_per_second=4 * point.tokens_per_second,
                tokens_per_second_high=4 * point.tokens_per_second + 30)
        if point.k in old else point for point in found.curve
    )  # fmt: skip
    return replace(found, curve=curve)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 20)])
def test_the_tuning_screen_with_old_measurements(
    size: tuple[int, int], kit: type[Kit], tuned: MakeTuned, snap_compare: Compare
) -> None:
    app, _, _ = tuned(aged(tuning()))
    assert snap_compare(app, terminal_size=size, run_before=opened)


async def test_old_measurements_are_dimmed_and_lead_no_scale(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    app, _, _ = tuned(aged(tuning()))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        curve = app.screen.query_one(CurveBars).curve
    assert "".join(cell.text for cell in curve.title.right) == (
        " 3-4 requests · dimmed: 45 s to 6 min old"
    )
    assert [row.right[0][0].tone for row in curve.rows[2:]] == ["strong", *["muted"] * 3]
    assert curve.rows[5].right[0][1].text.strip() == "6 min old"
    assert curve.rows[5].value == RATES[5] * 0.98
    assert all(row.expected and row.high is None for row in curve.rows[3:])
    assert curve.top < 1.1 * max(RATES)


async def test_an_old_measurement_without_a_forecast_leads_no_scale_either(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    app, _, _ = tuned(replace(aged(tuning()), outlook=()))
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        curve = app.screen.query_one(CurveBars).curve
    assert curve.rows[5].value == 4 * RATES[5]
    assert curve.top == RATES[2] + 25


async def test_steering_keys_work_on_the_tuning_screen(tuned: MakeTuned) -> None:
    app, _, changes = tuned()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        for key in ("minus", "2", "t", "t", "a", "z"):
            await press(pilot, key)
        assert isinstance(app.screen, TuningScreen)
        await press(pilot, "escape")
        assert isinstance(app.screen, LiveScreen)
    asked = [next(iter(change.knobs().items())) for change in changes]
    assert asked == [
        ("k", 4), ("k", 2), ("mode", "target-only"), ("mode", "speculate"),
        ("policy", "goodput"), ("policy", "fixed"),
    ]  # fmt: skip


async def test_nothing_is_asked_while_the_screen_is_closed(tuned: MakeTuned) -> None:
    app, asked, _ = tuned()
    asked.told = None
    async with run(app) as pilot:
        assert live(app).controller.tracks[0].untuned is None
        await press(pilot, "u")
        assert live(app).controller.tracks[0].untuned is not None


async def test_b_opens_the_breaker_by_hand_and_resets_it(kit: type[Kit], tuned: MakeTuned) -> None:
    audit = MemoryAudit()
    app, _, changes = tuned(audit=audit)
    async with run(app) as pilot:
        await press(pilot, "b")
        live(app).controller.tracks[0] = replace(
            live(app).controller.tracks[0], known=replace(kit.state, breaker="open")
        )
        await press(pilot, "b")
    assert [change.breaker for change in changes] == ["open", "closed"]
    assert audit.actions[0].after == {"breaker": "open"}


async def test_read_only_says_how_to_arm(tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PAUSE, 0.0)
    app, _, changes = tuned(armed=False)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        for key in ("b", "T", "w"):
            await press(pilot, key)
        assert "press c to arm it · 3 times" in rows(app, "#feed")
    assert changes == []


@pytest.mark.parametrize("size", [(80, 10), (60, 20), (40, 10)])
async def test_why_a_key_did_nothing_is_said_where_what_moved_k_has_no_room(
    size: tuple[int, int], tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PAUSE, 0.0)
    app, _, _ = tuned()
    async with app.run_test(size=size) as pilot:
        await opened(pilot)
        await press(pilot, "9")
        await settle(pilot)
        assert " k_max is 5: the engine's" in screen_text(app)
        assert app.screen.query_one("#status").region.height > 0


async def test_a_trial_is_asked_for_with_what_the_dialog_says(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    app, asked, changes = tuned()
    async with run(app) as pilot:
        await press(pilot, "T")
        assert isinstance(app.screen, TrialDialog)
        app.screen.query_one("#what", Input).value = "9"
        await press(pilot, "enter")
        assert isinstance(app.screen, TrialDialog)  # k_max is 5
        app.screen.query_one("#what", Input).value = "3"
        asked.told = replace(tuning(), trial=replace(TRIAL, state="kept", comparison=WON))
        await press(pilot, "enter")
        assert isinstance(app.screen, LiveScreen)
    (change,) = changes
    assert (change.k, change.judge, change.trial_s, change.lease_s) == (3, True, 40.0, 10.0)


async def test_a_value_that_is_typed_behind_the_palettes_command_is_its_dialogs(
    tuned: MakeTuned,
) -> None:
    """The dialog took what it suggests, as the value was still the palette's."""
    app, _, changes = tuned()
    async with run(app) as pilot:
        type_at_once(app, "ctrl+p", *"try a change", "enter", "backspace", "2", "enter")
        await until(pilot, lambda: bool(changes))
    (change,) = changes
    assert (change.k, change.judge) == (2, True)


async def test_a_trial_takes_what_set_takes(kit: type[Kit], tuned: MakeTuned) -> None:
    app, _, changes = tuned()
    async with run(app) as pilot:
        await press(pilot, "T")
        for words, reason in (
            ("k=9", "k_max is 5"),
            ("policy=goodput policy=fixed", "policy is given twice"),
            ("url=x", "cannot be set"),
        ):
            app.screen.query_one("#what", Input).value = words
            await press(pilot, "enter")
            assert reason in str(app.screen.query_one("#refusal", Label).content)
        app.screen.query_one("#what", Input).value = "policy=goodput goodput.margin=0.1"
        await press(pilot, "enter")
    (change,) = changes
    assert (change.policy, change.parameters, change.judge) == (
        "goodput",
        {"goodput.margin": 0.1},
        True,
    )


@pytest.mark.parametrize("place", ["live", "parameters"])
async def test_z_asks_before_it_takes_a_trial_back_that_was_begun_elsewhere(
    kit: type[Kit], tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(PAUSE, 0.0)
    state = replace(kit.state, trial="changed")
    app, _, changes = tuned(replace(tuning(), trial=TRIAL), state)
    async with run(app) as pilot:
        await press(pilot, "T")
        assert said(app)[-1] == "a trial is already running: z takes it back"
        if place == "parameters":
            await press(pilot, "p")
        for key in ("z", "escape", "z", "z", "enter", "z"):
            await press(pilot, key)
            assert changes == []
        question = app.screen
        assert isinstance(question, Dialog)
        assert question.question == "End ann's trial?"
        assert "It tries k 5 → 3." in question.explanation
        await press(pilot, "e")
    assert [(change.cancel, change.trial) for change in changes] == [(True, 1)]


async def test_a_parameter_is_checked_asked_for_and_undone(tuned: MakeTuned) -> None:
    app, _, changes = tuned()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await press(pilot, "p")
        assert isinstance(app.screen, ParametersScreen)
        assert app.screen.query_one(OptionList).option_count == 3
        await press(pilot, "enter")
        field = app.screen.query_one(Input)
        field.value = "0.7"
        await press(pilot, "enter")
        assert app.screen.query_one(Input) is field
        field.value = "0.02"
        await press(pilot, "enter")
        assert isinstance(app.screen, ParametersScreen)
    assert [change.parameters for change in changes] == [{"goodput.margin": 0.02}]


async def test_a_parameter_is_edited_that_the_engine_lists_no_longer(tuned: MakeTuned) -> None:
    app, _, _ = tuned()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await press(pilot, "p")
        screen = app.screen
        assert isinstance(screen, ParametersScreen)
        screen.query_one(OptionList).action_select()  # handled after the engine has gone away
        controller = live(app).controller
        controller.tracks[0] = replace(controller.track, tuning=None)
        screen.show()
        await until(pilot, lambda: isinstance(app.screen, ValueDialog))


async def test_a_value_that_is_entered_as_it_was_is_no_change(tuned: MakeTuned) -> None:
    app, _, changes = tuned()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        for key in ("p", "enter", "enter"):
            await press(pilot, key)
        assert isinstance(app.screen, ParametersScreen)
    assert changes == []


async def test_what_the_engine_refuses_is_shown_where_it_was_asked_for(tuned: MakeTuned) -> None:
    app, _, changes = tuned()
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        live(app).controller.engines[0].refuse_with = UsageError("min is more than max")  # type: ignore[attr-defined]  # the fake's
        await press(pilot, "p")
        await press(pilot, "enter", *"0.2", "enter")
        app.screen.show()  # type: ignore[attr-defined]  # the parameters' screen
        shown = str(app.screen.query_one("#refusal").render())
        assert "not changed: min is more than max" in shown
    assert len(changes) == 1


async def sweep_by_own_clock(app: App[str], pilot: Pilot[str]) -> None:
    """Begins a sweep by its key, and lets its time pass at once until it has ended."""
    controller, now = live(app).controller, 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await asyncio.sleep(0)

    controller.sleep, controller.steady = sleep, lambda: now
    await pilot.press("w")
    while controller.track.is_sweeping:
        await pilot.pause()
    await settle(pilot)


async def test_w_sweeps_shows_the_curve_and_gives_k_back(kit: type[Kit], tuned: MakeTuned) -> None:
    audit = MemoryAudit()
    app, asked, _ = tuned(audit=audit)
    async with run(app) as pilot:
        await sweep_by_own_clock(app, pilot)
        assert isinstance(app.screen, TuningScreen)
        assert said(app)[-1].startswith("sweep: best k 3")
        curve = app.screen.query_one(CurveBars).curve
        assert not any(row.expected for row in curve.rows)
    assert asked.changed[-1].cancel
    assert {change.k for change in asked.changed} == {0, 1, 2, 3, 4, 5, None}
    assert audit.actions[-1].after["k"] == kit.state.k_set


async def test_a_sweep_that_could_not_give_k_back_stays_on_the_screen(tuned: MakeTuned) -> None:
    app, asked, _ = tuned()
    put = asked.put

    async def keep(change: Change) -> AppliedChange:
        if not change.cancel:
            return await put(change)
        kept = asked.states[-1]
        # Which k a sweep visits last is chance, and may be the one that was in force.
        left = replace(kept, k=1, k_set=1, lease=None, version=kept.version + 1)
        asked.states.append(left)
        return AppliedChange({}, {}, kept.version + 1, 7)

    asked.put = keep  # type: ignore[method-assign]  # it says so, and takes nothing back
    async with run(app) as pilot:
        await sweep_by_own_clock(app, pilot)
        assert said(app)[-1].startswith("sweep: NOT given back: the engine has k=")
        rows = app.screen.query_one("#notice", Notice).rows
        text = " ".join(cell.text for row in rows for cell in row.left)
        assert "sweep: NOT given back" in text
        assert "→ `specdeck set " in text
    assert isinstance(app, Console)
    assert app.unanswered[0].startswith("demo: NOT given back: the engine has k=")


async def test_w_again_stops_the_sweep(tuned: MakeTuned) -> None:
    app, asked, changes = tuned()
    asked.held.clear()
    async with run(app) as pilot:
        await press(pilot, "w")
        await press(pilot, "4")
        assert said(app)[-1] == "a sweep is changing k: w stops it and restores k"
        await press(pilot, "w")
        assert said(app)[-1] == "sweep stopped: by hand"
        await press(pilot, "4")
    assert [change.k for change in changes] == [4]


async def test_w_that_is_pressed_on_and_on_stops_the_sweep_that_it_began(tuned: MakeTuned) -> None:
    app, asked, _ = tuned()
    asked.held.clear()
    async with run(app) as pilot:
        type_at_once(app, *"www", gap_s=0.6)
        await settle(pilot)
        assert said(app)[-1] == "sweep stopped: by hand"


async def test_a_sweep_that_another_console_disturbs_stops_and_says_so(tuned: MakeTuned) -> None:
    app, asked, _ = tuned()
    asked.refuse = Conflict("the engine is at version 9, changed by bob")
    async with run(app) as pilot:
        await press(pilot, "w")
        assert said(app)[-1].startswith("sweep stopped: somebody else is changing the engine")


async def test_a_console_that_is_left_during_a_sweep_leaves_quietly(tuned: MakeTuned) -> None:
    app, asked, _ = tuned()
    asked.held.clear()
    async with run(app) as pilot:
        await press(pilot, "w")
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0


def test_a_number_beyond_every_float_is_refused_and_does_not_break() -> None:
    whole = Parameter("a.b", 1, 1, "whole", 1.0, 5.0)
    with pytest.raises(ValueError, match="is not a whole number"):
        parse_value(whole, "1" * 400)


async def test_readings_that_come_while_the_parameters_close_do_no_harm(tuned: MakeTuned) -> None:
    app, _, _ = tuned()
    async with run(app, size=(100, 40)) as pilot:
        controller = live(app).controller
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, ParametersScreen))
        screen = app.screen
        screen.dismiss()
        while screen.is_attached:
            controller.tell("something happened")
            await asyncio.sleep(0)
        await settle(pilot)


def test_no_k_is_tried_that_the_engine_cannot_draft(kit: type[Kit]) -> None:
    between = Capability("intermediate_k", False, "5 tokens or none", "use k=0 or k=5")
    for k, suggested in ((5, "0"), (0, "5")):
        state = replace(kit.state, k=k, k_set=k, capabilities=(between,))
        track = fold_reading(Track("a", "http://a"), kit.reading(0, state))
        assert suggest_trial(track) == suggested
        with pytest.raises(ValueError, match="5 tokens or none: use k=0 or k=5"):
            parse_wish("3", "60", track)
        assert parse_wish("5", "60", track).k == 5


@pytest.mark.parametrize("opening", [("T",), ("p", "enter", *"0.2")])
async def test_no_answer_acts_on_an_engine_that_was_started_anew_since(
    opening: tuple[str, ...], kit: type[Kit], tuned: MakeTuned
) -> None:
    app, _, changes = tuned()
    async with run(app) as pilot:
        await press(pilot, *opening)
        engine = app.controller.engines[0]  # type: ignore[attr-defined]  # it is a console
        state = replace(kit.state, capabilities=ABLE, instance="another")
        await engine.more.put(kit.reading(50, state))
        await settle(pilot)
        await press(pilot, "enter")
        assert said(app)[-1] == "not done: the engine was started anew since that was asked"
    assert changes == []


@pytest.mark.parametrize("screen", ["live", "tuning"])
async def test_what_is_typed_right_after_the_key_of_a_trial_is_tried(
    tuned: MakeTuned, screen: str
) -> None:
    app, _, changes = tuned()
    async with run(app) as pilot:
        if screen == "tuning":
            await press(pilot, "u")
        type_at_once(app, "T", "3", "enter")
        await until(pilot, lambda: bool(changes))
    (change,) = changes
    assert (change.k, change.judge, change.trial_s) == (3, True, 40.0)


@pytest.mark.parametrize("screen", ["live", "tuning"])
@pytest.mark.parametrize("gap_s", [0.0, 0.12, 0.4])
async def test_what_is_typed_for_a_trial_that_is_refused_steers_nothing(
    kit: type[Kit], tuned: MakeTuned, screen: str, gap_s: float
) -> None:
    app, _, changes = tuned(state=replace(kit.state, trial="changed"))
    async with run(app) as pilot:
        if screen == "tuning":
            await press(pilot, "u")
        type_at_once(app, "T", "3", "tab", "-", "2", "enter", gap_s=gap_s)
        await settle(pilot)
        assert said(app)[-1] == "a trial is already running: z takes it back"
        assert isinstance(app.screen, LiveScreen if screen == "live" else TuningScreen)
        assert changes == []
        await press(pilot, "t")  # whoever has read it steers on
    assert [change.mode for change in changes] == ["target-only"]


async def test_a_pause_after_a_refusal_ends_what_was_typed_for_the_dialog(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    app, _, changes = tuned(state=replace(kit.state, trial="changed"))
    async with run(app) as pilot:
        type_at_once(app, "T", "2", gap_s=2 * TYPING_S)
        await until(pilot, lambda: changes)
    assert [change.k for change in changes] == [2]


async def test_keys_after_a_refusal_are_dropped_for_two_seconds_at_most(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    app, _, changes = tuned(state=replace(kit.state, trial="changed"))
    async with run(app) as pilot:
        type_at_once(app, "T", *"t" * 9, gap_s=0.3)
        await until(pilot, lambda: changes)
    assert changes[0].mode == "target-only"


async def test_a_slow_engine_has_no_key_of_a_trial_or_parameter_steer_it(
    tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client, changes = tuned()
    async with run(app) as pilot:
        answered = have_tuning_wait(client, monkeypatch)
        await pilot.press("T")
        dialog = app.screen
        assert isinstance(dialog, TrialDialog)
        await pilot.press("2")
        answered.set()
        await settle(pilot)
        assert dialog.query_one("#what", Input).value == "2"  # a later suggestion changes nothing
        await pilot.press("escape")
        answered.clear()
        await pilot.press("p", "4")
        answered.set()
        await settle(pilot)
        assert isinstance(app.screen, ParametersScreen)
    assert changes == []


async def test_the_suggestion_follows_a_tuning_that_comes_before_the_dialog_is_seen(
    tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client, _ = tuned()
    async with run(app) as pilot:
        controller = live(app).controller
        known = controller.track
        early, late = replace(known, tuning=None), replace(known, tuning=tuning())
        assert suggest_trial(early) != suggest_trial(late)
        have_tuning_wait(client, monkeypatch)
        dialog = TrialDialog(early)
        app.push_screen(dialog)
        dialog.follow(late)  # its widgets are not there yet
        await settle(pilot)
        assert dialog.query_one("#what", Input).value == suggest_trial(late)


@pytest.mark.parametrize("typed", ["", "4"])
async def test_a_suggestion_that_comes_late_is_told_and_not_tried(
    tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    app, client, changes = tuned()
    async with run(app) as pilot:
        controller = live(app).controller
        controller.tracks[0] = known = replace(controller.track, tuning=None)
        answered = have_tuning_wait(client, monkeypatch)
        await pilot.press("T")
        dialog = app.screen
        assert suggest_trial(known) == "4"  # what is typed may be what it holds
        await settle(pilot)
        await pilot.press(*typed)
        answered.set()
        await settle(pilot)
        assert suggest_trial(controller.track) == "3"
        assert dialog.query_one("#what", Input).value == "4"
        assert "k 3" in str(dialog.query_one("#expected", Label).render())
        await press(pilot, "enter")
        await until(pilot, lambda: bool(changes))
    assert [change.k for change in changes] == [4]


async def test_a_key_that_comes_before_the_line_is_not_followed_by_a_suggestion(
    tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client, changes = tuned()
    async with run(app) as pilot:
        controller = live(app).controller
        controller.tracks[0] = replace(controller.track, tuning=None)
        answered = have_tuning_wait(client, monkeypatch)
        answered.set()  # at once
        type_at_once(app, "T", "4", "enter")
        await until(pilot, lambda: bool(changes))
    assert [change.k for change in changes] == [4]


async def test_a_key_during_a_trials_request_sets_nothing_for_good(
    tuned: MakeTuned, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client, changes = tuned()
    answered, put = asyncio.Event(), client.put

    async def put_late(change: Change) -> AppliedChange:
        changed = await put(change)
        await answered.wait()
        return changed

    async with run(app) as pilot:
        monkeypatch.setattr(client, "put", put_late)
        await press(pilot, "T", "3", "enter")
        await pilot.press("t", "minus", "4")
        assert said(app)[-1].startswith("a trial is being asked for")
        answered.set()
        await settle(pilot)
    assert [change.judge for change in changes if change.k is not None] == [True]
    assert not [change for change in changes if change.mode is not None]


async def test_how_far_full_graphs_reach_is_said_where_there_are_any(
    kit: type[Kit], tuned: MakeTuned
) -> None:
    state = replace(kit.state, full_graphs=(Reach(256, 256),) * kit.state.k + (Reach(83, 54),))
    app, _, _ = tuned(state=state)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        said_of_them = f"full graphs to 83 requests at k = {kit.state.k}, but for 29 numbers"
        assert said_of_them in rows(app, "#status")
    app, _, _ = tuned()
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        assert "graphs" not in rows(app, "#status")


async def test_a_value_that_is_typed_right_after_its_parameter_is_set_whole(
    tuned: MakeTuned,
) -> None:
    app, _, changes = tuned()
    async with run(app) as pilot:
        await press(pilot, "u", "p")
        type_at_once(app, "enter", *"0.25", "enter")
        await until(pilot, lambda: bool(changes))
        await settle(pilot)
    (change,) = changes
    assert change.parameters == {"goodput.margin": 0.25}
