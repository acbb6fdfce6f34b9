"""A calibration: its shapes and rounds, what stops it, and what is written of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_state import engine_state

from specdeck.engine.errors import (
    Conflict,
    EngineError,
    SpecdeckError,
    Unreachable,
    Unsupported,
    UsageError,
)
from specdeck.engine.operations.calibration import (
    Calibration,
    CalibrationOutcome,
    CalibrationRequest,
    ShapeDone,
)
from specdeck.engine.protocol.calibration import DummySteps, StepShape
from specdeck.engine.protocol.messages import Capability, EngineState
from specdeck.engine.store.audit import Action
from specdeck.engine.sweep.calibration import MOST_KS, Shapes, choose_batches, choose_ks

ABLE = (
    Capability("live_k", True), Capability("target_only", True), Capability("calibration", True),
)  # fmt: skip


@dataclass
class IdleEngine:
    """An engine without requests, whose dummy steps take 100 ms a shape of its own time."""

    here: EngineState = field(
        default_factory=lambda: engine_state(
            k=3, k_max=3, running=0, waiting=0, capabilities=ABLE, instance="one"
        )
    )
    now: float = 0.0
    asked: list[StepShape] = field(default_factory=list)
    before: Callable[[int], None] = lambda number: None
    """Called with the number of each request for dummy steps."""
    looks: int = 0
    """Of others: so many of the first dummy steps are interrupted."""

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def state(self) -> EngineState:
        return self.here

    async def facts(self) -> dict[str, Any]:
        return {"facts": {"config": {"scheduler": {"max_num_seqs": 4}}}}

    async def calibrate(self, shape: StepShape) -> DummySteps:
        self.asked.append(shape)
        self.before(len(self.asked))
        self.now += 0.1
        seconds = (0.01 + 0.001 * shape.k + 0.002 * shape.batch,) * shape.steps
        if self.looks:
            self.looks -= 1
            return DummySteps(self.here.instance, shape.batch, shape.k, (), interrupted=True)
        real = 0.02 if (shape.batch, shape.k) == (4, 2) else None
        return DummySteps(
            self.here.instance, shape.batch, shape.k, seconds, interrupted=False, real_s=real
        )


def make(engine: IdleEngine, audit: list[Action] | None = None, **asked: Any) -> Calibration:
    return Calibration(
        engine, CalibrationRequest("ana", **asked), url="http://e:1", name="e",
        record=(audit if audit is not None else []).append, random=Random(1),
        wall=lambda: 1.0, clock=engine.clock, sleep=engine.sleep,
    )  # fmt: skip


async def run(work: Calibration) -> CalibrationOutcome:
    async for _ in work.events():
        pass
    assert work.outcome is not None
    return work.outcome


async def test_every_shape_once_a_round_in_another_order() -> None:
    engine = IdleEngine()
    found = await run(make(engine, rounds=2))
    shapes = [(asked.batch, asked.k) for asked in engine.asked]
    wanted = sorted((batch, k) for batch in (1, 2, 4) for k in range(4))
    assert sorted(shapes[:12]) == sorted(shapes[12:]) == wanted
    assert shapes[:12] != shapes[12:]
    assert [(each.batch, each.k) for each in found.times] == wanted
    assert {len(each.seconds) for each in found.times} == {8}
    assert (found.complete, found.rounds, found.stopped) == (True, 2, None)


@pytest.mark.parametrize(("seconds", "rounds"), [(1.0, 1), (2.5, 2), (6.1, 5)])
async def test_rounds_are_begun_while_another_fits(seconds: float, rounds: int) -> None:
    assert (await run(make(IdleEngine(), seconds=seconds))).rounds == rounds


async def test_a_request_that_comes_ends_it_and_what_was_learned_is_told() -> None:
    def arrive(number: int) -> None:
        if number == 6:
            raise Conflict("the engine has requests")

    audit: list[Action] = []
    found = await run(make(IdleEngine(before=arrive), audit))
    assert isinstance(found.error, Conflict)
    assert (found.complete, len(found.times)) == (False, 5)
    assert found.as_json()["stopped"] == "the engine has requests"
    assert "the engine has requests" in str(audit[-1].reason)


async def test_shapes_that_no_step_has_are_left_out_and_counted() -> None:
    def refuse(number: int) -> None:
        if engine.asked[-1].batch == 4 and engine.asked[-1].k > 1:
            raise UsageError("a step of this engine has at most 4 requests and 8 tokens")

    engine = IdleEngine(before=refuse)
    found = await run(make(engine, rounds=2))
    assert (found.complete, found.error, found.engine_after) == (True, None, "intact")
    assert len(found.times) == 10
    assert sum(shape.batch == 4 and shape.k > 1 for shape in engine.asked) == 2
    assert found.notices == ("2 shapes left out: more than a step of this engine has",)


async def test_a_shape_refused_for_another_reason_ends_it() -> None:
    def refuse(number: int) -> None:
        raise UsageError("k is 1 to 3, not 0")

    found = await run(make(IdleEngine(before=refuse), ks=(0,), rounds=1))
    assert found.stopped == "k is 1 to 3, not 0"


async def test_steps_of_another_start_of_the_engine_are_no_times_of_this_one() -> None:
    engine = IdleEngine()

    def restart(number: int) -> None:
        if number == 6:
            engine.here = replace(engine.here, instance="two")

    engine.before = restart
    found = await run(make(engine, rounds=2))
    assert isinstance(found.error, EngineError)
    assert "restarted during the calibration" in str(found.error)
    assert (len(found.times), found.engine_after) == (5, "restarted")


async def test_steps_of_another_shape_are_no_times_of_the_one_that_was_asked_for() -> None:
    engine = IdleEngine()
    calibrate = engine.calibrate

    async def make_others(shape: StepShape) -> DummySteps:
        return replace(await calibrate(shape), k=3)

    engine.calibrate = make_others  # type: ignore[method-assign]
    found = await run(make(engine, ks=(1,), rounds=1))
    assert found.stopped is not None
    assert "at k=1, and made some of" in found.stopped
    assert found.times == ()


@pytest.mark.parametrize(
    ("instance", "after"), [(None, "silent"), ("one", "intact"), ("another", "restarted")]
)
async def test_an_engine_that_does_not_answer_after_an_error_is_not_as_it_was(
    instance: str | None, after: str
) -> None:
    def fail(number: int) -> None:
        engine.after = instance
        raise EngineError("http://e:1 answers 500")

    @dataclass
    class Failing(IdleEngine):
        after: str | None = "one"

        async def state(self) -> EngineState:
            if self.after is None:
                raise Unreachable("http://e:1 refuses connections")
            return replace(self.here, instance=self.after)

    engine = Failing(before=fail)
    found = await run(make(engine))
    assert found.stopped == "http://e:1 answers 500"
    assert found.engine_after == after


async def test_what_is_left_of_the_last_request_is_waited_for_once() -> None:
    def settle(number: int) -> None:
        if number == 1:
            raise Conflict("the engine has requests")

    assert (await run(make(IdleEngine(before=settle), rounds=1))).complete


async def test_looks_of_others_have_a_shape_made_again() -> None:
    engine = IdleEngine(looks=3)
    found = await run(make(engine, rounds=1))
    assert found.complete
    assert len(engine.asked) == 15
    assert all(each.seconds for each in found.times)


async def test_looks_without_end_end_it() -> None:
    found = await run(make(IdleEngine(looks=999), rounds=1))
    assert "others ask the engine" in str(found.error)


async def test_it_is_held_against_real_steps_where_there_were_some() -> None:
    found = await run(make(IdleEngine(), rounds=1))
    truth = found.truth
    assert truth is not None
    assert truth.shapes == 1
    assert truth.ratio == pytest.approx(1.0)
    assert found.as_json()["against_real"] == {"ratio": 1.0, "range": [1.0, 1.0], "shapes": 1}


async def test_the_audit_log_has_its_beginning_and_its_end() -> None:
    audit: list[Action] = []
    await run(make(IdleEngine(), audit, rounds=1, reason="sweep --calibrate: new host"))
    assert [one.after["calibration"] for one in audit] == [
        "1 to 4 requests, k 0 to 3", "12 of 12 shapes",
    ]  # fmt: skip
    assert {(one.who, one.before == {}, one.undo, one.instance) for one in audit} == {
        ("ana", True, "", "one")
    }


async def test_closing_it_writes_its_end() -> None:
    audit: list[Action] = []
    work = make(IdleEngine(), audit)
    events = work.events()
    async for event in events:
        if isinstance(event, ShapeDone):
            break
    await events.aclose()
    assert work.outcome is not None
    assert work.outcome.interrupted
    assert len(audit) == 2


@pytest.mark.parametrize(
    ("changed", "asked", "kind", "said"),
    [
        ({"running": 1}, {}, Conflict, "1 request is in the engine"),
        ({"waiting": 2}, {}, Conflict, "2 requests are in the engine"),
        (
            {"capabilities": (*ABLE[:2], Capability("calibration", False, "it is V2", "do"))},
            {}, Unsupported, "cannot be calibrated: it is V2",
        ),
        ({"capabilities": ABLE[:2]}, {}, Unsupported, "does not know it"),
        ({"k_max": 0}, {}, Unsupported, "does not speculate"),
        ({}, {"ks": (4,)}, UsageError, "k=4 is none of this engine's: 0 to 3"),
    ],
)  # fmt: skip
async def test_what_cannot_be_calibrated_is_refused_before_anything_is_run(
    changed: dict[str, Any], asked: dict[str, Any], kind: type[SpecdeckError], said: str
) -> None:
    audit: list[Action] = []
    engine = IdleEngine()
    engine.here = replace(engine.here, **changed)
    with pytest.raises(kind, match=said):
        await run(make(engine, audit, **asked))
    assert (engine.asked, audit) == ([], [])


@given(st.integers(1, 4096), st.integers(1, 64))
def test_shapes_are_few_and_reach_the_ends(seats: int, k_max: int) -> None:
    batches, ks = choose_batches(seats), choose_ks(range(k_max + 1))
    assert (batches[0], batches[-1], ks[0], ks[-1]) == (1, seats, 0, k_max)
    assert batches == tuple(sorted(set(batches)))
    assert ks == tuple(sorted(set(ks)))
    assert len(batches) <= 13
    assert len(ks) <= MOST_KS + 3
    assert len(list(Shapes(batches, ks).order(Random(1)))) == len(Shapes(batches, ks))
