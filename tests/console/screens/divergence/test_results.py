"""Batch checks and replays on their screen."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.completion_engine import STEP, CompletionEngine, Fault
from tests.support.little_memory import limit_memory
from tests.support.pilot import settle, until

from specdeck.console.screens.copy import CopyDialog
from specdeck.console.screens.divergence import prompt_file
from specdeck.console.screens.divergence.results import ResultsScreen
from specdeck.console.screens.divergence.results_view import progress_row
from specdeck.console.screens.divergence.screen import DivergenceScreen
from specdeck.engine.divergence import statistics
from specdeck.engine.divergence.prompts import Prompt, PromptSet, find_prompt_aside, load_prompts
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.files import open_file
from specdeck.engine.operations.check import CheckEvent, CheckOptions

if TYPE_CHECKING:
    from tests.console.screens.divergence.conftest import Deck, Opens
    from textual.pilot import Pilot

SET = tuple(load_prompts("code", 12))
WISHES = CheckOptions(max_tokens=24, replays=6, prompts=12)


def made(deck: Opens, *, pause: float = 0.0, **faults: Any) -> Deck:
    """Prompts by number, as `p3`, with their faults; `pause` in seconds before each answer."""
    found = {SET[int(name[1:]) - 1].body["prompt"]: fault for name, fault in faults.items()}
    one = deck(CompletionEngine(faults=found, pause=pause))
    one.bench.session.options = WISHES
    return one


@asynccontextmanager
async def run_check(one: Deck, key: str) -> AsyncIterator[tuple[Pilot[str], ResultsScreen]]:
    """The console with the results that `key` of the split screen brings."""
    async with one.app.run_test() as pilot:
        yield pilot, await show_results(pilot, key)


async def show_results(pilot: Pilot[str], key: str) -> ResultsScreen:
    """The results that `key` of the split screen brings."""
    await pilot.press("d", key)
    await until(pilot, lambda: isinstance(pilot.app.screen, ResultsScreen))
    screen = pilot.app.screen
    assert isinstance(screen, ResultsScreen)
    return screen


async def leave(pilot: Pilot[str]) -> str:
    """Leaves the results; what the split screen says of them."""
    await pilot.press("escape")
    below = pilot.app.screen
    assert isinstance(below, DivergenceScreen)
    assert below.split.note is not None
    return below.split.note[1]


def figures(screen: ResultsScreen) -> str:
    rows: Any = screen.query_one("#figures")
    return "\n".join("".join(cell.text for cell in row.left) for row in rows.rows)


@pytest.mark.parametrize("key", ["r", "enter"])
async def test_what_a_verdict_needs_is_loaded_beside_the_keys(
    deck: Opens, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    loading: list[threading.Thread] = []
    monkeypatch.setattr(statistics, "load", lambda: loading.append(threading.current_thread()))
    async with made(deck).app.run_test() as pilot:
        await pilot.press("d", key)
        await until(pilot, lambda: loading)
        await settle(pilot)
    assert threading.main_thread() not in loading


async def test_replays_count_what_differs_with_their_floor(deck: Opens) -> None:
    one = made(deck, p1=Fault(9, 3.2))
    async with run_check(one, "r") as (pilot, screen):
        await until(pilot, lambda: screen.case)
        text = figures(screen)
        assert "6 of 6 differ" in text
        assert "material 6" in text
        assert "token 9 ×6" in text
        assert "reference 0 of 6 against itself" in text
        with one.bench.open_checks() as checks:
            assert checks.history() == ()


async def test_a_batch_has_verdict_interval_and_history(deck: Opens) -> None:
    one = made(deck, p2=Fault(9, 3.2), p5=Fault(4, STEP))
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.case)
        text = figures(screen)
        assert "fail: 1 material difference" in text
        assert "83.33%  95% in" in text
        assert "near tie 1 · material 1" in text
        assert "the first run" in text
        assert len(screen.runs) == 1
        await pilot.press("tab", "tab")
        rows: Any = screen.query_one("#runs")
        assert "16.67%" in "".join(cell.text for cell in rows.rows[1].left)


async def test_a_check_under_way_shows_rate_floors_and_classes(deck: Opens) -> None:
    one = made(deck, pause=0.01, p1=Fault(9, 3.2), p2=Fault(4, STEP))
    one.bench.session.options = CheckOptions(max_tokens=24, prompts=300, streams=1)
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.figures is not None and screen.figures.differ.of)
        text = figures(screen)
        assert re.search(r"so far +2 of \d+ differ, [\d.]+% \(95% [\d.]+% to [\d.]+%\)", text)
        assert re.search(r"repeat 0.00% of \d+ · batch – · shape 0.00%", text)
        assert "near tie 1 · material 1" in text
        assert "verdict      comes at the end" in text
        await pilot.press("x")
        await until(pilot, lambda: not screen.running)
        assert "differ, " in figures(screen)
        assert "comes at the end" not in figures(screen)


async def test_a_case_opens_side_by_side_with_what_the_check_saw(deck: Opens) -> None:
    one = made(deck, p2=Fault(9, 3.2), p5=Fault(4, STEP))
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.case)
        await pilot.press("tab", "down", "enter")
        split = pilot.app.screen
        assert isinstance(split, DivergenceScreen)
        await until(pilot, lambda: split.split.verdict)
        assert split.session.prompt is not None
        assert split.session.prompt.number == 5
        assert split.split.recorded is not None
        assert "token 4" in split.split.recorded


@pytest.fixture
async def large(
    deck: Opens, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Pilot[str], ResultsScreen, list[threading.Thread]]]:
    """The results of a large file of prompts of which one differs, and the threads that read it."""
    one = made(deck, p5=Fault(4, STEP))
    path = one.folder / "large.jsonl"
    lines = [json.dumps(prompt.body) for prompt in SET] + ['"write a poem"'] * 40_000
    path.write_text("\n".join(lines))
    one.bench.session.source = str(path)
    reading: list[threading.Thread] = []

    def open_noted(path: Path) -> io.BufferedReader:
        reading.append(threading.current_thread())
        return open_file(path)

    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.case)
        monkeypatch.setattr("specdeck.engine.divergence.prompts.open_file", open_noted)
        yield pilot, screen, reading
    assert reading
    assert threading.main_thread() not in reading


Large = tuple["Pilot[str]", ResultsScreen, list[threading.Thread]]


async def test_a_case_of_a_large_file_is_opened_beside_the_keys(large: Large) -> None:
    """The file was searched on the thread that draws: of 500 MB, for ten seconds and more."""
    pilot, _, _ = large
    await pilot.press("tab", "enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, DivergenceScreen))
    split = pilot.app.screen
    assert isinstance(split, DivergenceScreen)
    await until(pilot, lambda: split.session.prompt)
    assert split.session.prompt is not None
    assert split.session.prompt.number == 5


async def test_a_case_of_a_large_file_is_written_beside_the_keys(large: Large) -> None:
    pilot, screen, _ = large
    await pilot.press("w")
    await until(pilot, lambda: "specdeck-case-" in str(screen.note))


async def test_a_case_of_a_large_file_is_copied_beside_the_keys(large: Large) -> None:
    pilot, screen, _ = large
    await pilot.press("C")
    await until(pilot, lambda: isinstance(pilot.app.screen, CopyDialog))
    dialog = pilot.app.screen
    assert isinstance(dialog, CopyDialog)
    assert [one.label for one in dialog.copies if "curl" in one.label]
    assert screen.note is None


async def test_a_search_says_what_it_looks_for_and_ends_where_one_leaves(
    large: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilot, screen, _ = large
    found = asyncio.Event()

    async def find_later(prompts: PromptSet, number: int) -> Prompt | None:
        await found.wait()
        return await find_prompt_aside(prompts, number)

    monkeypatch.setattr(prompt_file, "find_prompt_aside", find_later)
    await pilot.press("w")
    await until(pilot, lambda: screen.note == "looking for prompt 5 in large.jsonl")
    await pilot.press("tab", "enter")  # rather see it
    await pilot.press("question_mark")
    found.set()
    await until(pilot, lambda: screen.note is None)
    assert not isinstance(pilot.app.screen, DivergenceScreen)
    await pilot.press("escape", "enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, DivergenceScreen))


async def test_what_was_stopped_goes_on_where_it_was(deck: Opens) -> None:
    one = made(deck, pause=0.01)
    one.bench.session.options = CheckOptions(max_tokens=24, prompts=200, streams=1)
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.progress is not None and screen.progress.done > 5)
        await pilot.press("x")
        await until(pilot, lambda: not screen.running)
        assert screen.progress is not None
        done = screen.progress.done
        assert screen.case is None
        seen: list[int] = []
        taken = screen._take

        def listened(event: CheckEvent) -> None:
            if isinstance(event, CheckProgress):
                seen.append(event.done)
            taken(event)

        screen._take = listened  # type: ignore[method-assign]  # a test listens in
        await pilot.press("b")
        await until(pilot, lambda: seen)
        assert done <= seen[0] < 200


async def test_escape_stops_a_check_and_says_what_is_kept(deck: Opens) -> None:
    one = made(deck, pause=0.01)
    one.bench.session.options = CheckOptions(max_tokens=24, prompts=300, streams=1)
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.progress is not None and screen.progress.done > 2)
        assert "kept: b goes on" in await leave(pilot)
        with one.bench.open_checks() as checks:
            assert checks.history() == ()


async def test_an_engine_that_dies_in_the_middle_is_one_line(deck: Opens) -> None:
    one = made(deck)
    one.serving.statuses = [401] * 5
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.problem)
        row: Any = screen.query_one("#problem")
        assert "key" in row.row.left[0].text
        assert not screen.running


async def test_without_memory_for_statistics_the_check_is_not_begun(
    deck: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_memory(monkeypatch)
    one = made(deck)
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.problem)
        assert screen.problem is not None
        assert "and the limit is 100 MB: raise `ulimit -v`" in screen.problem
        assert not screen.running


async def test_the_last_outcome_is_kept_for_the_session(deck: Opens) -> None:
    one = made(deck, p2=Fault(9, 3.2))
    async with run_check(one, "b") as (pilot, screen):
        await until(pilot, lambda: screen.case)
        await pilot.press("escape", "escape")
        again = await show_results(pilot, "v")
        assert "fail: 1 material" in figures(again)
        await pilot.press("w")
        (bundle,) = one.folder.glob("specdeck-case-*.md")
        assert "curl -s" in bundle.read_text()
        assert bundle.name in "".join(cell.text for cell in row_of(again).left)


def row_of(screen: ResultsScreen) -> Any:
    found: Any = screen.query_one("#problem")
    return found.row


async def test_another_screen_takes_the_place_of_both(deck: Opens) -> None:
    from specdeck.console.screens.fingerprint.screen import FingerprintScreen

    one = made(deck)
    async with run_check(one, "v") as (pilot, _):
        await pilot.press("f")
        await until(pilot, lambda: isinstance(pilot.app.screen, FingerprintScreen))
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, DivergenceScreen)


async def test_a_replay_that_is_opened_is_the_prompt_itself(deck: Opens) -> None:
    one = made(deck, p1=Fault(9, 3.2))
    async with run_check(one, "r") as (pilot, screen):
        await until(pilot, lambda: screen.case)
        await pilot.press("tab", "down", "down", "enter")
        split = pilot.app.screen
        assert isinstance(split, DivergenceScreen)
        await until(pilot, lambda: split.split.verdict)
        assert split.session.prompt == SET[0]


async def test_a_file_that_is_gone_is_one_line(deck: Opens) -> None:
    one = made(deck)
    path = one.folder / "mine.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    one.bench.session.source = str(path)
    async with one.app.run_test() as pilot:
        await pilot.press("d")
        screen = pilot.app.screen
        assert isinstance(screen, DivergenceScreen)
        path.unlink()
        await pilot.press("right")
        await until(pilot, lambda: screen.split.problem)
        assert "mine.jsonl" in str(screen.split.problem)
        await pilot.press("b")
        assert pilot.app.screen is screen


async def test_a_replay_that_is_left_is_forgotten(deck: Opens) -> None:
    one = made(deck)
    one.bench.session.options = CheckOptions(max_tokens=24, replays=500, streams=1)
    async with run_check(one, "r") as (pilot, screen):
        await until(pilot, lambda: screen.progress is not None and screen.progress.done > 1)
        assert "forgotten" in await leave(pilot)


async def test_a_replay_that_was_stopped_begins_again_and_says_so(deck: Opens) -> None:
    one = made(deck, pause=0.01)
    one.bench.session.options = CheckOptions(max_tokens=24, replays=500, streams=1)
    async with run_check(one, "r") as (pilot, screen):
        await until(pilot, lambda: screen.progress is not None and screen.progress.done > 1)
        await pilot.press("x")
        await until(pilot, lambda: not screen.running)
        row: Any = screen.query_one("#progress")
        assert "stopped; b begins again" in "".join(cell.text for cell in row.row.right)
        await pilot.press("b")
        assert pilot.app.screen is screen
        await until(pilot, lambda: screen.progress is not None and screen.running)
        assert screen.replay
        assert screen.progress is not None
        assert screen.progress.of == 500
        with one.bench.open_checks() as checks:
            assert checks.history() == ()


async def test_after_a_replay_comes_the_set(deck: Opens) -> None:
    one = made(deck)
    async with run_check(one, "r") as (pilot, screen):
        await until(pilot, lambda: screen.case)
        await pilot.press("b")
        await until(pilot, lambda: pilot.app.screen is not screen)
        await until(pilot, lambda: getattr(pilot.app.screen, "case", None))
        batch = pilot.app.screen
        assert isinstance(batch, ResultsScreen)
        assert not batch.replay


def test_the_row_of_progress_moves_before_a_prompt_is_compared() -> None:
    def row(progress: CheckProgress, *, running: bool) -> str:
        found = progress_row(
            progress, running=running, stopped=not running, what="check", key_label=lambda _: "b"
        )
        return "".join(cell.text for cell in (*found.left, *found.right))

    early = CheckProgress(0, 50, 0, 0, None, 720.0, None, 37, 250)
    assert "37 of 250 answers" in row(early, running=True)
    assert "12 min left" in row(early, running=True)
    assert "answers" not in row(early, running=False)
    late = CheckProgress(0, 50, 0, 0, None, None, None, 250, 250, "rechecking 3 answers")
    assert "rechecking 3 answers" in row(late, running=True)
    assert "rechecking" not in row(late, running=False)
