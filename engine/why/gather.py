"""Asks a live engine for what is needed to tell why, over a stretch of time.

Cohorts are cumulative: what happened meanwhile is the difference of the first look and the last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from specdeck.engine.errors import SpecdeckError, Stalled, Unsupported
from specdeck.engine.metrics.page import read_page
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import Window, between
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.cohorts import Cohorts
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.protocol.requests import RequestLine
from specdeck.engine.protocol.tuning import Tuning
from specdeck.engine.text import oneline
from specdeck.engine.why.cpu_wait import CpuWait, read_waits
from specdeck.engine.why.evidence import (
    Baseline,
    CohortSpan,
    DraftFacts,
    Evidence,
    join_spans,
    read_draft_facts,
    read_spread,
    refuse_strange,
    span_between,
    span_since_start,
)

if TYPE_CHECKING:
    from specdeck.engine.client.engine_client import EngineClient

LOOK_S = 30.0
"""How long a look takes unless told otherwise."""
_BETWEEN_LOOKS_S = 2.0
_LATE_S = 30.0
"""For which an engine core may be late: one is for seconds on a machine that is busy."""
_PIECES = 12
"""That a look is cut into, to see what moved."""
_LIFE = 200
"""Finished requests before the look that make a baseline of it."""
_MOST_LINES = 4096

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a look is."""

    seconds: float
    of: float
    requests: int
    """That finished meanwhile."""


@dataclass(frozen=True, slots=True)
class _Look:
    cohorts: Cohorts
    sample: Sample | None


