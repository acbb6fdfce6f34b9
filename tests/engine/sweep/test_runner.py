"""A sweep on an engine that is a few lines: what it turns, measures, and gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.support.swept_engine import SweptEngine

from specdeck.engine.errors import (
    Conflict,
    EngineError,
    NoReply,
    Stalled,
    Unauthorized,
    Unreachable,
)
from specdeck.engine.policy.step import Step
from specdeck.engine.protocol.messages import AppliedChange, Change, EngineState
from specdeck.engine.sweep.plan import LATE, Plan, plan
from specdeck.engine.sweep.runner import (
    PATIENCE_S,
    PAUSED,
    RESTORE_S,
    SweepRunner,
    SweepStep,
    VisitDone,
    WaitingForTraffic,
)

State = Callable[..., EngineState]
Make = Callable[..., tuple[SweepRunner, SweptEngine]]


@pytest.fixture
def make(state: State) -> Make:
    """A sweep over k = 0 to 3 and the engine that it sweeps."""

    def build(**changed: Any) -> tuple[SweepRunner, SweptEngine]:
        engine = SweptEngine(state(**changed))
        sweep = SweepRunner(
            engine, plan((0, 1, 2, 3), seconds=30.0), engine.first, who="ann", random=Random(1),
            clock=engine.clock, sleep=engine.sleep,
        )  # fmt: skip
        return sweep, engine

    return build


async def run(sweep: SweepRunner) -> None:
    """Follows a sweep to its end."""
    await follow(sweep, [])


async def follow(sweep: SweepRunner, heard: list[SweepStep]) -> None:
    """The same, and keeps what it tells."""
    async for step in sweep.visits():
        heard.append(step)


def document(sweep: SweepRunner, *, interrupted: bool = False) -> dict[str, Any]:
    """What the sweep came to, as `sweep --json` prints it."""
    return sweep.outcome("http://engine", interrupted=interrupted).as_json()


async def test_the_best_k_is_found_and_the_knobs_are_given_back(make: Make) -> None:
    sweep, engine = make(mode="target-only", policy="goodput")
    await run(sweep)
    found = document(sweep)
    assert found["complete"]
    assert found["optimum"]["k"] == 3
    assert found["optimum"]["clear"]
    assert found["optimum"]["gain_over_target_only"]["value"] == pytest.approx(1.0, abs=0.1)
    assert found["schedule"] == {"num_speculative_tokens_per_batch_size": [[1, 32, 3]]}
    assert found["measured_batch_sizes"] == ["4"]
    assert found["restored"]
    assert (engine.here.k_set, engine.here.mode, engine.here.policy) == (
        5,
        "target-only",
        "goodput",
    )
    assert all(visit["observed_k"] == visit["k"] for visit in found["visits"])


async def test_only_the_first_change_turns_more_than_k(make: Make) -> None:
    sweep, engine = make(mode="target-only", policy="goodput")
    await run(sweep)
    first, *others = (change for change in engine.changes if change.k is not None)
    assert (first.mode, first.policy) == ("speculate", "fixed")
    assert all(change.mode is None and change.policy is None for change in others)
    assert all(change.lease_s == sweep.plan.lease_s for change in (first, *others))


async def test_a_long_visit_renews_its_lease(make: Make) -> None:
    sweep, engine = make()
    sweep.plan = replace(sweep.plan, rounds=2, measure_s=12.0)
    await run(sweep)
    assert any(change.renew for change in engine.changes)
    assert document(sweep)["restored"]


async def test_a_cancelled_sweep_gives_k_back(make: Make) -> None:
    sweep, engine = make()
    third = asyncio.Event()
    engine.meanwhile = lambda: third.set() if len(sweep.visited) == 3 else None
    running = asyncio.create_task(run(sweep))
    await third.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (engine.here.k_set, engine.ends, document(sweep)["restored"]) == (5, None, True)
    assert len(document(sweep, interrupted=True)["visits"]) == 3


async def test_a_plugin_that_cannot_cancel_is_given_a_short_lease(make: Make) -> None:
    sweep, engine = make()
    engine.knows_cancel = False
    await run(sweep)
    assert engine.changes[-1].renew
    assert document(sweep)["restored"]


async def test_whoever_steers_meanwhile_is_named_and_left_alone(make: Make) -> None:
    sweep, engine = make()

    def bob() -> None:
        if len(sweep.visited) == 2 and engine.here.last_change.who == "ann":  # type: ignore[union-attr]  # the sweep has turned k
            engine.turned(4, "bob", "trying")

    engine.meanwhile = bob
    with pytest.raises(Conflict, match=r"bob changed k \d → 4 during the sweep"):
        await run(sweep)
    assert engine.here.k_set == 4
    assert not any(change.cancel for change in engine.changes)
    assert len(sweep.visited) == 2


async def test_an_engine_that_has_ever_more_to_say_is_not_listened_to_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each notice was compared with all before it: 200,000 of them took half an hour."""
    sweep, engine = make()
    put = engine.put

    async def talk(change: Change) -> AppliedChange:
        notices = tuple(f"{engine.now} {number}" for number in range(100))
        return replace(await put(change), notices=notices)

    monkeypatch.setattr(engine, "put", talk)
    await run(sweep)
    assert len(sweep.notices) == 20


