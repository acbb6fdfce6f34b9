"""The controller without a terminal: one request at a time, one word to listeners a reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from specdeck.console.state.controller import Controller
from specdeck.console.state.pending import Want

if TYPE_CHECKING:
    from tests.console.conftest import Kit
    from tests.support.listed_engine import ListedEngine


@dataclass
class Tasks:
    """Starts work as a console does, and ends it with the test."""

    begun: list[asyncio.Task[None]] = field(default_factory=list)

    def __call__(self, work: Coroutine[Any, Any, None], group: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.begun.append(task)
        return task

    async def rest(self) -> None:
        """Let everything go as far as it can without time passing."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def end(self) -> None:
        for task in self.begun:
            task.cancel()
        await asyncio.gather(*self.begun, return_exceptions=True)


Steered = Callable[..., Controller]


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    found = Tasks()
    yield found
    await found.end()


@pytest.fixture
def steered(kit: type[Kit], tasks: Tasks) -> Steered:
    """A controller whose clock stands still, already following."""

    def make(*engines: ListedEngine, **settings: Any) -> Controller:
        controller = Controller(
            engines, spawn=tasks, who="ann", clock=lambda: kit.start + 60, **settings
        )
        controller.start()
        return controller

    return make


def said(controller: Controller) -> list[str]:
    return [event.text for event in controller.track.events]


async def test_listeners_are_told_once_a_reading(
    kit: type[Kit], tasks: Tasks, steered: Steered
) -> None:
    theirs = replace(kit.state, k=3, k_set=3, version=2, breaker="open", alarm="too good")
    engine, told = kit.engine([]), 0
    controller = steered(engine)

    def count() -> None:
        nonlocal told
        told += 1

    leave = controller.subscribe(count)
    for n, state in enumerate((kit.state, kit.state, theirs)):
        engine.more.put_nowait(kit.reading(n, state))
        await tasks.rest()
        assert told == n + 1
    assert len(said(controller)) == 2  # breaker and alarm
    leave()
    engine.more.put_nowait(kit.reading(3))
    await tasks.rest()
    assert told == 3


async def test_one_request_at_a_time_and_the_last_wish_wins(
    kit: type[Kit], tasks: Tasks, steered: Steered
) -> None:
    engine = kit.engine(kit.run(3))
    engine.answer.clear()
    controller = steered(engine)
    await tasks.rest()
    for k in (4, 3, 2):
        controller.wish(Want(k=k))
        await tasks.rest()
    assert [change.k for change in engine.asked] == [4]
    assert controller.track.k_wanted == 2
    engine.answer.set()
    await tasks.rest()
    assert [(change.k, change.expect_version) for change in engine.asked] == [(4, 1), (2, 2)]
    assert controller.is_idle


async def test_an_engine_that_is_asked_does_not_keep_another_from_being_asked(
    kit: type[Kit], tasks: Tasks, steered: Steered
) -> None:
    first, second = kit.engine(kit.run(3)), kit.engine(kit.run(3), name="b", url="http://b")
    first.answer.clear()
    controller = steered(first, second)
    await tasks.rest()
    controller.change_k(-1)
    controller.select(1)
    controller.change_k(-2)
    await tasks.rest()
    assert [change.k for change in second.asked] == [3]
    assert controller.tracks[0].want == Want(k=4)
    assert controller.tracks[1].want is None
    controller.select(2)  # counted around
    assert controller.selected == 0


@asynccontextmanager
async def sweeping(
    kit: type[Kit], tasks: Tasks, steered: Steered
) -> AsyncIterator[tuple[Controller, asyncio.Event]]:
    """A sweep that waits for traffic; the event lets a cancelled one come to its end."""
    ended = asyncio.Event()

    @dataclass
    class Client:
        """Answers nothing, and takes its time to give up."""

        async def state(self) -> object:
            try:
                await asyncio.Event().wait()
            finally:
                await ended.wait()
            return None

    engine = kit.engine(kit.run(3))
    engine.client = Client()  # type: ignore[attr-defined]  # what an attached engine has beside
    controller = steered(engine)
    await tasks.rest()
    assert controller.toggle_sweep()
    await tasks.rest()
    assert controller.track.is_sweeping
    yield controller, ended


async def test_a_third_press_does_not_end_what_gives_k_back(
    kit: type[Kit], tasks: Tasks, steered: Steered
) -> None:
    async with sweeping(kit, tasks, steered) as (controller, ended):
        for _ in range(2):
            controller.toggle_sweep()
            await tasks.rest()
        assert controller.track.is_sweeping  # a second cancellation would have ended it
        ended.set()
        await tasks.rest()
        assert said(controller)[-1] == "sweep stopped: by hand"
        assert not controller.track.is_sweeping


async def test_a_sweep_that_is_stopped_before_it_began_asks_nothing(
    kit: type[Kit], tasks: Tasks, steered: Steered
) -> None:
    engine = kit.engine(kit.run(3))
    engine.client = object()  # type: ignore[attr-defined]  # nothing is asked of it
    controller = steered(engine)
    await tasks.rest()
    controller.toggle_sweep()
    controller.toggle_sweep()
    await tasks.rest()
    assert not controller.track.is_sweeping
    assert said(controller) == []
