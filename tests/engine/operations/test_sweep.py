"""A sweep as an operator asks for it: events, refusals, and entries in the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.support.swept_engine import SweptEngine

from specdeck.engine.errors import Conflict, SpecdeckError, Unsupported
from specdeck.engine.operations.sweep import Sweep, SweepEvent, SweepRequest
from specdeck.engine.protocol.messages import Capability, EngineState, Lease
from specdeck.engine.store.audit import Action
from specdeck.engine.sweep.analysis import SweepOutcome
from specdeck.engine.sweep.plan import Plan
from specdeck.engine.sweep.runner import VisitDone, Visiting, WaitingForTraffic

URL = "http://engine"
Make = Callable[..., tuple[Sweep, SweptEngine, list[Action]]]


@pytest.fixture
def make(state: Callable[..., EngineState]) -> Make:
    """A sweep over k = 0 to 3, the engine that it sweeps, and its entries in the audit log."""

    def build(
        record: Callable[[Action], object] | None = None, **found: Any
    ) -> tuple[Sweep, SweptEngine, list[Action]]:
        engine, entries = SweptEngine(state(**found)), list[Action]()
        sweep = Sweep(
            engine, SweepRequest("ann", (0, 1, 2, 3), 30.0, reason="sweep: nightly"), url=URL,
            name="demo", record=record or entries.append, random=Random(1),
            wall=lambda: 1000.0 + engine.now, clock=engine.clock, sleep=engine.sleep,
        )  # fmt: skip
        return sweep, engine, entries

    return build


async def run(sweep: Sweep) -> list[SweepEvent]:
    """All that it tells."""
    return [event async for event in sweep.events()]


async def test_the_events_tell_every_visit_and_end_with_the_outcome(make: Make) -> None:
    sweep, _, _ = make()
    first, waiting, *between, last = await run(sweep)
    assert isinstance(first, Plan)
    assert isinstance(waiting, WaitingForTraffic)
    assert isinstance(last, SweepOutcome)
    assert [type(event) for event in between] == [Visiting, VisitDone] * first.visits
    optimum = last.analysis.optimum
    assert optimum is not None
    assert (optimum.k, last.stopped, last.restored) == (3, None, True)


async def test_the_audit_log_has_the_sweep_before_its_first_change(make: Make) -> None:
    # Whoever asked for it: a sweep that is killed must be traceable.
    sweep, engine, entries = make()
    changes_at_entry: list[int] = []
    async for _ in sweep.events():
        if len(entries) == 1 and not changes_at_entry:
            changes_at_entry.append(len(engine.changes))
    first, last = entries
    assert changes_at_entry == [0]
    assert first.before == {"k": 5, "mode": "speculate", "policy": "fixed", "fallback": "warm"}
    assert (first.after, first.who, first.reason) == ({"k": "0,1,2,3"}, "ann", "sweep: nightly")
    assert first.undo.startswith(f"specdeck set {URL} k=5")
    assert (last.before, last.after) == (first.after, first.before)
    assert last.reason == "end of sweep: nightly: best k=3"


async def test_a_sweep_that_is_closed_gives_k_back_and_is_ended_in_the_audit_log(
    make: Make,
) -> None:
    sweep, engine, entries = make()
    async with aclosing(sweep.events()) as events:
        async for event in events:
            if isinstance(event, VisitDone) and event.progress.done == 3:
                break
    assert (engine.here.k_set, engine.ends) == (5, None)
    assert entries[-1].reason == "end of sweep: nightly: interrupted"
    assert sweep.outcome is not None
    assert (sweep.outcome.stopped, len(sweep.outcome.visits)) == ("interrupted", 3)


async def test_a_sweep_that_is_cancelled_does_the_same(make: Make) -> None:
    sweep, engine, entries = make()
    third = asyncio.Event()

    async def follow() -> None:
        async for event in sweep.events():
            if isinstance(event, VisitDone) and event.progress.done == 3:
                third.set()

    running = asyncio.create_task(follow())
    await third.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (engine.here.k_set, engine.ends) == (5, None)
    assert entries[-1].reason == "end of sweep: nightly: interrupted"
    assert sweep.outcome is not None
    assert sweep.outcome.interrupted


async def test_what_stops_a_sweep_is_in_its_outcome(make: Make) -> None:
    sweep, engine, entries = make()

    def restart() -> None:
        if engine.here.instance == "one" and engine.here.k_set == 2:
            engine.here, engine.ends = replace(engine.first, instance="two"), None

    engine.meanwhile = restart
    *_, last = await run(sweep)
    assert isinstance(last, SweepOutcome)
    assert last.stopped == "the engine was restarted during the sweep: sweep it again"
    assert entries[-1].reason == f"end of sweep: nightly: {last.stopped}"


async def test_without_traffic_the_audit_log_stays_empty(make: Make) -> None:
    sweep, engine, entries = make()
    engine.idle = True
    *_, last = await run(sweep)
    assert isinstance(last, SweepOutcome)
    assert last.stopped is not None
    assert "no traffic" in last.stopped
    assert (entries, engine.changes) == ([], [])


async def test_an_audit_log_that_cannot_be_written_stops_no_sweep(make: Make) -> None:
    def fail(action: Action) -> None:
        raise SpecdeckError("the disk is full")

    sweep, _, _ = make(record=fail)
    *_, last = await run(sweep)
    assert isinstance(last, SweepOutcome)
    assert last.complete
    assert last.notices == ("the audit log is not written: the disk is full",)


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        ({"lease": Lease(8.0, 5, "speculate")}, Conflict, "a change under a lease is in force"),
        ({"trial": "baseline"}, Conflict, "a trial is in force"),
        ({"k_max": 2}, Unsupported, "k=3 is above k_max=2"),
        ({"k_max": 0}, Unsupported, "does not speculate"),
        (
            {"capabilities": (Capability("live_k", False, "no speculation", "configure it"),)},
            Unsupported,
            "no speculation: configure it",
        ),
        ({"breaker": "open", "policy_reason": "2 of 9"}, Conflict, "breaker is open: 2 of 9"),
    ],
)
async def test_what_cannot_be_swept_is_refused_untouched(
    found: dict[str, Any], error: type[SpecdeckError], words: str, make: Make
) -> None:
    sweep, engine, entries = make()
    engine.found = found
    with pytest.raises(error) as refused:
        await run(sweep)
    assert words in refused.value.line()
    assert (engine.changes, entries, sweep.outcome) == ([], [], None)


async def test_a_policy_s_breaker_ends_with_the_policy_and_forbids_no_sweep(make: Make) -> None:
    sweep, _, _ = make(breaker="open", policy="goodput")
    await run(sweep)
    assert sweep.outcome is not None
    assert sweep.outcome.restored