async def test_whoever_asks_for_the_k_of_the_moment_is_noticed_too(make: Make) -> None:
    sweep, engine = make()

    def bob() -> None:
        if len(sweep.visited) == 2:
            engine.ends = None  # nothing to turn, but nothing to give back either

    engine.meanwhile = bob
    with pytest.raises(Conflict, match=r"somebody set k=\d for good"):
        await run(sweep)
    assert len(sweep.visited) == 2
    assert sum(change.k is not None for change in engine.changes) == 3


async def test_an_engine_started_anew_is_not_touched_again(make: Make) -> None:
    sweep, engine = make()

    def restart() -> None:
        if len(sweep.visited) == 1:
            engine.here, engine.ends = replace(engine.first, instance="two"), None

    engine.meanwhile = restart
    with pytest.raises(EngineError, match="restarted during the sweep"):
        await run(sweep)
    assert engine.here.k_set == 5
    assert sum(change.k is not None for change in engine.changes) == 2
    assert (document(sweep)["left"], document(sweep)["restored"]) == ("restarted", True)
    assert sweep.outcome("http://engine").failure is None


async def test_without_traffic_nothing_is_turned(make: Make) -> None:
    sweep, engine = make()
    engine.idle = True
    heard: list[SweepStep] = []
    with pytest.raises(EngineError, match="no traffic"):
        await follow(sweep, heard)
    assert engine.now == pytest.approx(PATIENCE_S, abs=0.5)
    assert engine.changes == []
    assert all(isinstance(step, WaitingForTraffic) for step in heard)


async def test_traffic_that_ends_stops_the_sweep_and_gives_k_back(make: Make) -> None:
    sweep, engine = make()

    def end() -> None:
        engine.idle = len(sweep.visited) >= 5

    engine.meanwhile = end
    with pytest.raises(EngineError, match="no traffic"):
        await run(sweep)
    assert document(sweep)["restored"]
    assert len(sweep.visited) == 5


async def test_an_engine_that_drafts_another_k_is_no_measurement(make: Make) -> None:
    sweep, engine = make()
    engine.meanwhile = lambda: setattr(engine, "here", replace(engine.here, k=0, breaker="open"))
    with pytest.raises(EngineError, match=r"does not draft the k=\d .*breaker open"):
        await run(sweep)


async def test_steps_that_draft_more_than_the_k_they_tell_are_no_measurement(make: Make) -> None:
    sweep, engine = make()
    engine.drafts_always = 5
    why = r"does not draft the k=\d that was asked for \(its steps drafted 5\.0 tokens a draft\)"
    with pytest.raises(EngineError, match=why):
        await run(sweep)
    assert sweep.visited == []
    assert document(sweep)["restored"]


