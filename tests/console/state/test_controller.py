"""The controller without a terminal: one request at a time, one word to listeners a reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.listed_engine import ListedEngine
from tests.support.memory_audit import MemoryAudit
from tests.support.readings import START, STATE, down, reading, readings
from tests.support.tuned_engine import ABLE, TRIAL, WON, TunedClient, TunedEngine, tuning

from specdeck.console.state.controller import Controller
from specdeck.console.state.engine_state import KnownTrial
from specdeck.console.state.pending import k_wanted
from specdeck.engine.errors import Conflict, EngineError, NoReply
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.operations.change import LOST_S
from specdeck.engine.protocol.messages import AppliedChange, Change, EngineState, LastChange
from specdeck.engine.protocol.tuning import TrialTuning


@dataclass
class Tasks:
    """Starts work as a console does, and ends it with the test."""

    begun: list[tuple[str, asyncio.Task[None]]] = field(default_factory=list)

    def __call__(self, work: Coroutine[Any, Any, None], group: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.begun.append((group, task))
        return task

    async def rest(self) -> None:
        """Let everything go as far as it can without time passing."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def end_of(self, kind: str) -> None:
        """Let the work of one group come to its end."""
        await asyncio.gather(*(task for group, task in self.begun if group == kind))

    async def end(self) -> None:
        for _, task in self.begun:
            task.cancel()
        await asyncio.gather(*(task for _, task in self.begun), return_exceptions=True)


SteeredEngine = Callable[..., Controller]


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    found = Tasks()
    yield found
    await found.end()


@pytest.fixture
def steered(tasks: Tasks) -> SteeredEngine:
    """A controller whose clock stands still, already following."""

    def make(*engines: ListedEngine, **settings: Any) -> Controller:
        controller = Controller(
            engines, spawn=tasks, who="ann", clock=lambda: START + 60, **settings
        )
        controller.start()
        return controller

    return make


async def begin_unanswered(tasks: Tasks, steered: SteeredEngine) -> tuple[Controller, ListedEngine]:
    """A controller of an engine that answers no change until its `answer` is set."""
    engine = ListedEngine(readings(3))
    engine.answer.clear()
    controller = steered(engine)
    await tasks.rest()
    return controller, engine


def said(controller: Controller) -> list[str]:
    return [event.text for event in controller.track.events]


async def test_listeners_are_told_once_a_reading(tasks: Tasks, steered: SteeredEngine) -> None:
    theirs = replace(STATE, k=3, k_set=3, version=2, breaker="open", alarm="too good")
    engine, told = ListedEngine([]), 0
    controller = steered(engine)

    def count() -> None:
        nonlocal told
        told += 1

    leave = controller.subscribe(count)
    for n, state in enumerate((STATE, STATE, theirs)):
        engine.more.put_nowait(reading(n, state))
        await tasks.rest()
        assert told == n + 1
    assert len(said(controller)) == 2  # breaker and alarm
    leave()
    engine.more.put_nowait(reading(3))
    await tasks.rest()
    assert told == 3


async def test_an_alarm_that_goes_on_is_one_event(tasks: Tasks, steered: SteeredEngine) -> None:
    engine = ListedEngine([])
    controller = steered(engine)
    alarms = (None, "for 12 windows", "for 13 windows", "for 14 windows", None, "for 12 windows")
    for n, alarm in enumerate(alarms):
        engine.more.put_nowait(reading(n, replace(STATE, alarm=alarm)))
        await tasks.rest()
    assert said(controller) == ["alarm: for 12 windows"] * 2


