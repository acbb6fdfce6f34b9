"""The copy of the engine core's steps, from which every reader is answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.engine_core import good_step

from specdeck.engine.plugin.step_mirror import PAGE, REMEMBERED_STEPS, StepMirror
from specdeck.engine.policy.step import Step


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