@pytest.mark.parametrize(("share", "counts"), [(0.3, False), (0.05, True)])
async def test_a_visit_that_drafted_another_k_for_a_while_is_left_out(
    share: float, counts: bool, make: Make
) -> None:
    """A breaker that opened and closed again: the steps in between were to draft nothing."""
    sweep, engine = make()
    steps, spoilt = engine.steps, list[int]()

    async def find_steps(since: int) -> tuple[Step, ...]:
        found = await steps(since)
        if len(sweep.visited) != 3 or engine.here.k == 0:
            return found
        spoilt[:] = [engine.here.k]
        return tuple(
            step._replace(k=0, committed=4) if step.step % 100 < 100 * share else step
            for step in found
        )

    engine.steps = find_steps  # type: ignore[method-assign]
    sweep.plan = replace(sweep.plan, ks=(1, 2, 3))
    await run(sweep)
    found = sweep.outcome("http://engine")
    assert [visit.left_out for visit in found.visits][3] == (None if counts else "other_k")
    assert len(found.visits) - len(found.counted) == (0 if counts else 1)
    assert found.complete
    told = [note for note in found.notices if f"a visit of k={spoilt[0]} is left out: " in note]
    assert bool(told) != counts
    speeds = {point.k: point.tokens_per_second for point in found.analysis.curve}
    rounds = found.plan.rounds - (0 if counts else 1)
    assert speeds[spoilt[0]].blocks == rounds
    assert document(sweep)["visits"][3]["left_out"] == (None if counts else "other_k")


@pytest.mark.parametrize("k", [0, 3])
async def test_a_breaker_that_opens_at_the_end_of_a_visit_makes_it_none(k: int, make: Make) -> None:
    sweep, engine = make()
    sweep.plan = replace(sweep.plan, ks=(k,))

    def open_breaker() -> None:
        if len(sweep.visited) == 1:
            engine.here = replace(engine.here, breaker="open", policy_reason="loses 8 %")

    engine.meanwhile = open_breaker
    with pytest.raises(EngineError, match=f"breaker became open in a visit of k={k}: loses 8 %"):
        await run(sweep)
    assert len(sweep.visited) == 1


async def test_steps_that_are_told_again_are_counted_once(make: Make) -> None:
    sweep, engine = make()
    steps = engine.steps

    async def tell_all(since: int) -> tuple[Step, ...]:
        return (await steps(0))[-300:]

    engine.steps = tell_all  # type: ignore[method-assign]  # as one whose numbers go back
    await run(sweep)
    # A step is 10 ms of the engine's time: no visit has more of them than it took.
    assert sum(visit.steps for visit in sweep.visited) * 0.01 <= engine.now
    assert all(visit.obeyed == visit.steps for visit in sweep.visited)


async def test_visits_without_a_draft_are_told(make: Make) -> None:
    sweep, engine = make()
    engine.drafts_always = 0
    await run(sweep)
    assert sorted(sweep.notices) == [f"nothing was drafted in a visit of k={k}" for k in (1, 2, 3)]


async def test_an_engine_that_goes_away_is_left_to_its_lease(make: Make) -> None:
    sweep, engine = make()
    goes_away(sweep, engine, for_s=3600.0)
    with pytest.raises(Unreachable):
        await run(sweep)
    assert (document(sweep)["restored"], document(sweep)["left"]) == (None, "unknown")
    failure = sweep.outcome("http://engine").failure
    assert failure is not None
    assert "not known whether k is given back: no answer; the engine was to do so" in failure.line()
    await engine.sleep(sweep.plan.lease_s)
    assert engine.here.k_set == 5


async def test_an_engine_that_comes_back_is_seen_to_have_given_k_back(make: Make) -> None:
    sweep, engine = make()
    goes_away(sweep, engine, for_s=4.0)
    with pytest.raises(Unreachable):
        await run(sweep)
    assert document(sweep)["left"] == "restored"
    assert sweep.outcome("http://engine").failure is None
    assert engine.here.k_set == 5


def goes_away(sweep: SweepRunner, engine: SweptEngine, *, for_s: float) -> None:
    """Has the engine answer nothing for a while after the second visit."""
    state, put, ends = engine.state, engine.put, list[float]()

    def look() -> None:
        if len(sweep.visited) == 2 and not ends:
            ends.append(engine.now + for_s)
        if ends and engine.now < ends[0]:
            raise Unreachable("no answer")

    async def find_state() -> EngineState:
        look()
        return await state()

    async def change(change: Change) -> AppliedChange:
        look()
        return await put(change)

    engine.state, engine.put = find_state, change  # type: ignore[method-assign]


async def test_knobs_that_the_engine_keeps_after_its_word_are_told(make: Make) -> None:
    sweep, engine = make()
    engine.keeps_knobs = True
    await run(sweep)
    found = sweep.outcome("http://engine")
    assert (found.restored, found.ending.left) == (False, "not_restored")
    assert found.failure is not None
    assert f"NOT given back: the engine has k={engine.here.k_set}" in found.failure.line()


