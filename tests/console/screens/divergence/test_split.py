"""The split screen, driven as an operator drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support.completion_engine import CompletionEngine, Fault
from tests.support.pilot import settle

from specdeck.console.screens.divergence.dialogs import CheckForm, PromptPicker
from specdeck.console.screens.divergence.screen import DivergenceScreen
from specdeck.console.settings import Settings
from specdeck.engine.divergence.prompts import load_prompts
from specdeck.engine.errors import Unreachable, Unsupported
from specdeck.engine.operations.check import CheckOptions

if TYPE_CHECKING:
    from tests.console.conftest import Until
    from tests.console.screens.divergence.conftest import Deck, Opens
    from textual.pilot import Pilot

FIRST = load_prompts("code").find(1)
assert FIRST is not None
TEXT = FIRST.body["prompt"]


Opened = Callable[["Pilot[str]"], Awaitable[DivergenceScreen]]


@pytest.fixture
def opened(until: Until) -> Opened:
    async def press(pilot: Pilot[str]) -> DivergenceScreen:
        await pilot.press("d")
        screen = pilot.app.screen
        assert isinstance(screen, DivergenceScreen)
        await until(pilot, lambda: screen.split.arms or screen.split.problem)
        return screen

    return press


def words(screen: DivergenceScreen) -> str:
    rows: Any = screen.query_one("#findings")
    return "\n".join("".join(cell.text for cell in row.left) for row in rows.rows)


async def test_one_prompt_is_judged_by_the_share_that_the_form_says(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one = deck()
    one.bench.session.options = CheckOptions(threshold=0.25)
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: screen.check.data)
        assert screen.check.data is not None
        assert screen.check.data["max_mismatch"] == 0.25


async def test_the_grade_is_shown_before_anything_is_asked(deck: Opens, opened: Opened) -> None:
    one = deck()
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        row: Any = screen.query_one("#identity")
        assert "soft" in "".join(cell.text for cell in row.row.right)
        assert not one.serving.asked


async def test_enter_runs_to_the_end_of_equal_answers(
    deck: Opens, opened: Opened, until: Until
) -> None:
    async with deck().app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: screen.split.verdict)
        assert "to the end: 128 tokens" in words(screen)


async def test_it_stops_at_the_first_token_that_differs(
    deck: Opens, opened: Opened, until: Until
) -> None:
    serving = CompletionEngine(faults={TEXT: Fault(17, 3.2)})
    async with deck(serving).app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: screen.split.verdict)
        says: Any = screen.query_one("#serving-says")
        assert "".join(cell.text for cell in says.cells).count("<") == 18
        bars: Any = screen.query_one("#reference-candidates")
        assert [bar.text for bar in bars.bars] == ["−0.250", "−3.450"]
        assert "material" in words(screen)
        assert "rank 2): confirmed" in words(screen)


async def test_another_engine_is_a_hard_reference(deck: Opens, opened: Opened) -> None:
    one = deck(reference=CompletionEngine(url="http://other"))
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        assert one.asked[0].reference == "http://other"
        row: Any = screen.query_one("#identity")
        assert "hard" in "".join(cell.text for cell in row.row.right)


async def test_an_engine_that_cannot_pin_names_the_remedy(deck: Opens, opened: Opened) -> None:
    async with deck(CompletionEngine(pins=False)).app.run_test() as pilot:
        screen = await opened(pilot)
        assert "it is too old" in words(screen)
        assert "--reference URL" in words(screen)


async def test_a_console_without_a_live_engine_says_so(deck: Opens, opened: Opened) -> None:
    one = deck()
    object.__setattr__(one.app.context, "check", None)
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        assert "no live engine" in words(screen)
        await pilot.press("enter", "r", "b", "v", "w", "m")
        assert pilot.app.screen is screen


@pytest.mark.parametrize(
    "error", [Unreachable("no answer"), Unsupported("too old", remedy="update it")]
)
async def test_an_engine_that_dies_is_one_line(
    deck: Opens, error: Any, opened: Opened, until: Until
) -> None:
    one = deck()
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        one.failure = error
        await pilot.press("enter")
        await until(pilot, lambda: screen.split.problem)
        assert error.line() in words(screen)
        one.failure = None
        await pilot.press("enter")
        await until(pilot, lambda: screen.split.verdict)
        assert error.line() not in words(screen)


async def test_typing_triggers_no_key_and_is_remembered(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one = deck()
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("p", "tab", *"def q", "enter")
        await until(pilot, lambda: screen.split.verdict)
        assert one.bench.session.prompt is not None
        assert one.bench.session.prompt.body == {"prompt": "def q"}
        await pilot.press("escape", "d")
        again = shown(pilot)
        assert again is not screen
        assert again.session.typed


def shown(pilot: Pilot[str]) -> DivergenceScreen:
    assert isinstance(pilot.app.screen, DivergenceScreen)
    return pilot.app.screen


async def test_text_can_be_a_message_of_a_chat(deck: Opens, opened: Opened, until: Until) -> None:
    one = deck()
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("p", "tab", "ctrl+o", *"hi", "enter")
        await until(pilot, lambda: screen.split.verdict)
        assert one.bench.session.prompt is not None
        assert one.bench.session.prompt.chat


async def test_a_path_lists_the_prompts_of_the_file(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one = deck()
    path = one.folder / "mine.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("p", "tab", *str(path), "enter")
        assert isinstance(pilot.app.screen, PromptPicker)
        await pilot.press("down", "enter")
        await until(pilot, lambda: screen.split.verdict)
        assert one.bench.session.source == str(path)
        assert one.bench.session.prompt is not None
        assert one.bench.session.prompt.body == {"prompt": "two"}


async def test_a_broken_line_of_a_file_is_named(deck: Opens, opened: Opened) -> None:
    one = deck()
    path = one.folder / "bad.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": \n')
    async with one.app.run_test() as pilot:
        await opened(pilot)
        await pilot.press("p", "tab", *str(path), "enter")
        problem: Any = pilot.app.screen.query_one("#pick-problem")
        assert "bad.jsonl:2: no JSON" in problem.row.left[0].text
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, DivergenceScreen)


async def test_arrows_go_through_the_set_and_the_sets(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one = deck()
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("right", "right", "left")
        assert screen.session.prompt is not None
        assert screen.session.prompt.number == 2
        await pilot.press("p", "right", "down", "enter")
        await until(pilot, lambda: screen.split.verdict)
        assert (screen.session.source, screen.session.prompt.number) == ("chat", 2)


async def test_the_form_takes_numbers_and_refuses_nonsense(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one = deck()
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("e", "down", *"x", "enter")
        assert isinstance(pilot.app.screen, CheckForm)
        problem: Any = pilot.app.screen.query_one("#form-problem")
        assert "tokens an answer" in problem.row.left[0].text
        await pilot.press("backspace", *"16", "enter")
        assert screen.session.options.max_tokens == 16
        await pilot.press("enter")
        await until(pilot, lambda: screen.split.verdict)
        assert "to the end: 16 tokens" in words(screen)


async def test_a_case_is_written_and_its_place_said(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one: Deck = deck(CompletionEngine(faults={TEXT: Fault(17, 3.2)}))
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("w")
        assert "no case to bundle" in words(screen)
        await pilot.press("enter")
        await until(pilot, lambda: screen.split.verdict)
        await pilot.press("w", "m")
        (bundle,) = one.folder.glob("specdeck-case-*.md")
        assert "curl -s" in bundle.read_text()
        (report,) = one.folder.glob("specdeck-check-*.md")
        assert report.name in words(screen)


async def test_escape_leaves_a_race_and_asks_nothing(deck: Opens, opened: Opened) -> None:
    async with deck().app.run_test() as pilot:
        await opened(pilot)
        await pilot.press("enter", "escape")
        assert not isinstance(pilot.app.screen, DivergenceScreen)


async def test_help_has_the_keys_of_the_screen(deck: Opens, opened: Opened) -> None:
    async with deck().app.run_test() as pilot:
        await opened(pilot)
        await pilot.press("question_mark")
        rows: Any = pilot.app.screen.query_one("#keys")
        text = "".join(cell.text for row in rows.rows for cell in row.left)
        assert "Ask both arms" in text


async def test_enter_while_a_race_runs_begins_it_anew_and_x_stops_that_one(
    deck: Opens, opened: Opened
) -> None:
    one, gate = held(deck)
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("enter", "enter")
        await settle(pilot)
        assert screen.split.running
        await pilot.press("x")
        assert not screen.split.running
        assert "stopped" in words(screen)
        gate.set()


async def test_a_look_at_the_arms_that_ends_late_does_not_end_the_race(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one, gate = held(deck)
    async with one.app.run_test() as pilot:
        screen = await opened(pilot)
        await pilot.press("enter")
        await settle(pilot)
        screen.describe()
        await until(pilot, lambda: len(one.asked) >= 3)
        await settle(pilot)
        assert screen.split.running
        gate.set()
        await until(pilot, lambda: screen.split.verdict)


def held(deck: Opens) -> tuple[Deck, asyncio.Event]:
    """A console whose engine answers no prompt until the gate opens."""
    gate = asyncio.Event()

    class Slow(CompletionEngine):
        async def __call__(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.startswith("/v1/completions"):
                await gate.wait()
            return await super().__call__(request)

    return deck(Slow()), gate


@pytest.mark.parametrize(
    "text", ["~nosuchuser/prompts.jsonl", "x" * 5000 + ".txt", "/dev/null", "/"]
)
async def test_a_path_that_can_be_none_is_one_line(text: str, deck: Opens, opened: Opened) -> None:
    async with deck().app.run_test() as pilot:
        await opened(pilot)
        await pilot.press("p", "tab")
        field: Any = pilot.app.screen.query_one("#typed")
        field.value = text
        await pilot.press("enter")
        problem: Any = pilot.app.screen.query_one("#pick-problem")
        assert len(problem.row.left[0].text) > 5


async def test_keys_of_the_screen_can_be_moved_and_its_footer_and_help_say_so(
    deck: Opens, opened: Opened, until: Until
) -> None:
    one = deck(settings=Settings(keymap={"check.run": "f5", "prompt.chat": "f6"}))
    async with one.app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        await pilot.press("enter")
        assert not screen.split.running
        row: Any = screen.query_one("#footer")
        assert "f5 run" in "".join(cell.text for cell in row.row.left)
        assert "f5 asks both arms" in words(screen)
        await pilot.press("f5")
        await until(pilot, lambda: screen.split.verdict)
        await pilot.press("p", "f6")
        assert isinstance(pilot.app.screen, PromptPicker)
        assert pilot.app.screen.chat
        hint: Any = pilot.app.screen.query_one("#pick-keys")
        assert "f6 as chat" in "".join(cell.text for cell in hint.row.left)


async def test_the_palette_offers_what_the_screen_can_do(deck: Opens, opened: Opened) -> None:
    from specdeck.console.palette import Palette

    async with deck().app.run_test() as pilot:
        await opened(pilot)
        names = {command.name for command in Palette(pilot.app.screen).commands()}
        assert "Check: Ask both arms and stop at the first difference" in names
        assert not any(name.startswith("Speculation:") for name in names)
