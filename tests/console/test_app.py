"""The console in a pilot's hands: keys, dialogs, and what an engine does meanwhile."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.memory_audit import MemoryAudit
from tests.support.pilot import press, run, settle, type_at_once
from tests.support.pilot import until as wait_until
from tests.support.screen_text import screen_text
from textual.command import CommandList, CommandPalette
from textual.events import Key
from textual.screen import Screen
from textual.widgets import Input
from textual.widgets._toast import Toast
from textual.widgets.option_list import Option
from textual.worker import WorkerFailed

from specdeck.console import keys
from specdeck.console.app import LEAVE_S
from specdeck.console.screens.dialogs import Choice, Dialog, HelpScreen
from specdeck.console.screens.live.screen import LiveScreen
from specdeck.console.settings import Settings
from specdeck.console.state.incident_files import IncidentFile, TimeSpan
from specdeck.console.widgets.charts import Chart, CurveBars
from specdeck.console.widgets.text import Flow, Line, Notice, Rows
from specdeck.engine.errors import Conflict, EngineError, Unauthorized, UsageError
from specdeck.engine.launch.progress import StartProgress
from specdeck.engine.protocol.messages import AppliedChange, Capability, Change, LastChange

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole, Until
    from tests.support.listed_engine import ListedEngine
    from textual.app import App
    from textual.pilot import Pilot


def live(app: App[str]) -> LiveScreen:
    """The live screen, wherever it is on the stack."""
    return next(screen for screen in app.screen_stack if isinstance(screen, LiveScreen))


def said(app: App[str], index: int = 0) -> list[str]:
    """What an engine's events say."""
    return [event.text for event in live(app).controller.tracks[index].events]


def text(app: App[str], name: str) -> str:
    """The words in one of the live screen's rows."""
    row = getattr(live(app).view, name)
    return "".join(cell.text for cell in (*row.left, *row.right))