@pytest.mark.parametrize(("keeps", "left"), [(False, "restored"), (True, "not_restored")])
async def test_a_sweep_without_its_token_waits_for_its_lease(
    keeps: bool, left: str, make: Make
) -> None:
    sweep, engine = make()
    put, engine.keeps_knobs = engine.put, keeps

    async def refuse(change: Change) -> AppliedChange:
        if len(sweep.visited) == 2:
            raise Unauthorized("the admin token is wrong")
        return await put(change)

    engine.put = refuse  # type: ignore[method-assign]  # the token is revoked
    with pytest.raises(Unauthorized):
        await run(sweep)
    assert document(sweep)["left"] == left
    failure = sweep.outcome("http://engine").failure
    assert (failure is not None) == keeps
    assert failure is None or "the admin token is wrong: the engine has k=" in str(failure)


async def test_what_somebody_else_has_set_is_told_as_theirs(make: Make) -> None:
    sweep, engine = make(policy="goodput", mode="target-only")

    def bob() -> None:
        if len(sweep.visited) == 2 and engine.back.k_set != 4:
            engine.turned(4, "bob", "trying")

    engine.meanwhile = bob
    with pytest.raises(Conflict, match="bob changed k"):
        await run(sweep)
    found = sweep.outcome("http://engine")
    assert (found.ending.left, found.failure) == ("changed", None)
    assert found.after == {"k": 4, "mode": "target-only", "policy": "fixed", "fallback": "warm"}


async def test_the_second_sweep_of_the_same_name_leaves_the_first_alone(make: Make) -> None:
    first, engine = make()
    second = SweepRunner(
        engine, first.plan, engine.first, who="ann", clock=engine.clock, sleep=engine.sleep
    )
    begun = first.visits()
    while not first.visited:
        await anext(begun)
    with pytest.raises(Conflict, match="ann changed k"):
        await run(second)
    assert document(second)["left"] == "untouched"
    assert second.outcome("http://engine").failure is None
    async for _ in begun:
        pass
    assert (document(first)["complete"], document(first)["left"]) == (True, "restored")


async def test_a_first_change_that_is_made_late_is_given_back(make: Make) -> None:
    sweep, engine = make()
    put, late = engine.put, list[Change]()
    look = engine.state

    async def lose(change: Change) -> AppliedChange:
        if late:
            return await put(change)
        late.append(change)
        raise NoReply("closed the connection")

    async def find_state() -> EngineState:
        if late and engine.now > 2.0 and len(engine.changes) == 0:
            await put(late[0])
        return await look()

    engine.put, engine.state = lose, find_state  # type: ignore[method-assign]
    with pytest.raises(NoReply):
        await run(sweep)
    assert [change.cancel for change in engine.changes] == [False, True]
    assert (engine.here.k_set, engine.ends, document(sweep)["left"]) == (5, None, "restored")


async def test_a_sweep_that_is_cut_short_while_it_gives_k_back_does_not_say_that_it_did(
    make: Make,
) -> None:
    sweep, engine = make()
    put, releasing = engine.put, asyncio.Event()

    async def hang(change: Change) -> AppliedChange:
        if change.cancel:
            releasing.set()
            await asyncio.Event().wait()
        return await put(change)

    engine.put = hang  # type: ignore[method-assign]  # it does not answer, and a console is left
    running = asyncio.create_task(run(sweep))
    await releasing.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    found = sweep.outcome("http://engine", interrupted=True)
    assert (found.ending.left, found.restored) == ("not_restored", False)
    assert found.failure is not None
    assert "it takes that back by itself within 7 s" in found.failure.line()


async def test_a_breaker_that_opened_meanwhile_is_told(make: Make) -> None:
    sweep, engine = make()

    def open_breaker() -> None:
        if len(sweep.visited) == 2:
            engine.found = {"breaker": "open"}

    engine.meanwhile = open_breaker
    await run_into_error(sweep)
    assert document(sweep)["left"] == "restored"
    assert document(sweep)["breaker"] == "open"
    assert sweep.ending.has_breaker_opened


async def run_into_error(sweep: SweepRunner) -> None:
    """Follows a sweep to an end, whichever that is."""
    with suppress(EngineError):
        await run(sweep)


