"""The split screen, driven as an operator drives it."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support.completion_engine import CompletionEngine, Fault
from tests.support.pilot import press, settle, until
from tests.support.readings import STATE, reading

from specdeck.console.screens.divergence import view
from specdeck.console.screens.divergence.dialogs import (
    CheckForm,
    PromptPicker,
    option_texts,
    parse_options,
)
from specdeck.console.screens.divergence.prompt_file import BROWSED, load_aside
from specdeck.console.screens.divergence.screen import DivergenceScreen
from specdeck.console.settings import Settings
from specdeck.console.state.check import MOST_SHOWN, Side, Split
from specdeck.console.widgets.text import Passage
from specdeck.engine.divergence.prompts import load_prompts, parse_prompt
from specdeck.engine.divergence.race import NAMES
from specdeck.engine.errors import ConfigError, Unreachable, Unsupported, UsageError
from specdeck.engine.operations.check import CheckOptions

if TYPE_CHECKING:
    from tests.console.screens.divergence.conftest import Deck, Opens
    from textual.pilot import Pilot

FIRST = load_prompts("code").find(1)
assert FIRST is not None
TEXT = FIRST.body["prompt"]


@asynccontextmanager
async def run_split(
    one: Deck, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[Pilot[str], DivergenceScreen]]:
    """The console with the split screen, which knows its arms or why there are none."""
    async with one.app.run_test(size=size) as pilot:
        await pilot.press("d")
        screen = shown(pilot)
        await until(pilot, lambda: screen.split.arms or screen.split.problem)
        yield pilot, screen


async def race(pilot: Pilot[str], *keys: str) -> None:
    """Presses keys that have the arms asked, and waits for the verdict."""
    screen = next(one for one in pilot.app.screen_stack if isinstance(one, DivergenceScreen))
    await press(pilot, *keys)
    await until(pilot, lambda: screen.split.verdict)


async def type_path(pilot: Pilot[str], path: Path | str) -> None:
    """Gives a path where a prompt can be typed, at once: it is long."""
    await pilot.press("p", "tab")
    field: Any = pilot.app.screen.query_one("#typed")
    field.value = str(path)
    await pilot.press("enter")


def words(screen: DivergenceScreen) -> str:
    rows: Any = screen.query_one("#findings")
    return "\n".join("".join(cell.text for cell in row.left) for row in rows.rows)


async def test_one_prompt_is_judged_by_the_share_that_the_form_says(deck: Opens) -> None:
    one = deck()
    one.bench.session.options = CheckOptions(threshold=0.25)
    async with run_split(one) as (pilot, screen):
        await pilot.press("enter")
        await until(pilot, lambda: screen.check.data)
        assert screen.check.data is not None
        assert screen.check.data["max_mismatch"] == 0.25


def test_of_an_answer_of_megabytes_the_end_is_laid_out() -> None:
    side = Side()
    for word in ("a" * 1_000_000, "b", "c"):
        side.hear(word, 1)
    assert (len(side.text), side.text[-3:], side.tokens) == (MOST_SHOWN, "abc", 3)


def test_of_two_long_answers_the_same_characters_are_laid_out() -> None:
    split = Split()
    text = "".join(chr(97 + n % 26) for n in range(MOST_SHOWN + 30))
    split.sides["serving"].hear(text, 9)
    split.sides["reference"].hear(text[: MOST_SHOWN + 10], 8)
    ours, theirs = (view.passage(split, name)[0].text for name in NAMES)
    assert ours == text[30:]
    assert theirs == text[30 : MOST_SHOWN + 10]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 24)])
async def test_both_arms_show_the_same_rows_while_one_is_ahead(
    deck: Opens, size: tuple[int, int]
) -> None:
    def rows(name: str) -> list[str]:
        passage = screen.query_one(f"#{name}-says", Passage)
        lines = [passage.render_line(y).text.strip() for y in range(passage.size.height)]
        return [line for line in lines if line]

    async with run_split(deck(), size) as (pilot, screen):
        ours, theirs = screen.split.sides["serving"], screen.split.sides["reference"]
        for number in range(100):
            ours.hear(f"line {number}\n", 3)
            if number < 60:
                theirs.hear(f"line {number}\n", 3)
        screen.split.running = True
        screen.show()
        await settle(pilot)
        ahead, behind = rows("serving"), rows("reference")
        assert behind[-1] == "line 59"
        assert ahead[: len(behind)] == behind
        theirs.hear("line 60\n", 3)
        screen.show()
        await settle(pilot)
        assert rows("reference")[-1] == "line 60"
        assert rows("serving")[: len(behind)] == rows("reference")[: len(behind)]
        assert len(rows("serving")) >= len(behind)


async def test_the_grade_is_shown_before_anything_is_asked(deck: Opens) -> None:
    one = deck()
    async with run_split(one) as (_, screen):
        row: Any = screen.query_one("#identity")
        assert "soft" in "".join(cell.text for cell in row.row.right)
        assert not one.serving.asked


async def test_the_arms_follow_the_engine_until_they_are_asked(
    deck: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_split(deck()) as (pilot, screen):
        described: list[int] = []
        monkeypatch.setattr(screen, "describe", lambda: described.append(1))

        def turn(version: int) -> int:
            controller = screen.controller
            found = reading(1, replace(STATE, version=version))
            controller.put(0, replace(controller.track, reading=found))
            screen.show()
            return len(described)

        turn(7)
        described.clear()
        assert [turn(7), turn(8), turn(8)] == [0, 1, 1]
        await race(pilot, "enter")
        assert turn(9) == 1


async def test_enter_runs_to_the_end_of_equal_answers(deck: Opens) -> None:
    async with run_split(deck()) as (pilot, screen):
        await race(pilot, "enter")
        assert "to the end: 128 tokens" in words(screen)


async def test_a_prompt_is_copied_as_curl_that_asks_the_same(deck: Opens) -> None:
    one = deck()
    async with run_split(one) as (pilot, screen):
        copies = {copy.label: copy.text for copy in screen.list_copies()}
        await press(pilot, "C", "enter")
        assert pilot.app.clipboard == copies["curl, serving"]
        await race(pilot, "enter")
    words = shlex.split(copies["curl, serving"].replace("\\\n", " "))
    body = json.loads(words[words.index("-d") + 1])
    assert body["prompt"] == TEXT
    asked = [wanted for wanted in one.serving.asked if "vllm_xargs" not in wanted]
    assert {key: value for key, value in body.items() if key != "stream"}.items() <= asked[
        0
    ].items()
    pinned = shlex.split(copies["curl, reference"].replace("\\\n", " "))
    assert json.loads(pinned[pinned.index("-d") + 1])["vllm_xargs"] == {"specdeck_k": 0}
    assert copies["check"].startswith("specdeck check http")


async def test_it_stops_at_the_first_token_that_differs(deck: Opens) -> None:
    serving = CompletionEngine(faults={TEXT: Fault(17, 3.2)})
    async with run_split(deck(serving)) as (pilot, screen):
        await race(pilot, "enter")
        says: Any = screen.query_one("#serving-says")
        assert "".join(cell.text for cell in says.cells).count("<") == 18
        bars: Any = screen.query_one("#reference-candidates")
        assert [bar.text for bar in bars.bars] == ["−0.250", "−3.450"]
        assert "material" in words(screen)
        assert "rank 2): confirmed" in words(screen)


async def test_another_engine_is_a_hard_reference(deck: Opens) -> None:
    one = deck(reference=CompletionEngine(url="http://other"))
    async with run_split(one) as (_, screen):
        assert one.asked[0].reference == "http://other"
        row: Any = screen.query_one("#identity")
        assert "hard" in "".join(cell.text for cell in row.row.right)


async def test_an_engine_that_cannot_pin_names_the_remedy(deck: Opens) -> None:
    async with run_split(deck(CompletionEngine(pins=False))) as (_, screen):
        assert "it is too old" in words(screen)
        assert "--reference URL" in words(screen)


async def test_a_console_without_a_live_engine_says_so(deck: Opens) -> None:
    one = deck()
    object.__setattr__(one.app.context, "check", None)
    async with run_split(one) as (pilot, screen):
        assert "no live engine" in words(screen)
        await pilot.press("enter", "r", "b", "v", "w", "m")
        assert pilot.app.screen is screen


@pytest.mark.parametrize(
    "error", [Unreachable("no answer"), Unsupported("too old", remedy="update it")]
)
async def test_an_engine_that_dies_is_one_line(deck: Opens, error: Any) -> None:
    one = deck()
    async with run_split(one) as (pilot, screen):
        one.failure = error
        await pilot.press("enter")
        await until(pilot, lambda: screen.split.problem)
        assert error.line() in words(screen)
        one.failure = None
        await race(pilot, "enter")
        assert error.line() not in words(screen)


async def test_typing_triggers_no_key_and_is_remembered(deck: Opens) -> None:
    one = deck()
    async with run_split(one) as (pilot, screen):
        await race(pilot, "p", "tab", *"def q", "enter")
        assert one.bench.session.prompt is not None
        assert one.bench.session.prompt.body == {"prompt": "def q"}
        await pilot.press("escape", "d")
        again = shown(pilot)
        assert again is not screen
        assert again.session.typed


def shown(pilot: Pilot[str]) -> DivergenceScreen:
    assert isinstance(pilot.app.screen, DivergenceScreen)
    return pilot.app.screen


async def test_text_can_be_a_message_of_a_chat(deck: Opens) -> None:
    one = deck()
    async with run_split(one) as (pilot, _):
        await race(pilot, "p", "tab", "ctrl+o", *"hi", "enter")
        assert one.bench.session.prompt is not None
        assert one.bench.session.prompt.chat


async def test_a_path_lists_the_prompts_of_the_file(deck: Opens) -> None:
    one = deck()
    path = one.folder / "mine.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    async with run_split(one) as (pilot, _):
        await type_path(pilot, path)
        assert isinstance(pilot.app.screen, PromptPicker)
        await race(pilot, "down", "enter")
        assert one.bench.session.source == str(path)
        assert one.bench.session.prompt is not None
        assert one.bench.session.prompt.body == {"prompt": "two"}


async def test_a_broken_line_of_a_file_is_named(deck: Opens) -> None:
    one = deck()
    path = one.folder / "bad.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": \n')
    async with run_split(one) as (pilot, _):
        await type_path(pilot, path)
        problem: Any = pilot.app.screen.query_one("#pick-problem")
        assert "bad.jsonl:2: no JSON" in problem.row.left[0].text
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, DivergenceScreen)


async def test_arrows_go_through_the_set_and_the_sets(deck: Opens) -> None:
    one = deck()
    async with run_split(one) as (pilot, screen):
        await pilot.press("right", "right", "left")
        assert screen.session.prompt is not None
        assert screen.session.prompt.number == 2
        await race(pilot, "p", "right", "down", "enter")
        assert (screen.session.source, screen.session.prompt.number) == ("chat", 2)


async def test_the_form_takes_numbers_and_refuses_nonsense(deck: Opens) -> None:
    one = deck()
    async with run_split(one) as (pilot, screen):
        await pilot.press("e", "down", *"x", "enter")
        assert isinstance(pilot.app.screen, CheckForm)
        problem: Any = pilot.app.screen.query_one("#form-problem")
        assert "tokens an answer" in problem.row.left[0].text
        await pilot.press("backspace", *"16", "enter")
        assert screen.session.options.max_tokens == 16
        await race(pilot, "enter")
        assert "to the end: 16 tokens" in words(screen)


async def test_a_case_is_written_and_its_place_said(deck: Opens) -> None:
    one: Deck = deck(CompletionEngine(faults={TEXT: Fault(17, 3.2)}))
    async with run_split(one) as (pilot, screen):
        await pilot.press("w")
        assert "no case to bundle" in words(screen)
        await race(pilot, "enter")
        await pilot.press("w", "m")
        (bundle,) = one.folder.glob("specdeck-case-*.md")
        assert "curl -s" in bundle.read_text()
        (report,) = one.folder.glob("specdeck-check-*.md")
        assert report.name in words(screen)


async def test_escape_leaves_a_race_and_asks_nothing(deck: Opens) -> None:
    async with run_split(deck()) as (pilot, _):
        await pilot.press("enter", "escape")
        assert not isinstance(pilot.app.screen, DivergenceScreen)


async def test_help_has_the_keys_of_the_screen(deck: Opens) -> None:
    async with run_split(deck()) as (pilot, _):
        await pilot.press("question_mark")
        rows: Any = pilot.app.screen.query_one("#keys")
        text = "".join(cell.text for row in rows.rows for cell in row.left)
        assert "Ask both arms" in text


async def test_enter_while_a_race_runs_begins_it_anew_and_x_stops_that_one(deck: Opens) -> None:
    one, gate = held(deck)
    async with run_split(one) as (pilot, screen):
        await press(pilot, "enter", "enter")
        assert screen.split.running
        await pilot.press("x")
        assert not screen.split.running
        assert "stopped" in words(screen)
        gate.set()


async def test_a_look_at_the_arms_that_ends_late_does_not_end_the_race(deck: Opens) -> None:
    one, gate = held(deck)
    async with run_split(one) as (pilot, screen):
        await press(pilot, "enter")
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
async def test_a_path_that_can_be_none_is_one_line(text: str, deck: Opens) -> None:
    async with run_split(deck()) as (pilot, _):
        await type_path(pilot, text)
        problem: Any = pilot.app.screen.query_one("#pick-problem")
        assert len(problem.row.left[0].text) > 5


async def test_keys_of_the_screen_can_be_moved_and_its_footer_and_help_say_so(deck: Opens) -> None:
    one = deck(settings=Settings(keymap={"check.run": "f5", "prompt.chat": "f6"}))
    async with run_split(one, size=(120, 40)) as (pilot, screen):
        await pilot.press("enter")
        assert not screen.split.running
        row: Any = screen.query_one("#footer")
        assert "f5 run" in "".join(cell.text for cell in row.row.left)
        assert "f5 asks both arms" in words(screen)
        await race(pilot, "f5")
        await pilot.press("p", "f6")
        assert isinstance(pilot.app.screen, PromptPicker)
        assert pilot.app.screen.chat
        hint: Any = pilot.app.screen.query_one("#pick-keys")
        assert "f6 as chat" in "".join(cell.text for cell in hint.row.left)


async def test_the_palette_offers_what_the_screen_can_do(deck: Opens) -> None:
    from specdeck.console.palette import Palette

    async with run_split(deck()) as (pilot, _):
        names = {command.name for command in Palette(pilot.app.screen).commands()}
        assert "Check: Ask both arms and stop at the first difference" in names
        assert not any(name.startswith("Speculation:") for name in names)


@pytest.mark.parametrize(
    ("facts", "why"), [({"k": 0}, "its k is 0"), ({"mode": "target-only"}, "it runs target-only")]
)
async def test_arms_of_which_neither_drafts_are_said_to_be_one(
    deck: Opens, facts: dict[str, Any], why: str
) -> None:
    async with run_split(deck(), (120, 40)) as (pilot, screen):
        await settle(pilot)
        assert "compared with itself" not in words(screen)
        assert screen.split.arms is not None
        ours, theirs = screen.split.arms
        screen.split.arms = replace(ours, facts=replace(ours.facts, **facts)), theirs
        for running in (False, True):
            screen.split.running = running
            screen.show()
            said = f"the engine drafts nothing ({why}): the target is compared with itself"
            assert said in words(screen)


async def test_the_price_of_pinned_requests_is_said_before_anything_is_asked(deck: Opens) -> None:
    price = "a pinned request takes others off the full CUDA graphs"
    async with run_split(deck(CompletionEngine(price=price)), (120, 40)) as (pilot, screen):
        await settle(pilot)
        assert price in words(screen)
    async with run_split(deck(), (120, 40)) as (pilot, screen):
        await settle(pilot)
        assert "costs" not in words(screen)


async def test_a_large_file_holds_no_key_up(deck: Opens) -> None:
    """A file of 1.5 million lines was read on the thread that draws, for five seconds."""
    one = deck()
    path = one.folder / "large.txt"
    path.write_text("".join(f"write poem {n}\n" for n in range(BROWSED + 5)))
    async with run_split(one) as (pilot, _):
        await type_path(pilot, path)
        picker = pilot.app.screen
        assert isinstance(picker, PromptPicker)
        await until(pilot, lambda: picker.source == str(path))
        sets: Any = picker.query_one("#sets")
        assert "the first 20,000 prompts" in sets.row.right[0].text


async def test_arrows_through_a_large_file_hold_no_key_up(deck: Opens) -> None:
    """The file was searched on the thread that draws, for as long as it takes to read it."""
    one = deck()
    path = one.folder / "large.txt"
    path.write_text("".join(f"write poem {n}\n" for n in range(1, BROWSED + 1)))
    one.bench.session.source = str(path)
    async with run_split(one) as (pilot, screen):
        await until(pilot, lambda: screen.session.prompt)
        screen.action_next(-1)
        screen.action_next(-1)
        assert screen.session.prompt is not None
        assert screen.session.prompt.number == 1
        await until(pilot, lambda: screen.session.prompt != parse_prompt("write poem 1"))
        assert screen.session.prompt.body == {"prompt": f"write poem {BROWSED - 1}"}
        screen.action_next(1)
        path.unlink()
        await until(pilot, lambda: screen.split.problem)
        assert screen.session.prompt.number == BROWSED - 1


async def test_a_prompt_that_is_chosen_outlives_one_that_is_looked_for(deck: Opens) -> None:
    one = deck()
    path = one.folder / "large.txt"
    path.write_text("write a poem\n" * BROWSED)
    one.bench.session.source = str(path)
    async with run_split(one) as (pilot, screen):
        await until(pilot, lambda: screen.session.prompt)
        screen.action_next(-1)
        screen.choose(parse_prompt("mine"), typed=True)
        await screen.workers.wait_for_complete(
            [worker for worker in screen.workers if worker.group == "seek"]
        )
        assert screen.session.prompt == parse_prompt("mine")


async def test_a_file_that_takes_too_long_is_left(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_text("\n" * 300_000)
    with pytest.raises(ConfigError, match="too large to be read here"):
        await load_aside(str(path), most_s=0.0)
    loading = asyncio.create_task(load_aside(str(path)))
    await asyncio.sleep(0)
    assert not loading.done()
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert (await load_aside("code")).count == load_prompts("code").count


@pytest.mark.parametrize(
    ("typed", "share"),
    [("1.5%", 0.015), ("0.015", 0.015), ("50%", 0.5), ("0.5", None), ("0.05", None), ("0", None)],
)
def test_a_share_that_may_be_meant_in_percent_is_asked_for_again(
    typed: str, share: float | None
) -> None:
    texts = option_texts(CheckOptions()) | {"threshold": typed}
    if share is not None:
        assert parse_options(texts, CheckOptions()).threshold == share
        return
    with pytest.raises(UsageError, match="may differ: "):
        parse_options(texts, CheckOptions())