async def test_a_key_is_requested_applied_and_recorded(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine, audit = kit.engine(kit.run(5)), MemoryAudit()
    app = console(engine, audit=audit)
    async with run(app, size=(120, 40)) as pilot:
        await press(pilot, "minus")
        assert "requested 4 · applied 4" in text(app, "control")
    assert [change.k for change in engine.asked] == [4]
    assert engine.asked[0].expect_version == 1
    assert (engine.asked[0].who, engine.asked[0].reason) == ("ann", "key")
    (action,) = audit.actions
    assert action.before == {"k": 5}
    assert action.after == {"k": 4}
    assert action.undo == "specdeck set http://127.0.0.1:8000 k=5"


async def test_fast_presses_add_up_and_only_the_last_one_is_asked_again(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    engine.answer.clear()
    app = console(engine)
    async with run(app) as pilot:
        await pilot.press("minus", "minus", "minus")
        assert "requested 2 · applied 5" in text(app, "control")
        engine.answer.set()
        await settle(pilot)
        await settle(pilot)
        assert "requested 2 · applied 2" in text(app, "control")
    assert [change.k for change in engine.asked] == [4, 2]
    assert [change.expect_version for change in engine.asked] == [1, 2]


async def test_t_goes_to_target_only_and_back(kit: type[Kit], console: MakeConsole) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, "t")
        assert "target-only" in text(app, "control")
        await press(pilot, "t")
        assert "speculate" in text(app, "control")
    assert [change.mode for change in engine.asked] == ["target-only", "speculate"]


async def test_a_k_that_target_only_keeps_back_is_said_to_be_stored(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app) as pilot:
        await press(pilot, "t")
        await press(pilot, "minus")
        assert said(app)[-1] == "k 5 → 4 · stored: it takes effect when speculation is back"
        assert "back to k 4" in text(app, "control")
        await press(pilot, "t")
        assert "applied in" in said(app)[-1]


async def test_undo_takes_the_last_change_back_once(kit: type[Kit], console: MakeConsole) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        await pilot.press("z")
        assert said(app)[-1] == "nothing to undo: this console has changed nothing"
        for key in ("2", "z", "z"):
            await press(pilot, key)
        assert said(app)[-1] == "nothing left to undo"
    assert [change.k for change in engine.asked] == [2, 5]


async def bob_takes(
    k: int, kit: type[Kit], engine: ListedEngine, pilot: Pilot[str], n: int = 4
) -> None:
    """Somebody else sets k, and the console reads of it."""
    before, version = engine.state.k_set, engine.state.version + 1
    change = LastChange(0.0, "bob", None, {"k": before}, {"k": k})
    engine.state = replace(engine.state, k=k, k_set=k, version=version, last_change=change)
    engine.more.put_nowait(kit.reading(n, engine.state))
    await settle(pilot)


async def test_undo_leaves_what_somebody_else_has_changed_since(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, "3")
        await bob_takes(2, kit, engine, pilot)
        await press(pilot, "z")
        assert said(app)[-1] == (
            "not undone: bob changed k 3 → 2 since: 0…9 sets k; z again sets k 5"
        )
        assert [change.k for change in engine.asked] == [3]
        await bob_takes(1, kit, engine, pilot, 5)
        await press(pilot, "z")
        assert said(app)[-1].startswith("not undone: bob changed k 3 → 1 since")
        await press(pilot, "z")
        assert said(app)[-1].startswith("undone, k 1 → 5")
    assert [(change.k, change.expect_version) for change in engine.asked] == [(3, 1), (5, 4)]


async def test_undo_has_nothing_to_do_where_somebody_else_has_done_it(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, "3")
        await bob_takes(5, kit, engine, pilot)
        await press(pilot, "z")
        assert said(app)[-1] == (
            "nothing to undo: bob changed k 3 → 5 since, which is what it was before"
        )
        await press(pilot, "z")
        assert said(app)[-1] == "nothing left to undo"
    assert [change.k for change in engine.asked] == [3]


async def test_an_undo_that_is_refused_can_be_asked_for_again(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, "3")
        engine.refuse_with = Conflict("the engine is at version 9, changed by bob")
        await press(pilot, "z")
        assert said(app)[-1].startswith("not changed: the engine is at version 9")
        engine.refuse_with = None
        await press(pilot, "z")
        assert said(app)[-1].startswith("undone, k 3 → 5")
    assert [change.k for change in engine.asked] == [3, 5, 5]


async def test_fast_undos_take_one_change_after_the_other_back(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        for key in ("3", "2"):
            await press(pilot, key)
        await press(pilot, "z", "z")
        await settle(pilot)
        assert said(app)[-1].startswith("undone, k 3 → 5")
    assert [change.k for change in engine.asked] == [3, 2, 3, 5]


async def test_a_lets_the_policy_choose_and_takes_k_back(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app, size=(120, 40)) as pilot:
        await press(pilot, "a")
        assert "requested auto · applied 5" in text(app, "control")
        assert "policy goodput" in text(app, "control")
        for key in ("a", "z"):
            await press(pilot, key)
    assert [change.policy for change in engine.asked] == ["goodput", "fixed", "goodput"]


async def test_a_policy_that_the_engine_lacks_is_refused_with_the_reason(
    kit: type[Kit], console: MakeConsole
) -> None:
    unable = replace(
        kit.state, capabilities=(Capability("policy.goodput", False, "no live k", "use V1"),)
    )
    engine = kit.engine(kit.run(3, unable))
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, "a")
        assert said(app)[-1] == "policy goodput: no live k: use V1"
    assert engine.asked == []


async def test_a_failure_in_our_own_code_leaves_nothing_asked_for_ever(
    kit: type[Kit], console: MakeConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(change: Change) -> AppliedChange:
        raise RuntimeError("a defect")

    engine = kit.engine(kit.run(3))
    monkeypatch.setattr(engine, "change", broken)
    app = console(engine)

    async def fail() -> None:
        async with run(app) as pilot:
            await press(pilot, "minus")

    with pytest.raises(WorkerFailed, match="a defect"):
        await fail()
    assert app.controller.is_idle


async def test_work_that_is_cancelled_before_it_begins_is_closed(
    kit: type[Kit], console: MakeConsole
) -> None:
    """Python warns on stderr of work that nobody begins, in the midst of a screen."""
    app = console(kit.engine(kit.run(3)))
    begun = []

    async def work() -> None:
        begun.append(1)

    asked = work()
    async with app.run_test(size=(80, 24)):
        live(app).controller.spawn(asked, "look")
        for worker in list(app.workers):
            worker.cancel()
    del worker
    gc.collect()
    assert (begun, inspect.getcoroutinestate(asked)) == ([], inspect.CORO_CLOSED)


async def test_a_picture_is_saved_in_the_first_folder_that_takes_it(
    kit: type[Kit], console: MakeConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    app = console(kit.engine(kit.run(3)), folders=lambda: (tmp_path / "none", tmp_path))
    async with run(app, size=(120, 40), notifications=True) as pilot:
        await press(pilot, "s")
        (picture,) = (tmp_path / name for name in os.listdir(tmp_path))
        assert picture.suffix == ".svg"
        assert picture.stat().st_mode & 0o777 == 0o600  # answers may be on it
        assert [toast.message for toast in app._notifications] == [f"saved ~/{picture.name}"]
        (toast,) = app.screen.query(Toast)
        assert (toast.region.y, toast.region.right) == (38, 120)
        assert toast.region.height == 1


async def test_at_80x24_a_message_hides_neither_k_nor_the_charts_figures_nor_keys(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(80, 24), notifications=True) as pilot:
        app.notify("copied: latest event")
        app.notify("incident file: ~/incident-demo.zip, demo from 03:10:00 to now")
        await press(pilot)
        for toast in app.screen.query(Toast):
            for name in (
                "identity",
                "control",
                "tokens",
                "acceptance",
                "lane",
                "traffic",
                "footer",
            ):
                assert not toast.region.overlaps(app.screen.query_one(f"#{name}").region)


async def test_a_picture_that_cannot_be_saved_is_said_with_the_reason(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    app = console(kit.engine(kit.run(3)), folders=lambda: (tmp_path / "none",))
    async with run(app, size=(40, 10), notifications=True) as pilot:
        await press(pilot, "s")
        said = [toast.message for toast in app._notifications]
        assert said == ["not saved: no folder to keep it in"]
        assert [toast.display for toast in app.screen.query(Toast)] == [False]


async def test_a_read_only_engine_is_asked_nothing_until_it_is_armed(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3), armed=False)
    app = console(engine)
    async with run(app) as pilot:
        await pilot.press("minus")
        assert engine.asked == []
        assert said(app)[-1] == "control is read-only: press c to arm it"
        await press(pilot, "c")
        assert isinstance(app.screen, Dialog)
        await press(pilot, "a")
        assert engine.armed
        await press(pilot, "minus")
    assert [change.k for change in engine.asked] == [4]


@pytest.mark.parametrize("armed", [True, False])
async def test_a_token_that_is_refused_makes_the_console_read_only_before_a_change_is_tried(
    armed: bool, kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3), armed=armed)
    engine.refused = Unauthorized("the engine refuses the admin token")
    app = console(engine)
    async with run(app) as pilot:
        if not armed:
            await press(pilot, "c")
            await press(pilot, "a")
        await press(pilot)
        assert said(app)[-1] == "the engine refuses the admin token; control is read-only again"
        assert "read-only" in screen_text(app)
    assert engine.asked == []


async def test_arming_can_be_declined(kit: type[Kit], console: MakeConsole) -> None:
    engine = kit.engine(kit.run(3), armed=False)
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, "c")
        await press(pilot, "escape")
        assert not engine.armed


async def test_k_beyond_k_max_is_refused_with_the_remedy(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        await pilot.press("plus")
        assert said(app)[-1].endswith("start it with num_speculative_tokens 6")
    assert engine.asked == []


async def test_a_conflict_says_who_was_first(kit: type[Kit], console: MakeConsole) -> None:
    engine = kit.engine(kit.run(3))
    engine.refuse_with = Conflict("the version moved from 1 to 2")
    app = console(engine)
    bobs = LastChange(0.0, "bob", None, {"k": 5}, {"k": 2})
    theirs = replace(kit.state, k=2, k_set=2, version=2, last_change=bobs)
    async with run(app) as pilot:
        await press(pilot, "minus")
        engine.more.put_nowait(kit.reading(4, theirs))
        await settle(pilot)
        assert said(app) == [
            "not changed: the version moved from 1 to 2",
            "bob changed k 5 → 2",
        ]
        assert "requested 2 · applied 2" in text(app, "control")


async def test_a_change_that_cannot_be_recorded_is_said(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)), audit=MemoryAudit(full=True))
    async with run(app) as pilot:
        await press(pilot, "minus")
        assert said(app)[-1] == "not recorded: the disk is full"


