"""Keys in any order, answered late or at once: undo to the end leads back, and nothing stays."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from tests.console.state.test_controller import Tasks, never, said
from tests.support.listed_engine import ListedEngine
from tests.support.readings import START, reading, readings

from specdeck.console.state.controller import Controller
from specdeck.engine.protocol.messages import Change

PRESS: Mapping[str, Callable[[Controller], object]] = {
    "-": lambda controller: controller.change_k(-1),
    "+": lambda controller: controller.change_k(1),
    "3": lambda controller: controller.wish(Change(k=3)),
    "t": Controller.toggle_mode,
    "a": Controller.toggle_policy,
    "z": lambda controller: controller.undo(never),
}


def knobs(engine: ListedEngine) -> tuple[int, str, str]:
    return engine.state.k_set, engine.state.mode, engine.state.policy


async def answer(engine: ListedEngine, tasks: Tasks, n: int) -> None:
    """Lets the engine answer whatever it is asked, and a reading tell of it."""
    engine.answer.set()
    for _ in range(4):
        await tasks.rest()
    engine.more.put_nowait(reading(n, engine.state))
    await tasks.rest()


@pytest.mark.parametrize("seed", range(8))
async def test_undo_to_the_end_leads_back(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        tasks, engine, keys = Tasks(), ListedEngine(readings(3)), ""
        controller = Controller([engine], spawn=tasks, who="ann", clock=lambda: START + 60)
        controller.start()
        await tasks.rest()
        before = knobs(engine)
        for n in range(rng.randint(2, 7)):
            if rng.random() < 0.5:
                engine.answer.clear()
            else:
                keys += "|"  # all before it is answered
                await answer(engine, tasks, 10 + n)
            keys += (key := rng.choice("--+3ttazz"))
            PRESS[key](controller)
            await tasks.rest()
        await answer(engine, tasks, 20)
        track = controller.track
        assert (track.want, track.sent, track.unsent) == (None, None, ()), keys
        for n in range(10):
            PRESS["z"](controller)
            await answer(engine, tasks, 30 + n)
            if said(controller)[-1].startswith("nothing"):
                break
        assert knobs(engine) == before, keys
        await tasks.end()
