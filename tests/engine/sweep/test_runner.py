"""A sweep on an engine that is a few lines: what it turns, measures, and gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from specdeck.engine.control.protocol import (
    Applied,
    Capability,
    Change,
    EngineState,
    LastChange,
    Lease,
    Origin,
    Step,
)
from specdeck.engine.errors import (
    Conflict,
    EngineError,
    Stalled,
    Unreachable,
    Unsupported,
    UsageError,
)
from specdeck.engine.sweep.patient import PAUSED
from specdeck.engine.sweep.plan import plan
from specdeck.engine.sweep.report import as_json
from specdeck.engine.sweep.runner import PATIENCE_S, Progress, Sweep

State = Callable[..., EngineState]
ABLE = (Capability("live_k", True), Capability("target_only", True))
RATES = {0: 400.0, 1: 520.0, 2: 640.0, 3: 800.0}
"""Tokens per second by k; beyond 3 as at 3."""


class SweptEngine:
    """Makes a step every 10 ms of its own time, and holds a lease as the plugin does."""

    def __init__(self, state: EngineState) -> None:
        self.now, self.step = 0.0, state.step
        self.first = replace(state, capabilities=ABLE)
        self.here = self.first
        self.ends: float | None = None
        self.changes: list[Change] = []
        self.idle = False
        self.knows_cancel = True
        self.meanwhile: Callable[[], None] = lambda: None
        """Called at every look at the steps."""
        self._random = Random(3)
        self._k_of: dict[int, int] = {}

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        for _ in range(round(seconds / 0.01)):
            self.now += 0.01
            self._expire()
            if not self.idle:
                self.step += 1
                self._k_of[self.step] = self.here.k

    def _expire(self) -> None:
        if self.ends is not None and self.now >= self.ends:
            self.turned(self.first.k_set, "specdeck", "the lease ran out", "lease")
            self.here = replace(self.here, mode=self.first.mode, policy=self.first.policy)
            self.ends = None

    def turned(self, k: int, who: str, reason: str, origin: Origin = "operator") -> None:
        """Somebody turns k."""
        last = LastChange(0.0, who, reason, {"k": self.here.k_set}, {"k": k}, origin)
        self.here = replace(
            self.here, k=k, k_set=k, version=self.here.version + 1, last_change=last
        )

    async def state(self) -> EngineState:
        self._expire()
        back = (self.first.k_set, self.first.mode)
        left = None if self.ends is None else Lease(self.ends - self.now, *back)
        return replace(self.here, step=self.step, lease=left)

    async def facts(self) -> dict[str, Any]:
        return {"facts": {"config": {"scheduler": {"max_num_seqs": 32}}}}

    async def steps(self, since: int) -> tuple[Step, ...]:
        self.meanwhile()
        return tuple(self._step(n, k) for n, k in self._k_of.items() if n > since)

    def _step(self, number: int, k: int) -> Step:
        rate = RATES[min(k, 3)] * (1 + self._random.gauss(0, 0.02))
        drafts = 4 if k else 0
        return Step(number, number / 100, 4, 4 + drafts * k, k, drafts, drafts * k, drafts,
                    seconds=0.01, committed=round(rate / 100))  # fmt: skip

    async def put(self, change: Change) -> Applied:
        self._expire()
        if change.expect_version != self.here.version:
            raise Conflict("the engine is at another version")
        if change.cancel and not self.knows_cancel:
            raise UsageError("unknown key 'cancel'")
        self.changes.append(change)
        if change.cancel or change.renew:
            self.ends = self.now + (change.lease_s or 0.0)
            if change.cancel:
                self._expire()
            return Applied({}, {}, self.here.version, self.step)
        assert change.k is not None
        if change.policy or change.mode:
            self.here = replace(
                self.here, policy=change.policy or self.here.policy,
                mode=change.mode or self.here.mode,
            )  # fmt: skip
        self.turned(change.k, change.who or "", change.reason or "")
        self.ends = self.now + (change.lease_s or 0.0)
        return Applied({}, change.asked(), self.here.version, self.step)


Make = Callable[..., tuple[Sweep, SweptEngine]]


@pytest.fixture
def make(state: State) -> Make:
    """A sweep over k = 0 to 3 and the engine that it sweeps."""

    def build(ks: tuple[int, ...] = (0, 1, 2, 3), **changed: Any) -> tuple[Sweep, SweptEngine]:
        engine = SweptEngine(state(**changed))
        sweep = Sweep(
            engine, plan(ks, seconds=30.0), who="ann", random=Random(1),
            clock=engine.clock, sleep=engine.sleep,
        )  # fmt: skip
        return sweep, engine

    return build


async def test_the_best_k_is_found_and_the_knobs_are_given_back(make: Make) -> None:
    sweep, engine = make(mode="target-only", policy="goodput")
    await sweep.run()
    document = as_json(sweep, "http://engine")
    assert document["complete"]
    assert document["optimum"]["k"] == 3
    assert document["optimum"]["clear"]
    assert document["optimum"]["gain_over_target_only"]["value"] == pytest.approx(1.0, abs=0.1)
    assert document["schedule"] == {"num_speculative_tokens_per_batch_size": [[1, 32, 3]]}
    assert document["measured_batch_sizes"] == ["4"]
    assert document["restored"]
    assert (engine.here.k_set, engine.here.mode, engine.here.policy) == (
        5,
        "target-only",
        "goodput",
    )
    assert all(visit["observed_k"] == visit["k"] for visit in document["visits"])


async def test_only_the_first_change_turns_more_than_k(make: Make) -> None:
    sweep, engine = make(mode="target-only", policy="goodput")
    await sweep.run()
    first, *others = (change for change in engine.changes if change.k is not None)
    assert (first.mode, first.policy) == ("speculate", "fixed")
    assert all(change.mode is None and change.policy is None for change in others)
    assert all(change.lease_s == sweep.plan.lease_s for change in (first, *others))


async def test_a_long_visit_renews_its_lease(make: Make) -> None:
    sweep, engine = make()
    sweep.plan = replace(sweep.plan, rounds=2, measure_s=12.0)
    await sweep.run()
    assert any(change.renew for change in engine.changes)
    assert sweep.restored


async def test_a_cancelled_sweep_gives_k_back(make: Make) -> None:
    sweep, engine = make()
    third = asyncio.Event()
    engine.meanwhile = lambda: third.set() if len(sweep.stays) == 3 else None
    running = asyncio.create_task(sweep.run())
    await third.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (engine.here.k_set, engine.ends, sweep.restored) == (5, None, True)
    assert len(as_json(sweep, "http://engine", stopped="interrupted")["visits"]) == 3


async def test_a_plugin_that_cannot_cancel_is_given_a_short_lease(make: Make) -> None:
    sweep, engine = make()
    engine.knows_cancel = False
    await sweep.run()
    assert engine.changes[-1].renew
    assert sweep.restored


async def test_whoever_steers_meanwhile_is_named_and_left_alone(make: Make) -> None:
    sweep, engine = make()

    def bob() -> None:
        if len(sweep.stays) == 2 and engine.here.last_change.who == "ann":  # type: ignore[union-attr]  # the sweep has turned k
            engine.turned(4, "bob", "trying")

    engine.meanwhile = bob
    with pytest.raises(Conflict, match=r"bob changed k \d → 4 in mid-sweep"):
        await sweep.run()
    assert engine.here.k_set == 4
    assert not any(change.cancel for change in engine.changes)
    assert len(sweep.stays) == 2


async def test_whoever_asks_for_the_k_of_the_moment_is_noticed_too(make: Make) -> None:
    sweep, engine = make()

    def bob() -> None:
        if len(sweep.stays) == 2:
            engine.ends = None  # nothing to turn, but nothing to give back either

    engine.meanwhile = bob
    with pytest.raises(Conflict, match=r"somebody set k=\d for good"):
        await sweep.run()
    assert len(sweep.stays) == 2
    assert sum(change.k is not None for change in engine.changes) == 3


async def test_an_engine_started_anew_is_not_touched_again(make: Make) -> None:
    sweep, engine = make()

    def restart() -> None:
        if len(sweep.stays) == 1:
            engine.here, engine.ends = replace(engine.first, instance="two"), None

    engine.meanwhile = restart
    with pytest.raises(EngineError, match="started anew in mid-sweep"):
        await sweep.run()
    assert engine.here.k_set == 5
    assert sum(change.k is not None for change in engine.changes) == 2


async def test_without_traffic_nothing_is_turned(make: Make) -> None:
    sweep, engine = make()
    engine.idle = True
    heard: list[Progress] = []
    sweep.heard = heard.append
    with pytest.raises(EngineError, match="no traffic"):
        await sweep.run()
    assert engine.now == pytest.approx(PATIENCE_S, abs=0.5)
    assert engine.changes == []
    assert [progress.first for progress in heard[:2]] == [True, False]


async def test_traffic_that_ends_stops_the_sweep_and_gives_k_back(make: Make) -> None:
    sweep, engine = make()

    def end() -> None:
        engine.idle = len(sweep.stays) >= 5

    engine.meanwhile = end
    with pytest.raises(EngineError, match="no traffic"):
        await sweep.run()
    assert sweep.restored
    assert len(sweep.stays) == 5


async def test_an_engine_that_drafts_another_k_is_no_measurement(make: Make) -> None:
    sweep, engine = make()
    engine.meanwhile = lambda: setattr(engine, "here", replace(engine.here, k=0, breaker="open"))
    with pytest.raises(EngineError, match=r"does not draft the k=\d .*breaker open"):
        await sweep.run()


async def test_an_engine_that_goes_away_is_left_to_its_lease(make: Make) -> None:
    sweep, engine = make()
    engine_state = engine.state

    async def gone() -> EngineState:
        if len(sweep.stays) == 2:
            raise Unreachable("no answer")
        return await engine_state()

    engine.state = gone  # type: ignore[method-assign]  # it is stopped in the middle
    with pytest.raises(Unreachable):
        await sweep.run()
    assert sweep.restored is None
    assert "by itself within 8 s" in sweep.notices[-1]
    await engine.sleep(sweep.plan.lease_s)
    assert engine.here.k_set == 5


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"lease": Lease(8.0, 5, "speculate")}, Conflict, "a trial or another sweep is on"),
        ({"trial": "baseline"}, Conflict, "a trial or another sweep is on"),
        ({"k_max": 2}, Unsupported, "k=3 is above k_max=2"),
    ],
)
async def test_what_cannot_be_swept_is_refused_untouched(
    changed: dict[str, Any], error: type[Exception], words: str, make: Make
) -> None:
    sweep, engine = make()
    now = replace(engine.here, **changed)

    async def state() -> EngineState:
        return now

    engine.state = state  # type: ignore[method-assign]  # as it is found
    with pytest.raises(error, match=words):
        await sweep.run()
    assert engine.changes == []


async def test_an_engine_without_live_k_is_refused_with_its_reason(make: Make) -> None:
    sweep, engine = make()
    engine.here = replace(
        engine.here, capabilities=(Capability("live_k", False, "no speculation", "configure it"),)
    )
    with pytest.raises(Unsupported, match="no speculation"):
        await sweep.run()


def test_a_plan_takes_the_time_it_is_given() -> None:
    for seconds in (20.0, 60.0, 600.0):
        assert plan(range(6), seconds=seconds).seconds == pytest.approx(seconds, rel=0.01)


def test_rounds_share_the_time() -> None:
    planned = plan((0, 3, 5), seconds=30.0, rounds=4)
    assert (planned.rounds, planned.visits) == (4, 12)
    assert planned.seconds == pytest.approx(30.0, rel=0.01)


async def test_an_engine_whose_breaker_is_open_is_not_turned_at_all(make: Make) -> None:
    sweep, engine = make(breaker="open", policy_reason="2 of 9 differ")
    with pytest.raises(Conflict, match="breaker is open: 2 of 9 differ"):
        await sweep.run()
    assert engine.changes == []
    sweep, engine = make(breaker="open", policy="goodput")
    await sweep.run()
    assert sweep.restored


def pausing(engine: SweptEngine, sweep: Sweep, name: str, answers_s: float, pause_s: float) -> None:
    """Has the call `name` wait `answers_s` for nothing while a pause of `pause_s` lasts."""
    ask = getattr(engine, name)
    ends: list[float] = []

    async def stalled(*arguments: Any) -> Any:
        if len(sweep.stays) == 2 and not ends:
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
    await sweep.run()
    assert as_json(sweep, "http://engine")["complete"]
    assert sweep.restored
    assert sweep.notices == [PAUSED]


async def test_a_pause_longer_than_the_lease_ends_the_sweep(make: Make) -> None:
    sweep, engine = make()
    pausing(engine, sweep, "steps", 4.0, 600.0)
    began: list[float] = []
    engine.meanwhile = lambda: began.append(engine.now)
    with pytest.raises(Stalled, match="has not answered"):
        await sweep.run()
    assert len(sweep.stays) == 2
    assert engine.now - began[-1] <= 2 * sweep.plan.lease_s
    assert engine.here.k_set == 5
