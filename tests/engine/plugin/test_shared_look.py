"""Looks at the engine core that readers share."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.engine_core import Clock

from specdeck.engine.plugin.shared_look import SharedLook


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