async def test_one_request_at_a_time_and_the_last_wish_wins(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine = await begin_unanswered(tasks, steered)
    for k in (4, 3, 2):
        controller.wish(Change(k=k))
        await tasks.rest()
    assert [change.k for change in engine.asked] == [4]
    assert k_wanted(controller.track) == 2
    engine.answer.set()
    await tasks.rest()
    assert [(change.k, change.expect_version) for change in engine.asked] == [(4, 1), (2, 2)]
    assert controller.is_idle


async def test_an_engine_that_is_asked_does_not_keep_another_from_being_asked(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    first, second = ListedEngine(readings(3)), ListedEngine(readings(3), name="b", url="http://b")
    first.answer.clear()
    controller = steered(first, second)
    await tasks.rest()
    controller.change_k(-1)
    controller.select(1)
    controller.change_k(-2)
    await tasks.rest()
    assert [change.k for change in second.asked] == [3]
    assert controller.tracks[0].want == Change(k=4)
    assert controller.tracks[1].want is None
    controller.select(2)  # counted around
    assert controller.selected == 0


async def test_undo_takes_back_what_the_engine_has_not_answered_and_not_the_change_before(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine = ListedEngine(readings(3))
    controller = steered(engine)
    await tasks.rest()
    controller.toggle_mode()
    await tasks.rest()
    engine.answer.clear()
    controller.wish(Change(k=3))
    await tasks.rest()
    controller.undo(never)
    assert k_wanted(controller.track) == 5
    assert said(controller)[-1] == "the engine has not answered k 3: it is undone then"
    controller.undo(never)  # pressed again, as nothing seems to come of it
    engine.answer.set()
    await tasks.rest()
    assert [change.knobs() for change in engine.asked] == [
        {"mode": "target-only"}, {"k": 3}, {"k": 5},
    ]  # fmt: skip
    assert engine.asked[-1].origin == "undo"
    controller.undo(never)
    await tasks.rest()
    assert engine.state.mode == "speculate"


@pytest.mark.parametrize(
    ("press", "times", "last", "undone"),
    [
        (lambda controller: controller.wish(Change(k=3)), 2, {"k": 3}, {"k": 5}),
        (Controller.toggle_mode, 3, {"mode": "target-only"}, {"mode": "speculate"}),
    ],
)
async def test_keys_that_end_at_what_is_under_way_leave_nothing_that_is_sent_later(
    tasks: Tasks,
    steered: SteeredEngine,
    press: Callable[[Controller], None],
    times: int,
    last: dict[str, Any],
    undone: dict[str, Any],
) -> None:
    controller, engine = await begin_unanswered(tasks, steered)
    for _ in range(times):
        press(controller)
        await tasks.rest()
    engine.answer.set()
    await tasks.rest()
    assert [change.knobs() for change in engine.asked] == [last]
    assert controller.track.want is None
    controller.undo(never)
    await tasks.rest()
    assert [change.knobs() for change in engine.asked] == [last, undone]


async def test_what_is_asked_for_again_after_its_undo_can_be_undone(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine = await begin_unanswered(tasks, steered)
    controller.change_k(-1)
    await tasks.rest()
    controller.undo(never)
    controller.change_k(-1)
    engine.answer.set()
    await tasks.rest()
    assert [change.knobs() for change in engine.asked] == [{"k": 4}]
    controller.undo(never)
    await tasks.rest()
    assert [change.knobs() for change in engine.asked] == [{"k": 4}, {"k": 5}]


async def test_what_is_asked_for_with_an_undo_is_undone_without_it(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine = await begin_unanswered(tasks, steered)
    controller.change_k(-1)
    await tasks.rest()
    controller.undo(never)
    controller.toggle_mode()
    engine.answer.set()
    await tasks.rest()
    controller.undo(never)
    await tasks.rest()
    assert [change.knobs() for change in engine.asked] == [
        {"k": 4}, {"k": 5, "mode": "target-only"}, {"mode": "speculate"},
    ]  # fmt: skip


async def test_undo_takes_wishes_back_one_by_one_before_they_are_sent(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine = await begin_unanswered(tasks, steered)
    controller.wish(Change(k=3))
    await tasks.rest()
    for wanted in (Change(k=2), Change(mode="target-only")):
        controller.wish(wanted)
    controller.undo(never)
    assert said(controller)[-1] == "taken back before it was sent: mode target-only"
    assert controller.track.want is not None
    assert controller.track.want.knobs() == {"k": 2}
    controller.undo(never)
    assert k_wanted(controller.track) == 3
    controller.undo(never)
    controller.wish(Change(mode="target-only"))  # stays, asked for after the undo
    engine.answer.set()
    await tasks.rest()
    assert [change.knobs() for change in engine.asked] == [
        {"k": 3}, {"k": 5, "mode": "target-only"},
    ]  # fmt: skip


async def test_after_a_conflict_the_engine_is_looked_at_at_once_and_the_next_press_goes_through(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine = ListedEngine(readings(3))
    controller = steered(engine, interval=30.0)
    await tasks.rest()
    engine.refuse_with = Conflict("the engine is at version 2, changed by bob")
    controller.toggle_mode()
    await tasks.rest()
    assert engine.looks == 1
    engine.refuse_with = None
    engine.more.put_nowait(changed(3, "bob"))
    await tasks.rest()
    assert said(controller)[-1] == "bob changed k 5 → 4"
    controller.toggle_mode()
    await tasks.rest()
    assert engine.asked[-1].expect_version == 2


async def test_the_breaker_is_turned_from_what_was_asked_for_last(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine = TunedEngine(readings(3, replace(STATE, capabilities=ABLE)), TunedClient(tuning()))
    controller = steered(engine)
    await tasks.rest()
    for wanted in ("open", "closed", "open"):
        controller.toggle_breaker()
        assert controller.track.want is not None
        assert controller.track.want.breaker == wanted


async def test_an_engine_whose_page_alone_fails_is_steered(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine = ListedEngine(readings(3))
    controller = steered(engine)
    await tasks.rest()
    engine.state = theirs = replace(STATE, version=7)
    engine.more.put_nowait(replace(down(3), unmeasured=theirs))
    await tasks.rest()
    controller.toggle_mode()
    await tasks.rest()
    assert [(one.mode, one.expect_version) for one in engine.asked] == [("target-only", 7)]
    assert controller.track.known is not None
    assert controller.track.known.mode == "target-only"
    engine.more.put_nowait(down(4))
    await tasks.rest()
    controller.toggle_mode()
    assert said(controller)[-1] == "the engine is down: its state is on the screen"


@pytest.mark.parametrize("error", [Conflict("changed by bob"), NoReply("gave no answer")])
async def test_undo_of_a_change_that_was_not_made_undoes_nothing(
    tasks: Tasks, steered: SteeredEngine, error: EngineError
) -> None:
    engine, now = ListedEngine(readings(3)), 0.0
    controller = steered(engine, steady=lambda: now)
    await tasks.rest()
    controller.wish(Change(k=4))
    await tasks.rest()
    engine.answer.clear()
    controller.wish(Change(k=3))
    await tasks.rest()
    controller.undo(never)
    engine.refuse_with = error
    engine.answer.set()
    await tasks.rest()
    now = LOST_S
    for n in (3, 4):
        engine.more.put_nowait(reading(n, engine.state))
    await tasks.rest()
    assert [change.k for change in engine.asked] == [4, 3]
    assert controller.track.undo.latest is not None
    assert controller.track.undo.latest.k == 5
    engine.refuse_with = None
    controller.undo(never)
    if isinstance(error, NoReply):  # it may be made yet, and nobody may take it for that one
        assert said(controller)[-1] == (
            "not known whether k 3 was made: change.undo again undoes the change before it"
        )
        controller.undo(never)
    await tasks.rest()
    assert [change.k for change in engine.asked] == [4, 3, 5]


async def test_undo_of_a_trial_that_is_being_asked_for_ends_it_once_it_has_begun(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    able = replace(STATE, capabilities=ABLE)
    engine = TunedEngine(readings(3, able), TunedClient(replace(tuning(), trial=TRIAL)))
    engine.trial = 1
    engine.client.states.append(able)
    engine.answer.clear()
    controller = steered(engine)
    await tasks.rest()
    controller.wish(Change(k=3, trial_s=60.0))
    await tasks.rest()
    controller.undo(never)
    engine.answer.set()
    await tasks.rest()
    assert [(one.judge, one.cancel, one.trial) for one in engine.asked[:2]] == [
        (True, False, None), (False, True, 1),
    ]  # fmt: skip


def working(n: int, state: EngineState, drafted: float, step: int) -> Reading:
    """The `n`-th reading of an engine that has drafted so much in 100 drafts a reading."""
    found = reading(n, replace(state, step=step))
    assert found.sample is not None
    sample = replace(found.sample, drafts=100.0 * n, drafted=drafted, generated=300.0 * n)
    return replace(found, sample=sample)


async def test_the_audit_log_has_what_was_observed_of_a_key(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine, audit, now = ListedEngine([working(0, STATE, 0.0, 5)]), MemoryAudit(), 0.5
    controller = steered(engine, audit=audit, steady=lambda: now)
    await tasks.rest()
    controller.wish(Change(k=3))
    await tasks.rest()
    (action,) = audit.actions
    assert (action.before, action.after, action.observed) == ({"k": 5}, {"k": 3}, None)
    assert controller.track.proofs_awaited == 1
    # The change is applied in step 7: only what is drafted well after it is a proof.
    for n, drafted in enumerate((500.0, 1000.0, 1300.0, 1600.0), 1):
        engine.more.put_nowait(working(n, engine.state, drafted, 5 + 4 * n))
    await tasks.rest()
    assert [action.observed for action in audit.actions] == [3.0]
    assert said(controller)[1:] == ["observed k 3.0 · 3500 ms after the request"]
    assert controller.track.proofs_awaited == 0


async def test_the_next_change_does_not_wait_for_the_proof_of_the_one_before(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine, audit = ListedEngine(readings(3)), MemoryAudit()
    controller = steered(engine, audit=audit)
    await tasks.rest()
    for k in (4, 3):
        controller.wish(Change(k=k))
        await tasks.rest()
    assert [action.after for action in audit.actions] == [{"k": 4}, {"k": 3}]


def changed(n: int, who: str = "ann") -> Reading:
    """The `n`-th reading of an engine that somebody has had draft 4 tokens."""
    last = LastChange(START + 1, who, None, {"k": 5}, {"k": 4})
    return reading(n, replace(STATE, k=4, k_set=4, version=2, last_change=last))


async def test_a_key_whose_reply_is_lost_is_found_in_the_readings_and_in_the_audit_log(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine, audit = ListedEngine(readings(3)), MemoryAudit()
    engine.refuse_with = NoReply("closed the connection")
    controller = steered(engine, audit=audit, steady=lambda: 0.0)
    await tasks.rest()
    controller.change_k(-1)
    await tasks.rest()
    assert not controller.is_idle
    for n in (3, 4):
        engine.more.put_nowait(changed(n))
    await tasks.rest()
    assert [(one.before, one.after) for one in audit.actions] == [({"k": 5}, {"k": 4})]
    assert controller.is_idle
    engine.refuse_with = None
    controller.change_k(-1)
    await tasks.rest()
    assert [one.after for one in audit.actions] == [{"k": 4}, {"k": 3}]


@pytest.mark.parametrize("restarted", [True, False])
async def test_an_answer_of_the_engine_before_its_restart_says_nothing_about_it_now(
    tasks: Tasks, steered: SteeredEngine, restarted: bool
) -> None:
    engine = ListedEngine(readings(3))
    controller = steered(engine, audit=MemoryAudit(), steady=lambda: 0.0)
    await tasks.rest()
    engine.answer.clear()
    controller.change_k(-1)
    await tasks.rest()
    reborn = replace(STATE, instance="another", version=0)
    engine.more.put_nowait(reading(3, reborn, window=None, restarted=restarted))
    await tasks.rest()
    engine.answer.set()
    await tasks.rest()
    assert said(controller)[-1].endswith("by another start of the engine, not by this")
    engine.more.put_nowait(reading(4, reborn))
    await tasks.rest()
    track = controller.track
    assert track.state is not None
    assert (track.want, track.state.k_set, track.version) == (None, STATE.k_set, 0)
    assert track.undo.latest is None
    assert [one.k for one in engine.asked] == [4]


async def test_a_key_that_never_reached_the_engine_does_not_hold_up_the_next_one(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine, audit, now = ListedEngine(readings(3)), MemoryAudit(), 0.0
    engine.refuse_with = NoReply("closed the connection")
    controller = steered(engine, audit=audit, steady=lambda: now)
    await tasks.rest()
    controller.change_k(-1)
    await tasks.rest()
    now = LOST_S
    for n in (3, 4):
        engine.more.put_nowait(reading(n))
    await tasks.rest()
    assert said(controller)[-1] == "not known whether it was changed: closed the connection"
    assert controller.is_idle
    assert [one.outcome for one in audit.actions] == ["unknown"]


async def test_a_change_that_the_engine_makes_late_is_this_consoles_and_can_be_undone(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine, now = ListedEngine(readings(3)), 0.0
    engine.refuse_with = NoReply("gave no answer for 5 s")
    controller = steered(engine, audit=MemoryAudit(), steady=lambda: now)
    await tasks.rest()
    controller.change_k(-1)
    await tasks.rest()
    now = LOST_S
    for n in (3, 4):
        engine.more.put_nowait(reading(n))
    await tasks.rest()
    assert said(controller)[-1].startswith("not known whether it was changed: ")
    for _ in range(2):
        controller.undo(never)
        assert said(controller)[-1] == (
            "not known whether k 4 was made: change.undo undoes it once a reading tells of it"
        )
    engine.more.put_nowait(changed(5))
    await tasks.rest()
    assert said(controller)[-1] == "k 5 → 4: made late, as asked for here"
    asked = controller.track.undo.latest
    assert asked is not None
    assert (asked.k, asked.origin) == (5, "undo")


@dataclass
class Time:
    """A clock that runs while somebody sleeps, which is as often as the test lets them."""

    now: float = 0.0
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await self.turns.acquire()
        self.now += seconds


async def on_trial(
    tasks: Tasks, steered: SteeredEngine, trial: TrialTuning, number: int | None = 1
) -> tuple[Controller, TunedEngine, Time, MemoryAudit]:
    """A trial of k=3 that has begun."""
    client, time, audit = TunedClient(replace(tuning(), trial=trial)), Time(), MemoryAudit()
    engine = TunedEngine(readings(3, replace(STATE, capabilities=ABLE)), client)
    engine.trial = number
    client.states.append(replace(STATE, capabilities=ABLE))
    controller = steered(engine, audit=audit, steady=time, sleep=time.sleep)
    await tasks.rest()
    controller.wish(Change(k=3, trial_s=60.0, reason="trial"))
    await tasks.rest()
    return controller, engine, time, audit


async def test_a_trial_is_renewed_well_within_its_lease_and_its_end_is_told(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine, time, audit = await on_trial(tasks, steered, TRIAL)
    begun = [time.now]
    for _ in range(9):
        time.turns.release()
        asked = len(engine.asked)
        await tasks.rest()
        begun += [time.now] * (len(engine.asked) - asked)
    assert engine.asked[0].lease_s == 10.0
    assert {(each.renew, each.lease_s, each.trial) for each in engine.asked[1:]} == {
        (True, 10.0, 1)
    }
    assert max(later - sooner for sooner, later in pairwise(begun)) <= 5.0
    engine.client.told = replace(tuning(), trial=replace(TRIAL, state="kept", comparison=WON))
    engine.client.states.append(replace(STATE, k=3, k_set=3))
    time.turns.release()
    await tasks.rest()
    assert said(controller)[-1].startswith("trial k 5 → 3 kept: better: tokens/s +7.0 %")
    assert [action.reason for action in audit.actions] == ["on trial: trial", "trial kept: None"]


async def test_a_kept_trial_whose_k_nothing_is_drafted_by_is_told(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine, time, _ = await on_trial(tasks, steered, TRIAL)
    engine.client.told = replace(tuning(), trial=replace(TRIAL, state="kept", comparison=WON))
    engine.client.states.append(replace(STATE, k=0, k_set=3, breaker="open"))
    time.turns.release()
    await tasks.rest()
    assert said(controller)[-1] == "k 3 is stored: it takes effect when the breaker closes"


async def test_a_kept_trial_that_the_state_contradicts_is_told(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    kept = replace(TRIAL, state="kept", comparison=WON)
    controller, _, _, _ = await on_trial(tasks, steered, kept)
    assert said(controller)[-1].startswith("NOT made: the engine says that it kept the change")


async def test_a_trial_that_is_over_is_no_longer_renewed(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    over = replace(TRIAL, state="reverted", reason="ann changed k")
    _, engine, time, _ = await on_trial(tasks, steered, over)
    time.turns.release()
    await tasks.rest()
    assert [change.judge for change in engine.asked] == [True]


def never(trial: KnownTrial) -> None:
    raise AssertionError(f"it is asked about {trial}")


async def trying(
    tasks: Tasks, steered: SteeredEngine, trial: TrialTuning | None
) -> tuple[Controller, TunedEngine]:
    """A trial is under way that this console has not begun; None is one that nothing is told of."""
    changed = LastChange(START, "ann", None, {"k": 5}, {"k": 2}, "operator")  # of before
    state = replace(STATE, capabilities=ABLE, trial="changed", last_change=changed)
    engine = TunedEngine([], TunedClient(replace(tuning(), trial=trial)))
    controller = steered(engine)
    for n in range(3):
        engine.more.put_nowait(reading(n, state if n else replace(state, trial=None)))
        await tasks.rest()
    return controller, engine


@pytest.mark.parametrize(("who", "number"), [("ann", 1), ("bob", 3), (None, None), ("bob", 0)])
async def test_undo_asks_before_it_ends_a_trial_that_this_console_has_not_begun(
    tasks: Tasks, steered: SteeredEngine, who: str | None, number: int | None
) -> None:
    told = None if who is None else replace(TRIAL, who=who, number=number or 0)
    controller, engine = await trying(tasks, steered, told)
    asked: list[KnownTrial] = []
    controller.undo(asked.append)
    await tasks.rest()
    assert (asked, engine.asked) == ([KnownTrial(who, number or None)], [])
    controller.end_trial(asked[0], asked.append)
    await tasks.rest()
    assert [(change.cancel, change.trial) for change in engine.asked] == [(True, number or None)]


async def test_undo_asks_of_a_trial_that_runs_before_the_first_reading(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    state = replace(STATE, capabilities=ABLE, trial="changed")
    engine = TunedEngine(readings(1, state), TunedClient(replace(tuning(), trial=TRIAL)))
    controller, asked = steered(engine), list[KnownTrial]()
    await tasks.rest()
    controller.undo(asked.append)
    assert (asked, engine.asked) == ([KnownTrial("ann", 1)], [])


async def test_no_trial_is_ended_for_another_one_that_was_asked_about(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine = await trying(tasks, steered, replace(TRIAL, who="bob"))
    asked: list[KnownTrial] = []
    controller.undo(asked.append)
    engine.client.told = replace(tuning(), trial=replace(TRIAL, who="bob", number=2))
    await controller.refresh_tuning(0)
    controller.end_trial(asked[0], asked.append)
    await tasks.rest()
    assert [one.number for one in asked] == [1, 2]
    state = controller.track.state
    assert state is not None
    engine.more.put_nowait(reading(3, replace(state, trial=None)))
    await tasks.rest()
    controller.end_trial(asked[1], asked.append)
    await tasks.rest()
    assert said(controller)[-1] == "nothing to undo: the trial has ended"
    assert engine.asked == []


async def test_a_trial_that_this_console_attends_is_its_own_before_the_engine_says(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller, engine, _, _ = await on_trial(tasks, steered, TRIAL, number=1)
    engine.client.told = None
    state = replace(STATE, capabilities=ABLE, trial="baseline")
    engine.more.put_nowait(reading(3, state))
    await tasks.rest()
    assert controller.track.tuning is None
    controller.undo(never)
    await tasks.rest()
    assert [(one.cancel, one.trial) for one in engine.asked[-1:]] == [(True, 1)]


@pytest.mark.parametrize("number", [1, None])
async def test_a_trial_that_was_replaced_is_no_longer_renewed(
    tasks: Tasks, steered: SteeredEngine, number: int | None
) -> None:
    controller, engine, time, _ = await on_trial(tasks, steered, TRIAL, number)
    engine.client.told = replace(tuning(), trial=replace(TRIAL, who="bob", number=2))
    for _ in range(4):
        time.turns.release()
        await tasks.rest()
    assert sum(change.renew for change in engine.asked) <= 1
    assert said(controller)[-1].startswith("another trial took its place")


async def test_a_sweep_is_in_the_audit_log_before_its_first_change(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    audit, now, entries = MemoryAudit(), 0.0, list[int]()

    class Client(TunedClient):
        async def put(self, change: Change) -> AppliedChange:
            entries.append(len(audit.actions))
            return await super().put(change)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await asyncio.sleep(0)

    client = Client(tuning())
    client.states = [replace(STATE, capabilities=ABLE)]
    engine = TunedEngine(readings(3, client.states[0]), client)
    controller = steered(engine, audit=audit, steady=lambda: now, sleep=sleep)
    await tasks.rest()
    assert controller.toggle_sweep()
    await tasks.end_of("sweep")
    assert entries[0] == 1
    first, last = audit.actions
    assert (first.before["k"], first.after, first.reason) == (5, {"k": "0,1,2,3,4,5"}, "sweep")
    assert (last.after["k"], last.reason) == (5, "end of sweep: best k=3")


@asynccontextmanager
async def sweeping(
    tasks: Tasks, steered: SteeredEngine
) -> AsyncIterator[tuple[Controller, asyncio.Event]]:
    """A sweep under way; the event lets a cancelled one come to its end."""
    ended = asyncio.Event()

    class Client(TunedClient):
        """Takes its time to give up."""

        async def state(self) -> EngineState:
            try:
                return await asyncio.Future()
            finally:
                await ended.wait()

    engine = TunedEngine(readings(3, replace(STATE, capabilities=ABLE)), Client(tuning()))
    controller = steered(engine)
    await tasks.rest()
    assert controller.toggle_sweep()
    await tasks.rest()
    assert controller.track.is_sweeping
    yield controller, ended


async def test_a_third_press_does_not_end_what_gives_k_back(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    async with sweeping(tasks, steered) as (controller, ended):
        for _ in range(2):
            controller.toggle_sweep()
            await tasks.rest()
        assert controller.track.is_sweeping  # a second cancellation would have ended it
        ended.set()
        await tasks.rest()
        assert said(controller)[-1] == "sweep stopped: by hand"
        assert not controller.track.is_sweeping


async def test_a_key_that_stops_a_sweep_and_is_pressed_on_and_on_begins_none(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    now = 0.0
    engine = TunedEngine(readings(3, replace(STATE, capabilities=ABLE)), TunedClient(tuning()))
    controller = steered(engine, steady=lambda: now)
    await tasks.rest()
    assert controller.toggle_sweep()
    for _ in range(20):
        assert not controller.toggle_sweep()
        await tasks.rest()
        now += 0.3
    assert not controller.track.is_sweeping
    now += 1.0
    assert controller.toggle_sweep()


async def test_a_sweep_that_is_stopped_before_it_began_asks_nothing(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    engine = TunedEngine(readings(3, replace(STATE, capabilities=ABLE)), TunedClient(tuning()))
    controller = steered(engine)
    await tasks.rest()
    controller.toggle_sweep()
    controller.toggle_sweep()
    await tasks.rest()
    assert not controller.track.is_sweeping
    assert said(controller) == []


async def test_a_key_that_is_refused_again_and_again_is_one_event(
    tasks: Tasks, steered: SteeredEngine
) -> None:
    controller = steered(ListedEngine(readings(2)))
    await tasks.rest()
    why = "k_max is 5: the engine's buffers are sized by it: start it with num_speculative_tokens 9"
    for _ in range(60):
        controller.wish(Change(k=9))
    assert said(controller) == [f"{why} · 60 times"]
    controller.wish(Change(k=-1))
    controller.wish(Change(k=9))
    assert said(controller)[1:] == ["k is 0 already: + drafts again", why]
