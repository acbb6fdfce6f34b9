"""A sweep beside an engine without speculation: turns, refusals, what is told, what is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from tests.support.memory_audit import MemoryAudit
from tests.support.swept_engine import SweptEngine

from specdeck.engine.errors import (
    Conflict,
    EngineError,
    NoReply,
    NotAnEngine,
    SpecdeckError,
    UsageError,
)
from specdeck.engine.operations.hard_sweep import (
    HARD_LEASE_S,
    HardOutcome,
    HardSweep,
    HardVisitDone,
    Side,
)
from specdeck.engine.operations.sweep import Sweep, SweepRequest
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import AppliedChange, Change, EngineState
from specdeck.engine.store.audit import Action
from specdeck.engine.sweep.runner import VisitDone

URL, REFERENCE = "http://engine", "http://reference"
SOFT_COST = 0.2


class ToldEngine(SweptEngine):
    """A swept engine that keeps the parameters it is told."""

    def __init__(self, state: EngineState) -> None:
        super().__init__(state)
        self.told: dict[str, Any] = {}
        self.refuses: SpecdeckError | None = None

    async def put(self, change: Change) -> AppliedChange:
        if change.parameters:
            if self.refuses is not None:
                raise self.refuses
            self.told |= change.parameters
            was: dict[str, Any] = dict.fromkeys(change.parameters)
            return AppliedChange(was, dict(change.parameters), self.here.version, self.step)
        return await super().put(change)


class PlainEngine(SweptEngine):
    """Without speculation: faster than soft k = 0, by its own clock, which the other shares."""

    def _step(self, number: int, k: int) -> Step:
        seconds = 0.01 / (1 + SOFT_COST) * (1 + self._random.gauss(0, 0.05))
        return super()._step(number, 0)._replace(seconds=seconds)


@dataclass
class Setting:
    """Both engines, the load that is moved, and what was written down."""

    sweep: HardSweep
    serving: ToldEngine
    reference: PlainEngine
    entries: list[Action]
    driven: list[tuple[Side, int]]
    at: dict[str, Side | None] = field(default_factory=lambda: {"load": None})


Make = Callable[..., Setting]


@pytest.fixture
def make(state: Callable[..., EngineState]) -> Make:
    """A sweep over k = 0 and 3, 6 rounds."""

    def build(seconds: float = 16.0, **found: Any) -> Setting:
        serving = ToldEngine(state(running=0, waiting=0))
        reference = PlainEngine(state(running=0, waiting=0, k_max=0, method=None, **found))
        reference.here = replace(reference.here, k=0)
        serving.idle = reference.idle = True
        log, driven = MemoryAudit(), list[tuple[Side, int]]()
        at: dict[str, Side | None] = {"load": None}

        async def sleep(seconds: float) -> None:
            await serving.sleep(seconds)
            await reference.sleep(seconds)

        @asynccontextmanager
        async def drive(side: Side, number: int) -> AsyncIterator[None]:
            assert at["load"] is None  # one engine at a time
            at["load"] = side
            driven.append((side, number))
            engine = serving if side == "serving" else reference
            engine.idle = False
            try:
                yield
            finally:
                engine.idle, at["load"] = True, None

        request = SweepRequest("ann", (0, 3), seconds, 6, lease_s=HARD_LEASE_S)
        common: dict[str, Any] = {
            "url": URL, "name": "demo", "clock": serving.clock,
            "sleep": sleep, "wall": lambda: 1000.0,
        }  # fmt: skip
        swept = Sweep(serving, request, random=Random(1), record=log.add, **common)
        sweep = HardSweep(
            swept, serving, reference, drive=drive, reference_url=REFERENCE, random=Random(2),
            audit=log, **common,
        )  # fmt: skip
        return Setting(sweep, serving, reference, log.actions, driven, at)

    return build


async def finish(sweep: HardSweep) -> HardOutcome:
    """What it comes to at its end."""
    found = [event async for event in sweep.events()]
    assert isinstance(found[-1], HardOutcome)
    return found[-1]


async def test_what_soft_zero_costs_is_found_and_told_to_the_engine(make: Make) -> None:
    made = make()
    found = await finish(made.sweep)
    cost = found.comparison.soft_cost
    assert cost is not None
    assert cost.low < SOFT_COST < cost.high
    assert cost.high - cost.low < 0.05
    assert found.told == made.serving.told["baseline.soft_cost"] == round(cost.value, 4)
    assert found.comparison.best_k == 3
    over = found.comparison.over_hard
    assert over is not None
    assert over.low < 800 / (400 * (1 + SOFT_COST)) - 1 < over.high
    assert found.sweep.restored
    assert made.serving.ends is None
    last = made.entries[-1]
    assert last.after == {"baseline.soft_cost": found.told}
    assert last.undo == f"specdeck set {URL} baseline.soft_cost=none"


async def test_every_round_has_the_other_engine_once_and_not_always_at_one_place(
    make: Make,
) -> None:
    made = make()
    arms: list[str] = []
    async for event in made.sweep.events():
        if isinstance(event, VisitDone | HardVisitDone):
            arms.append("hard" if isinstance(event, HardVisitDone) else f"k={event.visit.k}")
            assert event.progress.done == len(arms)
            assert event.progress.of == 18
    rounds = [tuple(arms[i : i + 3]) for i in range(0, len(arms), 3)]
    assert all(sorted(each) == ["hard", "k=0", "k=3"] for each in rounds)
    assert len({each.index("hard") for each in rounds}) == 3
    assert made.at["load"] is None


async def test_no_k_is_the_best_before_another_is_known(make: Make) -> None:
    made, unknown = make(), []
    async for event in made.sweep.events():
        found = made.sweep.outcome
        if isinstance(event, VisitDone) and found is not None:
            best = found.sweep.analysis.optimum
            if best is not None and best.unknown:
                unknown.append(found.comparison)
    assert [(one.best_k, one.over_hard) for one in unknown] == [(None, None)]


async def test_both_engines_are_sent_the_same_load(make: Make) -> None:
    made = make()
    await finish(made.sweep)
    sides: dict[Side, list[int]] = {"serving": [], "reference": []}
    for side, number in made.driven:
        sides[side].append(number)
    assert sides["reference"] == list(range(len(sides["reference"])))
    assert sides["serving"] == list(range(len(sides["serving"])))


async def test_an_engine_that_serves_others_is_not_compared(make: Make) -> None:
    made = make()
    made.serving.found = {"running": 3, "waiting": 1}
    with pytest.raises(Conflict, match=f"4 requests are in {URL}"):
        await finish(made.sweep)
    assert made.driven == []
    assert made.serving.changes == []


async def test_an_engine_that_speculates_shows_nothing_of_no_speculation(make: Make) -> None:
    made = make()
    made.reference.found = {"k_max": 5}
    with pytest.raises(UsageError, match="speculates"):
        await finish(made.sweep)
    assert made.serving.changes == []


@pytest.mark.parametrize("kind", [VisitDone, HardVisitDone])
async def test_a_sweep_that_is_cancelled_leaves_nothing(
    make: Make, kind: type[VisitDone | HardVisitDone]
) -> None:
    made = make()
    reached = asyncio.Event()

    async def follow() -> None:
        async with aclosing(made.sweep.events()) as events:
            async for event in events:
                if isinstance(event, kind) and event.progress.done >= 4:
                    reached.set()

    running = asyncio.create_task(follow())
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert made.at["load"] is None
    assert (made.serving.here.k_set, made.serving.ends) == (5, None)
    assert made.serving.told == {}
    found = made.sweep.outcome
    assert found is not None
    assert found.sweep.interrupted
    assert found.told is None


async def test_a_sweep_that_is_cut_short_at_telling_says_that_the_engine_may_know(
    make: Make,
) -> None:
    made = make()
    put, telling = made.serving.put, asyncio.Event()

    async def hang(change: Change) -> AppliedChange:
        if change.parameters:
            telling.set()
            await asyncio.Event().wait()
        return await put(change)

    made.serving.put = hang  # type: ignore[method-assign]  # it does not answer

    async def follow() -> None:
        async for _ in made.sweep.events():
            pass

    running = asyncio.create_task(follow())
    await telling.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    found = made.sweep.outcome
    assert found is not None
    assert found.told is None
    assert "the engine may have been told baseline.soft_cost=" in found.notices[-1]


async def test_a_sweep_that_is_closed_leaves_nothing(make: Make) -> None:
    made = make()
    async with aclosing(made.sweep.events()) as events:
        async for event in events:
            if isinstance(event, HardVisitDone):
                break
    assert made.at["load"] is None
    assert (made.serving.here.k_set, made.serving.ends) == (5, None)
    assert made.serving.told == {}


async def test_an_engine_without_the_parameter_is_swept_all_the_same(make: Make) -> None:
    made = make()
    made.serving.refuses = UsageError("no parameter 'baseline.soft_cost'")
    found = await finish(made.sweep)
    assert found.told is None
    assert found.comparison.known_cost is not None
    assert "was not told" in found.notices[0]
    assert found.as_json()["hard"]["told"] is None


@pytest.mark.parametrize("fails", [NoReply("closed"), NotAnEngine("strange"), None])
async def test_a_cost_that_the_engine_may_have_been_told_is_in_the_audit_log(
    make: Make, fails: EngineError | None
) -> None:
    made = make()
    put = made.serving.put

    async def put_and_fail(change: Change) -> AppliedChange:
        applied = await put(change)
        if change.parameters is None:
            return applied
        raise asyncio.CancelledError if fails is None else fails

    made.serving.put = put_and_fail  # type: ignore[method-assign]
    with suppress(asyncio.CancelledError):
        found = await finish(made.sweep)
        assert "may not have been told" in found.notices[0]
    told = made.serving.told["baseline.soft_cost"]
    (entry,) = [one for one in made.entries if "baseline.soft_cost" in one.after]
    assert (entry.after, entry.outcome) == ({"baseline.soft_cost": told}, "unknown")


async def test_an_engine_that_answers_nobody_ends_it(make: Make) -> None:
    made = make()

    async def never(since: int) -> tuple[Step, ...]:
        return ()

    made.reference.steps = never  # type: ignore[method-assign]  # it takes none
    with pytest.raises(EngineError, match=f"{REFERENCE} generated next to nothing"):
        await finish(made.sweep)
    assert made.at["load"] is None
    assert (made.serving.here.k_set, made.serving.ends) == (5, None)


async def test_what_stops_the_sweep_is_in_its_outcome(make: Make) -> None:
    made = make()

    def steer() -> None:
        if made.serving.here.k_set == 3:
            made.serving.turned(2, "bob", "by hand")

    made.serving.meanwhile = steer
    async for _ in made.sweep.events():
        pass
    found = made.sweep.outcome
    assert found is not None
    assert isinstance(found.sweep.error, Conflict)
    assert made.serving.told == {}
    assert made.at["load"] is None


async def test_other_traffic_that_was_measured_is_named(make: Make) -> None:
    made = make()
    steps = made.serving.steps

    async def crowded(since: int) -> tuple[Step, ...]:
        return tuple(step._replace(requests=9) for step in await steps(since))

    made.serving.steps = crowded  # type: ignore[method-assign]  # somebody else's as well
    found = await finish(made.sweep)
    assert any("other traffic was measured too" in notice for notice in found.notices)
