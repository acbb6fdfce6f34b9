"""An engine whose samples a test chooses, looked at as a live one is, and its black box."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from specdeck.engine.blackbox.box import BlackBox, open_box
from specdeck.engine.errors import EngineError, Unreachable
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.sample import Histogram, Sample
from specdeck.engine.metrics.scrape import Scraper
from specdeck.engine.protocol.messages import EngineState
from tests.support.readings import START, STATE, URL

BOUNDS = (0.005, 0.01, 0.1, math.inf)


class LiveEngine(Scraper):
    """A scraper that is given its samples and states in place of an engine that sends them."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), wall=lambda: self.t)
        self.t = START
        self._next: tuple[Sample | EngineError, EngineState | None] = (Unreachable("no"), None)

    async def look(
        self, t: float, sample: Sample | None, state: EngineState | None = STATE
    ) -> Reading:
        """The reading at Unix time `t`; without a sample the engine does not answer."""
        self.t = t
        self._next = (Unreachable(f"{URL} did not answer"), None)
        if sample is not None:
            self._next = (sample, state)
        return await self.read()

    async def _page(self) -> Sample | EngineError:
        return self._next[0]

    async def _state(self) -> EngineState | None:
        return self._next[1]


class _Nowhere:
    url = URL

    async def page(self) -> str:
        raise NotImplementedError

    async def state(self) -> EngineState:
        raise NotImplementedError


def busy_sample(
    n: int, *, t: float | None = None, start: float | None = START, **changes: Any
) -> Sample:
    """The sample of an engine that has been busy for `n` seconds, evenly."""
    found = Sample(
        t=START + n if t is None else t,
        at=float(n),
        model="demo-target",
        process_start=start,
        drafts=10.0 * n,
        drafted=50.0 * n,
        accepted=30.0 * n,
        accepted_per_position=tuple(float(n * (10 - 2 * i)) for i in range(5)),
        drafted_per_position=(10.0 * n,) * 5,
        generated=40.0 * n,
        prompt=400.0 * n,
        preemptions=0.0,
        running=4.0,
        waiting=0.0,
        kv_cache_usage=0.1 + (n % 7) / 100,
        ttft=Histogram(BOUNDS, (1.0 * n, 2.0 * n, 3.0 * n, 3.0 * n)),
        itl=Histogram(BOUNDS, (10.0 * n, 30.0 * n, 40.0 * n, 40.0 * n)),
    )
    return replace(found, **changes)


def look_at(looks: Iterable[tuple[Sample | None, EngineState | None]]) -> list[Reading]:
    """Looks at an engine, a second apart."""

    async def look() -> list[Reading]:
        live = LiveEngine()
        return [await live.look(START + n, *one) for n, one in enumerate(looks)]

    return asyncio.run(look())


def busy_readings(count: int) -> list[Reading]:
    """So many looks at an engine that is busy evenly."""
    return look_at(
        (
            busy_sample(n),
            replace(STATE, step=20 * n, drafts=10 * n, drafted_per_position=(10 * n,) * 5),
        )
        for n in range(count)
    )


def record(
    path: Path, readings: Iterable[Reading], *, url: str = URL, rows: int = 10, **more: Any
) -> BlackBox:
    """The black box at `path`, open, with these readings in it."""
    box = open_box(path, url, name="demo", rows=rows, **more)
    assert box is not None
    for one in readings:
        box.append(one)
    return box


def same_reading(one: Reading, other: Reading) -> bool:
    """Whether both say the same, errors by their kind and words."""

    def words(error: EngineError | None) -> object:
        return None if error is None else (type(error), str(error), error.remedy)

    return (
        replace(one, error=None, control_error=None)
        == replace(other, error=None, control_error=None)
        and words(one.error) == words(other.error)
        and words(one.control_error) == words(other.control_error)
        and repr(one.sample) == repr(other.sample)  # -0.0 equals 0.0, and is another number
        and repr(one.window) == repr(other.window)
    )
