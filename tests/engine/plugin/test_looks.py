"""Looks at the engine core that readers share, and the copy of its steps that they read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.engine_core import Clock, good_step

from specdeck.engine.plugin.looks import PAGE, REMEMBERED_STEPS, SharedLook, StepMirror
from specdeck.engine.policy.step import Step


class Core:
    """Answers with the number of the look, when it is let."""

    def __init__(self) -> None:
        self.looks = 0
        self.free = asyncio.Event()
        self.free.set()

    async def look(self) -> int:
        self.looks += 1
        number = self.looks
        await self.free.wait()
        return number


async def settle() -> None:
    """Has everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_those_who_ask_together_share_a_look() -> None:
    core = Core()
    look = SharedLook(core.look, gap_s=0)
    assert set(await asyncio.gather(*(look.take() for _ in range(100)))) == {1}
    assert await look.take() == 2


async def test_nobody_is_told_what_was_seen_before_they_asked() -> None:
    core = Core()
    look = SharedLook(core.look, gap_s=0)
    core.free.clear()
    first = asyncio.create_task(look.take())
    await settle()
    later = [asyncio.create_task(look.take()) for _ in range(50)]
    await settle()
    assert core.looks == 1
    core.free.set()
    assert await first == 1
    assert set(await asyncio.gather(*later)) == {2}


async def test_looks_begin_apart() -> None:
    core, clock, slept = Core(), Clock(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    look = SharedLook(core.look, gap_s=0.5, clock=clock, sleep=sleep)
    await look.take()
    clock.now += 0.125
    await look.take()
    clock.now += 9.0
    await look.take()
    assert slept == [0.375]


async def test_who_gives_up_does_so_alone() -> None:
    core = Core()
    core.free.clear()
    look = SharedLook(core.look, gap_s=0)
    impatient, patient = (asyncio.create_task(look.take()) for _ in range(2))
    await settle()
    impatient.cancel()
    await settle()
    core.free.set()
    assert await patient == 1
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_failure_is_told_and_the_next_look_is_taken() -> None:
    failures = [ValueError("gone")]

    async def look() -> str:
        if failures:
            raise failures.pop()
        return "there"

    shared = SharedLook(look, gap_s=0)
    with pytest.raises(ValueError, match="gone"):
        await shared.take()
    assert await shared.take() == "there"


class Ring:
    """An engine core's steps, and how many of them it told."""

    def __init__(self, count: int) -> None:
        self.steps = [good_step(number, 4) for number in range(1, count + 1)]
        self.told = 0

    async def fetch(self, since: int) -> Sequence[Sequence[Any]]:
        page = [step for step in self.steps if step.step > since][:PAGE]
        self.told += len(page)
        found: list[list[Any]] = json.loads(json.dumps(page))
        return found


def read(mirror: StepMirror, since: int) -> list[Step]:
    return [Step.from_json(step) for step in json.loads(mirror.body(since))["steps"]]


async def test_readers_are_told_what_the_core_told_once() -> None:
    ring = Ring(2 * PAGE + 3)
    mirror = StepMirror(ring.fetch)
    for since in (0, 0, 5, PAGE, 10**9):
        await mirror.catch_up()
        assert read(mirror, since) == ring.steps[since:]
    assert ring.told == len(ring.steps)
    ring.steps.append(good_step(len(ring.steps) + 5, 4))  # some steps have nothing to tell
    await mirror.catch_up()
    assert read(mirror, ring.steps[-2].step) == ring.steps[-1:]
    assert ring.told == len(ring.steps)


async def test_no_more_is_remembered_than_by_the_core() -> None:
    ring = Ring(REMEMBERED_STEPS + 10)
    mirror = StepMirror(ring.fetch)
    await mirror.catch_up()
    assert read(mirror, 0) == ring.steps[10:]


async def test_what_a_broken_off_look_has_fetched_is_not_told_again() -> None:
    ring, pages = Ring(2 * PAGE), 0

    async def fetch(since: int) -> Sequence[Sequence[Any]]:
        nonlocal pages
        pages += 1
        if pages == 2:
            raise TimeoutError
        return await ring.fetch(since)

    mirror = StepMirror(fetch)
    try:
        await mirror.catch_up()
    except TimeoutError:
        await mirror.catch_up()
    assert (read(mirror, 0), ring.told) == (ring.steps, 2 * PAGE)