async def test_an_engine_that_is_down_is_shown_with_since_when_and_the_remedy(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine([*kit.run(5), kit.down(5), kit.down(9)]))
    async with run(app):
        rows = ["".join(cell.text for cell in row.left) for row in live(app).view.notice]
        assert "down since" in rows[0]
        assert "(4 s)" in rows[0]
        assert rows[1] == " → is the process stopped?"
        assert live(app).has_class("-down")
        assert {cell.tone for row in live(app).view.traffic for cell in row.right} == {"muted"}


async def test_a_frozen_view_stands_still_while_readings_are_taken_in(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with run(app) as pilot:
        await pilot.press("space")
        engine.more.put_nowait(kit.reading(3))
        await settle(pilot)
        assert live(app).view.tokens.total == 3
        assert live(app).controller.tracks[0].total == 4
        await pilot.press("space")
        assert live(app).view.tokens.total == 4


async def test_tab_shows_the_next_engine_and_each_is_followed(
    kit: type[Kit], console: MakeConsole
) -> None:
    west = kit.engine(kit.run(3), name="west")
    east = kit.engine([kit.down(0)], name="east", url="http://east:8000")
    app = console(west, east)
    async with run(app) as pilot:
        assert "[west]" in text(app, "engines")
        await pilot.press("tab")
        assert "[east]" in text(app, "engines")
        assert "down" in text(app, "identity")
        await pilot.press("shift+tab")
        assert "west" in text(app, "identity")


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10), (20, 5), (1, 1)])
async def test_every_size_shows_something_and_nothing_breaks(
    size: tuple[int, int], kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(50)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.resize_terminal(*size)
        await settle(pilot)
        charts = [chart.display and chart.size.height > 0 for chart in app.query(Chart)]
        compact = app.query_one("#compact")
        narrow = size[0] < 72 or size[1] < 20
        assert compact.display is narrow
        assert any(charts) is not narrow


@pytest.mark.parametrize("size", [(80, 19), (60, 24), (40, 10)])
async def test_why_a_key_did_nothing_is_said_where_there_is_no_room_for_panels(
    size: tuple[int, int], kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3), armed=False))
    async with run(app, size=size) as pilot:
        await press(pilot, "t")
        compact = app.query_one("#compact", Rows)
        assert len(compact.rows) <= compact.size.height
        told = " ".join(cell.text.strip() for row in compact.rows for cell in row.left)
        assert "control is read-only: press c to arm it" in told
        assert "tokens/s" in told


@pytest.mark.parametrize(("key", "value"), [("s", "stop"), ("l", "leave"), ("enter", None)])
async def test_leaving_an_engine_that_was_started_here_asks_what_becomes_of_it(
    key: str, value: str, kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(2)), owned=True)
    async with run(app) as pilot:
        await press(pilot, "q")
        assert isinstance(app.screen, Dialog)
        await press(pilot, key)
    assert app.return_value == value


class SteadyLoad:
    """A load of one profile."""

    profile = "steady"

    def next(self) -> str:
        """The same again."""
        return self.profile


@pytest.mark.parametrize("load", [None, SteadyLoad()])
async def test_the_dialog_says_what_becomes_of_the_load(
    load: SteadyLoad | None, kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(2)), owned=True)
    app.controller.load = load
    async with run(app) as pilot:
        await press(pilot, "q")
        assert isinstance(app.screen, Dialog)
        assert ("Its load ends here" in app.screen.explanation) == (load is not None)
        await press(pilot, "escape")


