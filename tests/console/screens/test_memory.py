"""What stays of screens that are gone: objects are counted, not bytes."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.pilot import settle
from tests.support.tuned_engine import ABLE, TunedClient, TunedEngine, tuning
from textual.strip import Strip

if TYPE_CHECKING:
    from tests.console.conftest import Kit, MakeConsole

HEIGHT = 40
"""Lines of a screen."""
TIMES = 4


def count_strips() -> int:
    """Drawn lines that anything holds on to."""
    gc.collect()
    # By its type: isinstance would ask objects of other libraries what class they are.
    return sum(type(one) is Strip for one in gc.get_objects())


@pytest.mark.parametrize("keys", ["u", "d", "f", "question_mark", "p"])
async def test_nothing_drawn_is_left_of_screens_that_are_gone(
    kit: type[Kit], console: MakeConsole, keys: str
) -> None:
    client = TunedClient(tuning())
    client.states = [replace(kit.state, capabilities=ABLE)]
    app = console(TunedEngine(kit.run(40, client.states[0]), client))
    async with app.run_test(size=(120, HEIGHT)) as pilot:
        counts = []
        for _ in range(2):
            for _ in range(TIMES):
                await settle(pilot)
                await pilot.press(keys)
                await settle(pilot)
                await pilot.press("escape")
            await settle(pilot)
            counts.append(count_strips())
    assert counts[1] - counts[0] < TIMES * HEIGHT / 4