async def gather(
    client: EngineClient,
    *,
    seconds: float = LOOK_S,
    baseline: Baseline | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncGenerator[Progress | Evidence, None]:
    """How far it is, again and again, and at last what was seen.

    An engine core that is late is asked again for `_LATE_S`. Raises Unsupported where the engine
    tells no cohorts, and EngineError where it cannot be asked.
    """
    watch = _Watch(client, clock=clock, wall=wall)
    await watch.begin()
    began = clock()
    yield Progress(0.0, seconds, 0)
    late_since: float | None = None
    while (left := began + seconds - clock()) > 0 or late_since is not None:
        usual = min(left, max(_BETWEEN_LOOKS_S, seconds / _PIECES))
        await sleep(usual if late_since is None else _BETWEEN_LOOKS_S)
        asked_at = clock()
        try:
            await watch.look()
        except Stalled:
            late_since = asked_at if late_since is None else late_since
            if clock() - late_since >= _LATE_S:
                raise
        else:
            late_since = None
        yield Progress(min(seconds, clock() - began), seconds, watch.requests)
    yield await watch.end(baseline)


class _Watch:
    def __init__(
        self, client: EngineClient, *, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._client, self._clock, self._wall = client, clock, wall
        self._looks: list[_Look] = []
        self._lines: dict[tuple[int, int], RequestLine] = {}
        self._missing: dict[str, str] = {}

    @property
    def requests(self) -> int:
        """That finished since the first look."""
        span = self._span()
        return 0 if span is None else span.total.requests

    async def begin(self) -> None:
        """The first look; raises SpecdeckError where the engine cannot be asked."""
        self._looks = [await self._take()]

    async def look(self) -> None:
        """One more; an engine that was restarted meanwhile is looked at anew."""
        look = await self._take()
        if look.cohorts.instance != self._looks[-1].cohorts.instance:
            self._looks, self._lines = [], {}
        self._looks.append(look)

    async def end(self, baseline: Baseline | None) -> Evidence:
        """What was seen, with what is asked once."""
        client = self._client
        state = await self._try("state", client.state)
        tuning = await self._try("tuning", client.tuning)
        facts = await self._try("facts", client.facts)
        steps = await self._try("steps", self._fetch_steps)
        return make_evidence(
            client.url, [look.cohorts for look in self._looks], list(self._lines.values()),
            samples=(self._looks[0].sample, self._looks[-1].sample), state=state, tuning=tuning,
            facts=read_draft_facts(facts), steps=steps or (), baseline=baseline, t=self._wall(),
            waits=read_waits([look.sample for look in self._looks]),
            missing=tuple(sorted(self._missing.items())),
        )  # fmt: skip

    async def _fetch_steps(self) -> tuple[Step, ...]:
        return await self._client.steps(0)

    async def _take(self) -> _Look:
        cohorts = await self._client.cohorts()
        listed = await self._try("requests", self._client.requests)
        if listed is not None and len(self._lines) < _MOST_LINES:
            self._lines |= {(line.rank, line.number): line for line in listed.finished}
        return _Look(cohorts, await self._try("metrics", self._sample))

    async def _sample(self) -> Sample:
        return await read_page(await self._client.page(), t=self._wall(), at=self._clock())

    async def _try(self, name: str, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        """What `ask` brings; None where it brings an error, which is kept."""
        try:
            found = await ask()
        except SpecdeckError as error:
            self._missing[name] = oneline(error.line())[:300]
            return None
        self._missing.pop(name, None)
        return found

    def _span(self) -> CohortSpan | None:
        if len(self._looks) < 2:
            return None
        return span_between(self._looks[0].cohorts, self._looks[-1].cohorts)


def make_evidence(
    url: str,
    looks: Sequence[Cohorts],
    lines: Sequence[RequestLine],
    *,
    samples: tuple[Sample | None, Sample | None] = (None, None),
    state: EngineState | None = None,
    tuning: Tuning | None = None,
    facts: DraftFacts | None = None,
    steps: Sequence[Step] = (),
    baseline: Baseline | None = None,
    waits: Sequence[CpuWait] = (),
    t: float,
    missing: tuple[tuple[str, str], ...] = (),
) -> Evidence:
    """The evidence of several looks at one life of an engine; raises Unsupported of none.

    One look alone has the whole life judged.
    """
    if not looks:
        raise Unsupported("the engine tells no cohorts")
    for look in looks:
        refuse_strange(look)
    series = tuple(
        span for older, newer in pairwise(looks) if (span := span_between(older, newer)) is not None
    )
    started = looks[0].t if state is None else state.started
    life = span_since_start(looks[-1], started)
    is_life = len(looks) == 1
    span = life if is_life or not series else join_spans(series)
    earlier = span_since_start(looks[0], started)
    if baseline is None and not is_life and earlier.comparable().total.requests >= _LIFE:
        baseline = Baseline("life", earlier)
    window = None
    if samples[0] is not None and samples[1] is not None and samples[0].at < samples[1].at:
        window = between(samples[0], samples[1])
    pushed = [line for line in lines if line.preemptions]
    context = [max(0, line.prompt_tokens) + max(0, line.output_tokens) / 2 for line in pushed]
    return Evidence(
        url, t, span, _thin(series), None if is_life else earlier, read_spread(lines),
        tuple(steps),
        waits=tuple(waits), preemptions=_preemptions(window, life if is_life else None),
        preempted_context=sum(context) / len(context) if context else None,
        state=state, model=None if samples[1] is None else samples[1].model,
        tuning=tuning, facts=facts or DraftFacts(), baseline=baseline,
        since_start=is_life, missing=missing,
    )  # fmt: skip


def _preemptions(window: Window | None, life: CohortSpan | None) -> int | None:
    """Of the span that is judged; None where nobody counted."""
    if life is not None:
        return life.total.preemptions
    return None if window is None or window.preemptions is None else int(window.preemptions)


def _thin(series: tuple[CohortSpan, ...]) -> tuple[CohortSpan, ...]:
    """At most a dozen pieces: with fewer requests in each there is nothing to compare."""
    if len(series) <= _PIECES:
        return series
    size = -(-len(series) // _PIECES)
    return tuple(join_spans(series[at : at + size]) for at in range(0, len(series), size))


def with_baseline(evidence: Evidence, baseline: Baseline) -> Evidence:
    """The same, compared with another time."""
    return replace(evidence, baseline=baseline)