async def test_leaving_can_be_called_off(kit: type[Kit], console: MakeConsole) -> None:
    app = console(kit.engine(kit.run(2)), owned=True)
    async with run(app) as pilot:
        await press(pilot, "q")
        await press(pilot, "escape")
        assert isinstance(app.screen, LiveScreen)


async def test_leaving_an_attached_engine_asks_nothing(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(2)))
    async with run(app) as pilot:
        await press(pilot, "q")
        assert not app.is_running
    assert app.return_value is None


@pytest.mark.parametrize("opened", ["T", "g", "e", "question_mark", "colon", "C"])
@pytest.mark.parametrize("owned", [True, False])
async def test_ctrl_c_leaves_from_any_dialog(
    opened: str, owned: bool, kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(2)), owned=owned)
    async with run(app) as pilot:
        await press(pilot, opened)
        await press(pilot, "ctrl+c")
        if not owned:
            assert not app.is_running
            return
        assert isinstance(app.screen, Dialog)
        await press(pilot, "ctrl+q")
        assert len([one for one in app.screen_stack if isinstance(one, Dialog)]) == 1
        await press(pilot, "escape")
        assert not isinstance(app.screen, Dialog)
        app.push_screen(Dialog("Another one?", "", (Choice("", "escape", "No"),), ()))
        await press(pilot, "ctrl+c", "s")
    assert app.return_value == "stop"


@pytest.mark.parametrize("pressed", ["q", "ctrl+q", "ctrl+c"])
async def test_ctrl_c_on_the_question_leaves_an_engine_that_was_started_here_running(
    pressed: str, kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(2)), owned=True)
    async with run(app) as pilot:
        type_at_once(app, pressed, "ctrl+c")
        await settle(pilot)
        assert not app.is_running
    assert app.return_value == "leave"


@pytest.mark.parametrize("opened", ["", "T", "e"])
async def test_ctrl_c_copies_what_is_selected_once_and_leaves_the_next_time(
    opened: str, kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(2)))
    async with run(app) as pilot:
        await press(pilot, *opened)
        app.screen.text_select_all()
        selected = app.screen.get_selected_text()
        assert selected
        await press(pilot, "ctrl+c")
        assert app.is_running
        assert app.clipboard == selected
        assert not app.screen.get_selected_text()
        await press(pilot, "ctrl+c")
        assert not app.is_running


async def test_themes_switch_live(kit: type[Kit], console: MakeConsole) -> None:
    app = console(kit.engine(kit.run(2)))
    async with run(app) as pilot:
        seen = [app.theme]
        while seen.count("dark") < 2:
            await press(pilot, "ctrl+t")
            seen.append(app.theme)
    shipped = {path.stem for path in (Path(__file__).parents[2] / "themes").glob("*.yaml")}
    assert seen[0] == seen[-1] == "dark"
    assert (set(seen), len(seen)) == (shipped, len(shipped) + 1)


async def test_a_broken_theme_is_one_notice(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("primary: '#zzz'")
    app = console(kit.engine(kit.run(2)), themes=[tmp_path])
    async with run(app):
        assert app.broken_themes == (f"{tmp_path}/mine.yaml: primary: #zzz is not a colour",)
        assert app.theme == "dark"


async def test_an_unknown_theme_is_named_and_dark_taken(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(2)), theme="drak")
    async with run(app):
        assert app.theme == "dark"


async def test_a_keymap_moves_a_key_and_help_and_footer_show_it(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine, settings=Settings(keymap={"mode.toggle": "f2"}))
    async with run(app) as pilot:
        await pilot.press("t")
        assert engine.asked == []
        await press(pilot, "f2")
        assert len(engine.asked) == 1
        assert any("f2" in cell.text for cell in app.context.footer("live", 80, armed=True).left)
        await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen)


async def test_help_has_keys_of_many_names_above_what_they_do(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app) as pilot:
        await app.push_screen(HelpScreen(keys.of("why"), {}))
        await settle(pilot)
        rows = app.screen.query_one("#keys", Flow).rows
    lines = ["".join(cell.text for cell in row.left) for row in rows]
    scroll = lines.index("up down pageup pagedown home ctrl+end")
    assert lines[scroll + 1] == f"{'':13}Scroll through the causes."
    beside = [row.left for row in rows if len(row.left) == 2 and row.left[0].tone == "key"]
    assert len(beside) > 10
    assert {len(label.text) for label, _ in beside} == {13}


async def test_a_hint_names_the_key_that_was_moved(kit: type[Kit], console: MakeConsole) -> None:
    engine = kit.engine(kit.run(3), armed=False)
    keymap = {"control.arm": "f2", "view.freeze": "f3", "sweep.toggle": "f4"}
    app = console(engine, settings=Settings(keymap=keymap))
    async with run(app) as pilot:
        await pilot.press("minus")
        assert said(app)[-1] == "control is read-only: press f2 to arm it"
        await pilot.press("f3")
        assert "f3 resumes the view" in "".join(
            c.text for row in app.screen.query_one("#notice", Notice).rows for c in row.left
        )
        await pilot.press("u")
        note = app.screen.query_one(CurveBars).curve.note
        assert "f4 sweeps k" in "".join(cell.text for cell in note.left)


async def test_a_start_is_followed_to_the_live_screen(kit: type[Kit], console: MakeConsole) -> None:
    async def progress() -> AsyncIterator[StartProgress]:
        yield StartProgress("loading", 3.0, 28.0, ("loading weights",))
        yield StartProgress("ready", 27.0, 28.0)

    app = console(kit.engine(kit.run(3)), progress=progress(), owned=True)
    async with run(app):
        assert isinstance(app.screen, LiveScreen)