async def test_a_lease_that_ran_out_unseen_is_nobody_s_k(make: Make) -> None:
    sweep, engine = make()
    sweep.plan = replace(sweep.plan, ks=(5,), rounds=3)

    def lose_lease() -> None:
        if len(sweep.visited) == 1 and engine.ends is not None:
            engine.now += sweep.plan.lease_s  # the machine was asleep
            engine.ends = None

    engine.meanwhile = lose_lease
    with pytest.raises(Conflict, match="the sweep's lease ran out"):
        await run(sweep)
    assert document(sweep)["left"] == "restored"


def test_a_plan_takes_the_time_it_is_given() -> None:
    for seconds in (20.0, 60.0, 600.0):
        assert plan(range(6), seconds=seconds).seconds == pytest.approx(seconds, rel=0.01)


def test_rounds_share_the_time() -> None:
    planned = plan((0, 3, 5), seconds=30.0, rounds=4)
    assert (planned.rounds, planned.visits) == (4, 12)
    assert planned.seconds == pytest.approx(30.0, rel=0.01)


async def test_a_slow_engine_gets_fewer_rounds_and_the_time_is_kept(make: Make) -> None:
    sweep, engine = make()
    planned, put = sweep.plan, engine.put

    async def answer_late(change: Change) -> AppliedChange:
        await engine.sleep(planned.visit_s)
        return await put(change)

    engine.put = answer_late  # type: ignore[method-assign]  # its core is busy
    heard: list[SweepStep] = []
    await follow(sweep, heard)
    found = document(sweep)
    assert 3 <= found["rounds"] < planned.rounds
    assert engine.now <= planned.seconds * (1 + LATE) + RESTORE_S
    assert found["complete"]
    assert len(found["visits"]) == found["rounds"] * len(planned.ks)
    assert any("rounds are made, so that the time is kept" in text for text in sweep.notices)
    done = [step.progress for step in heard if isinstance(step, VisitDone)]
    assert (done[-1].done, done[-1].of, done[-1].seconds_left) == (done[-1].of,) * 2 + (0.0,)
    assert done[3].seconds_left == pytest.approx(planned.seconds - done_s(planned), rel=0.35)


def done_s(planned: Plan) -> float:
    """Seconds of the first round at half the speed that was planned."""
    return 2 * planned.visit_s * len(planned.ks)


async def test_rounds_that_were_asked_for_are_made_however_long_they_take(make: Make) -> None:
    sweep, engine = make()
    sweep.plan, put = plan((0, 1, 2, 3), seconds=30.0, rounds=4), engine.put

    async def answer_late(change: Change) -> AppliedChange:
        await engine.sleep(5.0)
        return await put(change)

    engine.put = answer_late  # type: ignore[method-assign]  # its core is busy
    await run(sweep)
    assert document(sweep)["rounds"] == 4
    assert len(sweep.visited) == 16


def pausing(
    engine: SweptEngine, sweep: SweepRunner, name: str, answers_s: float, pause_s: float
) -> None:
    """Has the call `name` wait `answers_s` for nothing while a pause of `pause_s` lasts."""
    ask = getattr(engine, name)
    ends: list[float] = []

    async def stalled(*arguments: Any) -> Any:
        if len(sweep.visited) == 2 and not ends:
            ends.append(engine.now + pause_s)
        if ends and engine.now < ends[0]:
            engine.now += answers_s  # the core stands still, and so does its lease
            raise Stalled("the engine core has not answered for 4 s")
        return await ask(*arguments)

    setattr(engine, name, stalled)


@pytest.mark.parametrize("name", ["state", "steps", "put"])
async def test_a_pause_of_the_engine_core_is_waited_for(name: str, make: Make) -> None:
    sweep, engine = make()
    pausing(engine, sweep, name, 4.0, 3.5)
    await run(sweep)
    assert document(sweep)["complete"]
    assert document(sweep)["restored"]
    assert sweep.notices[0] == PAUSED


async def test_a_pause_longer_than_the_lease_ends_the_sweep(make: Make) -> None:
    sweep, engine = make()
    pausing(engine, sweep, "steps", 4.0, 600.0)
    began: list[float] = []
    engine.meanwhile = lambda: began.append(engine.now)
    with pytest.raises(Stalled, match="has not answered"):
        await run(sweep)
    assert len(sweep.visited) == 2
    assert engine.now - began[-1] <= 2 * sweep.plan.lease_s
    assert engine.here.k_set == 5
