"""What the check's screens look like: run with --snapshot-update after looking at the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.completion_engine import STEP, CompletionEngine, Fault
from tests.support.pilot import settle

from specdeck.console.state.check import CheckResults
from specdeck.engine.divergence.prompts import load_prompts
from specdeck.engine.operations.check import CheckOptions

if TYPE_CHECKING:
    from tests.console.conftest import Kit, Until
    from tests.console.screens.divergence.conftest import Deck, Opens
    from textual.pilot import Pilot

Compare = Callable[..., bool]
SIZES = [(80, 24), (120, 40), (60, 20)]
SET = tuple(load_prompts("code", 40))


def made(deck: Opens) -> Deck:
    faults = {
        prompt.body["prompt"]: Fault(17, 3.2) if number == 0 else Fault(5, STEP)
        for number, prompt in enumerate(SET[::8])
    }
    one = deck(CompletionEngine(faults=faults))
    one.bench.session.options = CheckOptions(max_tokens=40, prompts=40, replays=6)
    return one


def screen(pilot: Pilot[str]) -> Any:
    return pilot.app.screen


@pytest.mark.parametrize("size", SIZES)
def test_a_material_difference(
    size: tuple[int, int], deck: Opens, snap_compare: Compare, until: Until
) -> None:
    async def play(pilot: Pilot[str]) -> None:
        await pilot.press("d", "enter")
        await until(pilot, lambda: screen(pilot).split.verdict)
        await settle(pilot)

    assert snap_compare(made(deck).app, terminal_size=size, run_before=play)


@pytest.mark.parametrize("size", SIZES)
def test_the_outcome_of_a_check(
    size: tuple[int, int],
    deck: Opens,
    kit: type[Kit],
    snap_compare: Compare,
    until: Until,
) -> None:
    one = made(deck)

    async def play(pilot: Pilot[str]) -> None:
        await pilot.press("d", "b")
        await until(pilot, lambda: screen(pilot).case)
        await settle(pilot)
        (url, found), *_ = one.bench.session.results.items()
        for arm in found.data["arms"].values():
            arm["tokens_per_second"] = 412.0  # the only figure that a clock made
        with one.bench.open_checks() as checks:
            (kept,) = checks.history()
            checks.finish(kept.id, kit.start, found.data)
        one.bench.session.results[url] = CheckResults(
            found.data, found.prompts, found.options, False, found.ended
        )
        await pilot.press("escape", "v", "tab", "down")
        await until(pilot, lambda: screen(pilot).case)
        await settle(pilot)

    assert snap_compare(one.app, terminal_size=size, run_before=play)


def test_choosing_a_prompt(deck: Opens, snap_compare: Compare) -> None:
    async def play(pilot: Pilot[str]) -> None:
        await pilot.press("d", "p", "down", "down")
        await settle(pilot)

    assert snap_compare(made(deck).app, terminal_size=(80, 24), run_before=play)


def test_an_engine_without_the_plugin(deck: Opens, snap_compare: Compare, until: Until) -> None:
    async def play(pilot: Pilot[str]) -> None:
        await pilot.press("d")
        await until(pilot, lambda: screen(pilot).split.problem)
        await settle(pilot)

    app = deck(CompletionEngine(pins=False)).app
    assert snap_compare(app, terminal_size=(80, 24), run_before=play)