@pytest.mark.parametrize("key", ["q", "question_mark", "ctrl+p", "C"])
async def test_a_start_that_ends_below_a_dialog_leaves_the_dialog_its_keys(
    kit: type[Kit], console: MakeConsole, key: str
) -> None:
    ready = asyncio.Event()

    async def progress() -> AsyncIterator[StartProgress]:
        yield StartProgress("loading", 3.0)
        await ready.wait()
        yield StartProgress("ready", 27.0)

    engine = kit.engine(kit.run(3))
    app = console(engine, progress=progress(), owned=True)
    async with run(app) as pilot:
        await press(pilot, key)
        dialog = app.screen
        ready.set()
        await settle(pilot)
        assert app.screen is dialog
        assert app.controller.tracks[0].total == 3  # it is followed all the same
        await press(pilot, "2", "escape")
        if app.screen is dialog:  # the palette's first escape empties its line
            await press(pilot, "escape")
        assert isinstance(app.screen, LiveScreen)
        assert [type(one) for one in app.screen_stack].count(LiveScreen) == 1
        assert app.controller.tracks[0].total == 3
    assert engine.asked == []


async def test_a_start_says_which_engine_runs_already_and_goes_by_the_name_of_its_record(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine, named, seen = kit.engine(kit.run(3), name="demo"), asyncio.Event(), asyncio.Event()

    async def progress() -> AsyncIterator[StartProgress]:
        yield StartProgress("environment", 0.1)
        await named.wait()
        engine.name = "demo-2"
        yield StartProgress("loading", 3.0)
        await seen.wait()
        yield StartProgress("ready", 27.0)

    lines = ("demo runs already at http://127.0.0.1:8000", "this is another engine, demo-2")
    app = console(engine, progress=progress(), owned=True, start_notice=lines)
    async with run(app) as pilot:
        shown = app.screen.query_one("#notice", Rows)
        assert [row.left[0].text.strip() for row in shown.rows] == list(lines)
        assert shown.size.height == 2
        named.set()
        await settle(pilot)
        assert "demo-2" in str(app.screen.query_one("#identity", Line).row)
        seen.set()
        await settle(pilot)
        assert isinstance(app.screen, LiveScreen)
        assert app.controller.track.name == "demo-2"
        await pilot.press("q")
        await settle(pilot)
        assert isinstance(app.screen, Dialog)
        assert app.screen.question.startswith("demo-2 was started here")


async def test_a_start_that_failed_shows_the_reason_and_quits_without_asking(
    kit: type[Kit], console: MakeConsole
) -> None:
    async def progress() -> AsyncIterator[StartProgress]:
        yield StartProgress("loading", 3.0, failed="out of memory", log_path=Path("/var/log/e.log"))

    app = console(kit.engine([]), progress=progress(), owned=True)
    async with run(app) as pilot:
        assert app.screen.has_class("-failed")
        await press(pilot, "q")
        assert not app.is_running


async def test_a_start_that_raised_is_shown_and_handed_on(
    kit: type[Kit], console: MakeConsole
) -> None:
    refusal = UsageError("port 8000 is taken", remedy="choose another with --port")

    async def progress() -> AsyncIterator[StartProgress]:
        yield StartProgress("process", 0.1)
        raise refusal

    app = console(kit.engine([]), progress=progress(), owned=True)
    async with run(app):
        assert app.screen.has_class("-failed")
        assert "port 8000 is taken: choose another" in str(
            app.screen.query_one("#verdict", Rows).rows
        )
    assert app.failure is refusal


async def test_a_covered_screen_is_not_painted_and_has_the_latest_when_it_is_seen_again(
    kit: type[Kit], console: MakeConsole, until: Until
) -> None:
    engine = kit.engine(kit.run(3))
    app = console(engine)
    async with app.run_test() as pilot:
        await until(pilot, lambda: live(app).view.tokens.total == 3)
        await pilot.press("u")
        engine.more.put_nowait(kit.reading(3))
        await until(pilot, lambda: app.controller.track.total == 4)
        assert live(app).view.tokens.total == 3
        await pilot.press("escape")
        await until(pilot, lambda: live(app).view.tokens.total == 4)


async def test_the_palette_offers_every_key_and_theme(kit: type[Kit], console: MakeConsole) -> None:
    from specdeck.console.palette import Palette

    app = console(kit.engine(kit.run(3)))
    async with run(app):
        names = {command.name for command in Palette(app.screen).commands()}
        assert "Theme: light" in names
        assert "Speculation: Set k to 3" in names


async def test_the_palette_offers_no_k_between_where_all_tokens_are_drafted_or_none(
    kit: type[Kit], console: MakeConsole
) -> None:
    from specdeck.console.palette import Palette

    between = Capability("intermediate_k", False, "5 tokens or none", "use k=0 or k=5")
    app = console(kit.engine(kit.run(3, replace(kit.state, capabilities=(between,)))))
    async with run(app):
        names = [command.name for command in Palette(app.screen).commands()]
    assert [name[-1] for name in names if "Set k" in name] == ["0", "5"]


@pytest.mark.parametrize("k_max", [2, 5, 12])
async def test_the_palette_offers_each_k_that_the_engine_can_draft_once(
    k_max: int, kit: type[Kit], console: MakeConsole, until: Until
) -> None:
    app = console(kit.engine(kit.run(3, replace(kit.state, k_max=k_max))))
    async with run(app) as pilot:
        await pilot.press("ctrl+p")
        found = app.screen.query_one(CommandList)
        await until(pilot, lambda: found.option_count)
        prompts = [str(option.prompt).splitlines()[0] for option in found.options]
    assert len(prompts) == len(set(prompts))
    offered = [prompt for prompt in prompts if "Set k" in prompt]
    assert offered == [f"Speculation: Set k to {k}" for k in range(min(k_max, 9) + 1)]


async def test_a_command_that_is_chosen_twice_at_once_runs_once(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        await pilot.press("ctrl+p")
        found = app.screen.query_one(CommandList)
        await wait_until(pilot, lambda: found.option_count)
        names = [str(option.prompt).splitlines()[0] for option in found.options]
        found.highlighted = names.index("Speculation: Set k to 2")
        for _ in range(2):  # both before the palette has heard of either
            found.action_select()
        await settle(pilot)
        assert isinstance(app.screen, LiveScreen)
    assert app.crash is None
    assert [change.k for change in engine.asked] == [2]


@pytest.mark.parametrize(
    ("typed", "asked"), [("", []), ("help", []), ("load", []), ("set k 2", [2])]
)
async def test_enter_runs_no_command_that_was_not_found(
    typed: str, asked: list[int], kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "ctrl+p", *typed, "enter")
        await settle(pilot)
        await wait_until(pilot, lambda: len(engine.asked) == len(asked))
    assert app.crash is None
    assert [change.k for change in engine.asked] == asked


async def test_what_is_typed_behind_a_search_that_finds_nothing_is_still_the_palettes(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "ctrl+p", *"nothing such", "enter", "2")
        await wait_until(
            pilot,
            lambda: (
                isinstance(app.screen, CommandPalette)
                and app.screen.query_one(Input).value == "nothing such2"
            ),
        )
    assert engine.asked == []


async def test_a_search_that_begins_as_the_palette_closes_is_no_failure(
    kit: type[Kit], console: MakeConsole
) -> None:
    from specdeck.console.palette import PaletteScreen

    app = console(kit.engine(kit.run(5)))
    async with run(app) as pilot:
        await press(pilot, "ctrl+p")
        palette = app.screen
        assert isinstance(palette, PaletteScreen)
        await palette.query_one(CommandList).remove()
        found = palette._gather_commands("load")
        await found.wait()
    assert (app.crash, found.error) == (None, None)


@pytest.mark.parametrize("at_once", [True, False])
async def test_help_that_is_typed_into_the_palette_is_help(
    at_once: bool, kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        for key in ("ctrl+p", *"help", "enter"):
            type_at_once(app, key)
            if not at_once:
                await settle(pilot)
        await wait_until(pilot, lambda: isinstance(app.screen, HelpScreen))
    assert engine.asked == []


async def test_the_palette_finds_no_command_by_letters_from_here_and_there(
    kit: type[Kit], console: MakeConsole
) -> None:
    from specdeck.console.palette import Palette

    app = console(kit.engine(kit.run(3)))
    async with run(app):
        palette = Palette(app.screen)
        found = {
            typed: [str(hit.text) async for hit in palette.search(typed)]
            for typed in ("help", "hlp", "to 4", "SET k 2", "?")
        }
    assert found == {
        "help": ["Console: Show every key"],
        "hlp": [],
        "to 4": ["Speculation: Set k to 4"],
        "SET k 2": ["Speculation: Set k to 2"],
        "?": [],
    }


@pytest.mark.parametrize("at_once", [True, False])
async def test_down_is_of_the_list_for_what_is_typed(
    at_once: bool, kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, "ctrl+p")
        for key in (*"set k", "down", "down", "enter"):
            type_at_once(app, key)
            if not at_once:
                await settle(pilot)
        await wait_until(pilot, lambda: engine.asked)
    assert [change.k for change in engine.asked] == [2]


async def test_a_moment_that_is_typed_where_nothing_is_recorded_steers_nothing(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "g", *"-2m 03:10", "enter", gap_s=0.12)
        await settle(pilot)
        assert isinstance(app.screen, LiveScreen)
    assert engine.asked == []


async def test_the_answer_of_a_question_that_is_not_asked_steers_nothing(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "c", "a", gap_s=0.12)
        await settle(pilot)
        assert said(app)[-1] == "control is armed already"
    assert engine.asked == []


async def test_what_steers_acts_right_after_the_key_that_asks_no_question(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "c", "t", gap_s=0.12)
        await settle(pilot)
    assert [change.mode for change in engine.asked] == ["target-only"]


async def test_what_is_typed_at_once_into_the_palette_is_in_its_line(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(5))
    app = console(engine)
    async with run(app) as pilot:
        type_at_once(app, "ctrl+p", *"q3+set k 2?t")
        await settle(pilot)
        assert isinstance(app.screen, CommandPalette)
        assert app.screen.query_one(Input).value == "q3+set k 2?t"
    assert engine.asked == []


async def test_leaving_lets_work_that_was_cancelled_tidy_up_and_cancels_it_once(
    kit: type[Kit], console: MakeConsole
) -> None:
    app, done = console(kit.engine(kit.run(3))), []

    async def give_back() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            done.append("given back")

    async with run(app):
        task = app.controller.spawn(give_back(), "sweep")
        await asyncio.sleep(0.05)
        task.cancel()  # by hand, and then the console ends
        await asyncio.sleep(0.05)
    assert done == []
    await app.finish_work()
    assert done == ["given back"]


async def test_work_that_was_cancelled_before_it_began_is_closed(
    kit: type[Kit], console: MakeConsole
) -> None:
    """Python warns on stderr of what is not, maybe after the console has left."""
    app = console(kit.engine(kit.run(3)))
    work = asyncio.sleep(0.0)
    async with run(app):
        app.controller.spawn(work, "look").cancel()
        await asyncio.sleep(0.05)
        assert inspect.getcoroutinestate(work) == inspect.CORO_CREATED
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_work_that_tidies_up_for_ever_does_not_keep_the_console(
    kit: type[Kit], console: MakeConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdeck.console.app.LEAVE_S", 0.1)
    app, ended = console(kit.engine(kit.run(3))), []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cut short")

    async with run(app):
        app.controller.spawn(hang(), "sweep")
        await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await app.finish_work()
    assert ended == ["cut short"]


async def test_who_is_told_what_leaving_waits_for_can_have_it_cut_short(
    kit: type[Kit], console: MakeConsole
) -> None:
    app, told = console(kit.engine(kit.run(3))), []

    async def give_back_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    def tell(line: str) -> None:
        told.append(line)
        app.hurry()

    async with run(app):
        app.controller.spawn(give_back_for_ever(), "sweep")
        await asyncio.sleep(0.05)
    async with asyncio.timeout(LEAVE_S / 2):
        await app.finish_work(tell)
    assert told == [
        "leaving once a sweep has given k back, in 9 s at the latest: Ctrl-C leaves at once"
    ]


@pytest.mark.parametrize("action", ["page_down", "page_up"])
async def test_a_page_of_a_palette_that_is_not_drawn_yet_is_none(
    action: str, kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with run(app) as pilot:
        await pilot.press("ctrl+p")
        palette, found = app.screen, app.screen.query_one(CommandList)
        assert isinstance(palette, CommandPalette)
        await wait_until(pilot, lambda: found.option_count)
        found.display = False
        await wait_until(pilot, lambda: not found.scrollable_content_region)
        found.clear_options().add_options([Option("one"), Option("two")])
        found.highlighted = 1
        palette._action_command_list(action)
        assert found.highlighted == 1
    assert app.crash is None


async def test_a_search_that_ends_after_the_palette_has_closed_is_no_defect(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with run(app) as pilot:
        await pilot.press("ctrl+p")
        palette = app.screen
        assert isinstance(palette, CommandPalette)
        await pilot.press("escape")
        await wait_until(pilot, lambda: not palette.children)
        await palette._watch__show_busy()
    assert app.crash is None


async def test_keys_that_are_typed_ahead_of_a_screen_wait_for_it(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with run(app) as pilot:
        for key in ("e", "enter", "C"):  # all of them before the first is handled
            app.post_message(Key(key, None))
        await settle(pilot)
        app.push_screen(Screen())
        assert not app.screen.is_mounted
        await app.on_event(Key("x", "x"))
        assert app.screen.is_mounted
    assert app.crash is None


async def test_a_notice_that_is_over_as_it_is_shown_holds_nothing_up(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with app.run_test(notifications=True) as pilot:
        app.notify("saved", timeout=30.0)
        await wait_until(pilot, lambda: app.screen.query(Toast))
        (notice,) = app._notifications
        assert not notice.has_expired
        notice.timeout = -5.0
        assert notice.has_expired
        assert 0.0 < notice.time_left < 1.0
        await app.screen.mount(Toast(notice))
        await pilot.pause(0.2)
    assert app.crash is None


async def test_the_palette_opens_again_before_it_is_gone(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with run(app) as pilot:
        for key in ("ctrl+p", "escape") * 3:
            app.post_message(Key(key, None))
        await settle(pilot)
    assert app.crash is None


async def test_a_reading_that_arrives_while_the_console_closes_is_not_shown(
    kit: type[Kit], console: MakeConsole
) -> None:
    app = console(kit.engine(kit.run(5) * 2000, pace_s=0.0))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
    assert app.crash is None


@pytest.mark.parametrize("name", ["tuning", "fingerprint", "divergence"])
async def test_a_screen_that_opens_while_the_console_closes_is_no_defect(
    kit: type[Kit], console: MakeConsole, name: str
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with run(app, size=(120, 40)):
        app.exit()
        app.action_open_screen(name)
        await asyncio.sleep(0.1)
    assert app.crash is None
    assert not app.return_code


@pytest.mark.parametrize("columns", [1, 4, 8])
async def test_the_palette_opens_on_a_terminal_of_a_few_columns(
    kit: type[Kit], console: MakeConsole, columns: int
) -> None:
    app = console(kit.engine(kit.run(5)))
    async with run(app, size=(columns, 3)) as pilot:
        await pilot.press("colon")
        await wait_until(pilot, lambda: app.screen.query(CommandList).first().option_count)
    assert app.crash is None


@pytest.mark.parametrize("width", [80, 50])
async def test_help_tells_every_key_whole(width: int, kit: type[Kit], console: MakeConsole) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, size=(width, 140)) as pilot:
        await press(pilot, "question_mark")
        told = " ".join(screen_text(app).replace("│", " ").split())
    for key in keys.of("live", app.context.keys):
        assert key.tooltip in told


async def test_an_incident_file_is_written_beside_everything_else(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    asked: list[tuple[str, Path]] = []

    async def write(
        url: str, folder: Path, span: TimeSpan, on_progress: Callable[[str], None]
    ) -> IncidentFile:
        asked.append((url, folder))
        if folder.name == "full":
            raise OSError("no space left on device")
        on_progress("the recording")
        begun.set()
        await go.wait()
        return IncidentFile(folder / "incident-a.zip", "config.yaml: it is on the engine's host")

    (tmp_path / "full").mkdir()
    engine = kit.engine(kit.run(3))
    app = console(
        engine, incident=write, folders=lambda: (tmp_path / "no", tmp_path / "full", tmp_path)
    )
    async with run(app, size=(120, 40), notifications=True) as pilot:
        await press(pilot, "I")
        await begun.wait()
        await press(pilot, "I", "minus")
        assert [change.k for change in engine.asked] == [4]
        go.set()
        await wait_until(pilot, lambda: any("incident-a.zip" in line for line in said(app)))
        assert said(app)[-1] == "not in the incident file: config.yaml: it is on the engine's host"
    url = app.controller.track.url
    assert asked == [(url, tmp_path / "full"), (url, tmp_path)]
    told = [toast.message for toast in app._notifications]
    assert "an incident file is being written" in told
    assert any(line.startswith("incident file: ") and "incident-a.zip" in line for line in told)


async def test_an_incident_is_of_the_moment_that_is_looked_at(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    asked: list[TimeSpan] = []

    async def write(
        url: str, folder: Path, span: TimeSpan, on_progress: Callable[[str], None]
    ) -> IncidentFile:
        asked.append(span)
        return IncidentFile(folder / "incident-a.zip")

    app = console(kit.engine(kit.run(3)), incident=write, folders=lambda: (tmp_path,))
    async with run(app, size=(120, 40), notifications=True) as pilot:
        now = app.controller.clock()
        await press(pilot, "I")
        await wait_until(pilot, lambda: len(asked) == 1)
        view = app.context.timeline.view
        app.context.timeline.view = replace(view, t=now - 7200.0, start=now - 7300.0)
        await press(pilot, "I")
        await wait_until(pilot, lambda: len(asked) == 2)
        told = [toast.message for toast in app._notifications]
    assert asked == [(now - 1800.0, None), (now - 8100.0, now - 6300.0)]
    assert any(line.startswith("writing ") and line.endswith("to now") for line in told)


SENT = "demo: not known whether it was changed: the engine has not answered k 4"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("4", [SENT]),
        ("43", [f"{SENT}; what was asked for since was not sent"]),
        ("4z", [f"{SENT}; what was asked for since was not sent"]),
        ("", []),
    ],
)
async def test_leaving_says_what_the_engine_has_not_answered(
    kit: type[Kit], console: MakeConsole, keys: str, said: list[str]
) -> None:
    engine = kit.engine(kit.run(3))
    engine.answer.clear()
    app = console(engine)
    async with run(app) as pilot:
        await press(pilot, *keys)
    await app.finish_work()
    assert list(app.parting) == said


async def test_an_engine_that_is_stopped_on_leaving_has_nothing_to_answer(
    kit: type[Kit], console: MakeConsole
) -> None:
    engine = kit.engine(kit.run(3))
    engine.answer.clear()
    app = console(engine, owned=True)
    async with run(app) as pilot:
        await press(pilot, "4", "q", "s")
    await app.finish_work()
    assert app.parting == ()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_leaving_waits_for_an_incident_file_and_says_what_came_of_it(
    kit: type[Kit], console: MakeConsole, tmp_path: Path, is_cut: bool
) -> None:
    done = asyncio.Event()

    async def write(url: str, folder: Path, span: TimeSpan, say: object) -> IncidentFile:
        await done.wait()
        return IncidentFile(folder / "incident-a.zip")

    app = console(kit.engine(kit.run(3)), incident=write, folders=lambda: (tmp_path,))
    async with run(app) as pilot:
        await press(pilot, "I")
        await pilot.press("q")

    def go_on(line: str) -> None:
        assert line.startswith("leaving once an incident file is written")
        if is_cut:
            app.hurry()
        else:
            done.set()

    async with asyncio.timeout(60):
        await app.finish_work(go_on)
    (line,) = app.parting
    if is_cut:
        assert line == "no incident file: leaving cut it short"
    else:
        assert line.startswith(f"incident file: {tmp_path / 'incident-a.zip'}")


async def test_an_incident_that_cannot_be_written_is_said(
    kit: type[Kit], console: MakeConsole, tmp_path: Path
) -> None:
    async def write(
        url: str, folder: Path, span: TimeSpan, on_progress: Callable[[str], None]
    ) -> IncidentFile:
        raise EngineError("nothing of it is recorded", remedy="record it")

    app = console(kit.engine(kit.run(3)), incident=write, folders=lambda: (tmp_path,))
    async with run(app, notifications=True) as pilot:
        await press(pilot, "I")
        await pilot.pause()
        told = [toast.message for toast in app._notifications]
    assert told[-1] == "no incident file: nothing of it is recorded: record it"


async def test_a_recording_has_no_incident_of_its_own(kit: type[Kit], console: MakeConsole) -> None:
    app = console(kit.engine(kit.run(3)))
    async with run(app, notifications=True) as pilot:
        await press(pilot, "I")
        told = [toast.message for toast in app._notifications]
    assert told[-1].startswith("an incident is written of a live engine")
