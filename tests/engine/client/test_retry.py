"""A question that is repeated, on a clock that nobody waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from specdeck.engine.client.retry import Retry, TryAgain, WaitingForEngine
from specdeck.engine.errors import Conflict, EngineError, SpecdeckError, Stalled, Unreachable

AWAY = Unreachable("no answer")


class Clock:
    """Nobody waits for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.notices: list[WaitingForEngine] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def retry(self, seconds: float = 60.0, *, longest_pause_s: float = 10.0) -> Retry:
        return Retry(
            seconds, on_notice=self.notices.append, longest_pause_s=longest_pause_s,
            clock=lambda: self.now, sleep=self.sleep,
        )  # fmt: skip

    def failing(self, error: Exception, until: float) -> Callable[[], Awaitable[str]]:
        """A question that fails with `error` up to the time `until`."""

        async def ask() -> str:
            if self.now < until:
                raise error
            return "here"

        return ask


async def test_an_engine_that_comes_back_is_asked_with_pauses_that_grow() -> None:
    clock = Clock()
    assert await clock.retry().answer(clock.failing(AWAY, 20.0)) == "here"
    assert clock.pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0]


async def test_the_error_is_raised_before_the_time_is_exceeded() -> None:
    clock = Clock()
    with pytest.raises(Unreachable, match="no answer"):
        await clock.retry(30.0).answer(clock.failing(AWAY, 1e9))
    assert 20.0 < clock.now <= 30.0


async def test_no_time_asks_once() -> None:
    clock = Clock()
    with pytest.raises(Unreachable):
        await clock.retry(0.0).answer(clock.failing(AWAY, 1e9))
    assert (clock.pauses, clock.notices) == ([], [])


async def test_a_deadline_takes_the_place_of_the_time() -> None:
    clock = Clock()
    clock.now = 100.0
    with pytest.raises(Unreachable):
        await clock.retry(60.0, longest_pause_s=0.25).answer(clock.failing(AWAY, 1e9), until=108.0)
    assert clock.now == pytest.approx(108.0)
    assert set(clock.pauses) == {0.25}


async def test_other_errors_are_raised_at_once() -> None:
    clock = Clock()
    for error in (Conflict("another version"), EngineError("out of order")):
        with pytest.raises(type(error)):
            await clock.retry().answer(clock.failing(error, 1e9))
    with pytest.raises(Unreachable):
        await clock.retry().answer(clock.failing(AWAY, 1e9), errors=Stalled)
    assert clock.pauses == []
    assert await clock.retry().answer(
        clock.failing(SpecdeckError("odd"), 1.0), errors=SpecdeckError
    )


async def test_the_server_s_own_figure_is_the_pause() -> None:
    clock = Clock()
    busy = TryAgain(Unreachable("busy"), wait_s=7.0)
    await clock.retry().answer(clock.failing(busy, 10.0))
    assert clock.pauses == [7.0, 7.0]


async def test_an_accident_is_believed_twice() -> None:
    clock = Clock()
    broken = TryAgain(Unreachable("answers 500"), accident=True)
    with pytest.raises(Unreachable, match="answers 500"):
        await clock.retry().answer(clock.failing(broken, 1e9))
    assert len(clock.pauses) == 2


async def test_one_notice_speaks_for_all_that_wait() -> None:
    clock = Clock()
    retry = clock.retry(120.0)
    await retry.answer(clock.failing(AWAY, 10.0))
    await retry.answer(clock.failing(AWAY, 25.0))
    assert [round(waiting.seconds, 2) for waiting in clock.notices] == [3.75]
    assert clock.notices[0].line() == "no answer: waiting for it up to 120 s"
    await retry.answer(clock.failing(AWAY, 60.0))
    assert len(clock.notices) == 2


async def test_a_short_wait_is_not_told() -> None:
    clock = Clock()
    await clock.retry().answer(clock.failing(AWAY, 1.0))
    assert clock.notices == []
