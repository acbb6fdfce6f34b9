"""A trial is kept alive while somebody watches, and taken back when he stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.control.attend import attend, begun
from specdeck.engine.control.protocol import Applied, Change
from specdeck.engine.control.tuning import BreakerTuning, TrialTuning, Tuning
from specdeck.engine.errors import EngineError, Unreachable

CHANGE = Change(k=3, judge=True, trial_s=60, lease_s=10, who="ana")


@dataclass
class Engine:
    """Answers as the plugin does; every look at it takes a second."""

    states: list[Any]
    instance: str = "one"
    now: float = 0.0
    deaf_to_renewals: int = 0
    deaf_to_cancels: bool = False
    named: int | None = None
    """The trial's number in the answer to a change; an older plugin names none."""
    number: int = 1
    """Of the trial under way."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    renewed: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            self.asked.append(json.loads(request.content))
            if self.asked[-1].get("renew") and self.deaf_to_renewals:
                self.deaf_to_renewals -= 1
                raise httpx.ConnectError("refused")
            if self.asked[-1].get("renew"):
                self.renewed.set()
            if self.asked[-1].get("cancel") and self.deaf_to_cancels:
                raise httpx.ConnectError("refused")
            knobs = {"before": {"k": 5}, "applied": {"k": 3}}
            return httpx.Response(200, json={**knobs, "version": 1, "step": 7, "trial": self.named})
        if request.url.path == "/metrics":
            return httpx.Response(200, text="")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return httpx.Response(200, json=self.tuning(state).as_json())

    def tuning(self, state: Any) -> Tuning:
        over = state not in ("baseline", "changed", "replaced")
        state = "changed" if state == "replaced" else state
        trial = TrialTuning(
            state, "ana", {"k": 5}, {"k": 3}, 60.0, 1.0, number=self.number,
            reason="better" if over else None, seconds_left=None if over else 30.0,
        )  # fmt: skip
        return Tuning(
            self.instance, 1, 0.0, "fixed", None, ((1, 8, 3),), (), BreakerTuning("closed", False),
            trial,
        )  # fmt: skip

    async def sleep(self, seconds: float) -> None:
        self.now += 1.0
        await asyncio.sleep(0)

    def client(self) -> EngineClient:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self), base_url="http://engine")
        return EngineClient(http, url="http://engine", token=lambda: "t")

    async def attended(self, told: Callable[[TrialTuning], None] = lambda _: None) -> Any:
        return await attend(self.client(), CHANGE, told, clock=lambda: self.now, sleep=self.sleep)


async def test_the_lease_is_renewed_until_the_verdict() -> None:
    engine, told = Engine(["baseline", *["changed"] * 9, "kept"]), []
    outcome = await engine.attended(lambda trial: told.append(trial.state))
    renewals = [ask for ask in engine.asked if ask.get("renew")]
    assert len(renewals) == 3
    assert all(ask == {"renew": True, "lease_s": 10} for ask in renewals)
    assert told[0] == "baseline"
    assert told[-1] == "kept"
    found = outcome.as_json()
    assert (found["applied"], found["before"]) == ({"k": 3}, {"k": 5})
    assert found["trial"]["state"] == "kept"
    assert found["undo"] == "specdeck set http://engine k=5"


@pytest.mark.parametrize("end", ["reverted", "abandoned"])
async def test_what_was_taken_back_is_not_said_to_be_in_force(end: str) -> None:
    outcome = await Engine(["changed", end]).attended()
    assert outcome.as_json()["applied"] == {"k": 5}


async def test_a_watcher_that_is_stopped_takes_the_change_back() -> None:
    engine = Engine(["changed"])
    task = asyncio.ensure_future(engine.attended())
    await engine.renewed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.asked[-1]["cancel"] is True


async def test_an_engine_started_anew_in_mid_trial_is_said_to_be() -> None:
    engine = Engine(["changed"])

    def restarted(trial: TrialTuning) -> None:
        engine.instance = "two"

    with pytest.raises(EngineError, match="started anew in mid-trial"):
        await engine.attended(restarted)


async def test_an_engine_that_is_silent_for_a_moment_is_waited_for() -> None:
    gone = httpx.ConnectError("refused")
    outcome = await Engine(["changed", gone, gone, gone, "changed", "kept"]).attended()
    assert outcome.trial is not None
    with pytest.raises(Unreachable):
        await Engine(["changed", gone]).attended()


async def test_a_renewal_that_does_not_get_through_is_tried_again() -> None:
    engine = Engine(["baseline", *["changed"] * 9, "kept"], deaf_to_renewals=2)
    outcome = await engine.attended()
    assert outcome.trial is not None
    assert outcome.trial["state"] == "kept"
    assert sum("renew" in ask for ask in engine.asked) >= 4


async def stopped(engine: Engine) -> tuple[str, list[dict[str, Any]]]:
    """What is said of a trial whose watcher is stopped, and what is asked from then on."""
    words: list[str] = []
    told, at_work = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        told.set()
        await at_work.wait()

    task = asyncio.ensure_future(
        attend(engine.client(), CHANGE, clock=lambda: 0.0, sleep=sleep, stopped=words.append)
    )
    await told.wait()
    before = len(engine.asked)
    if engine.states[0] == "replaced":
        engine.states, engine.number = ["changed"], 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (said,) = words
    return said, engine.asked[before:]


async def test_renewals_name_the_trial_that_was_begun() -> None:
    engine = Engine(["baseline", *["changed"] * 9, "kept"], named=1)
    await engine.attended()
    renewals = [ask for ask in engine.asked if ask.get("renew")]
    assert renewals == [{"renew": True, "lease_s": 10, "trial": 1}] * 3


async def test_a_trial_that_took_the_place_of_ours_is_not_taken_for_it() -> None:
    engine = Engine(["changed"], named=1, number=2)
    with pytest.raises(EngineError, match="another trial took its place"):
        await engine.attended()
    assert len(engine.asked) == 1


@pytest.mark.parametrize(("named", "how"), [(1, ("trial", 1)), (None, ("expect_version", 1))])
async def test_what_is_taken_back_is_the_trial_that_was_begun(
    named: int | None, how: tuple[str, int]
) -> None:
    said, asked = await stopped(Engine(["changed"], named=named))
    assert said == "the change is taken back"
    assert asked == [{"cancel": True, "who": "ana", "reason": "interrupted", how[0]: how[1]}]


@pytest.mark.parametrize("named", [1, None])
async def test_a_stopped_watcher_leaves_alone_what_is_not_its_own(named: int | None) -> None:
    said, asked = await stopped(Engine(["replaced"], named=named))
    assert (said, asked) == ("another trial took its place", [])


async def test_a_trial_that_was_kept_is_not_said_to_be_taken_back() -> None:
    said, asked = await stopped(Engine(["changed", "kept"], named=1))
    assert (said, asked) == ("the trial had ended: kept; undo: specdeck set http://engine k=5", [])


async def test_a_take_back_that_does_not_get_through_is_left_to_the_lease() -> None:
    said, _ = await stopped(Engine(["changed"], named=1, deaf_to_cancels=True))
    assert said == "the engine takes the change back within 10 s"
    said, asked = await stopped(Engine(["changed", httpx.ConnectError("refused")], named=1))
    assert (said, asked) == ("the engine takes the change back within 10 s", [])


@pytest.mark.parametrize("ask", [attend, begun])
async def test_the_engines_word_is_passed_on_before_anything_else_is_asked(ask: Any) -> None:
    engine, heard = Engine([httpx.ConnectError("refused")], named=1), list[Applied]()
    with suppress(Unreachable):
        await ask(engine.client(), CHANGE, answered=heard.append, clock=lambda: 0.0)
    assert [(word.before, word.trial) for word in heard] == [({"k": 5}, 1)]


async def test_a_trial_left_to_an_engine_that_cannot_be_asked_is_begun_all_the_same() -> None:
    outcome = await begun(Engine([httpx.ConnectError("refused")]).client(), CHANGE)
    assert (outcome.before, outcome.trial) == ({"k": 5}, None)
    assert "not seen yet" in outcome.notices[-1]
    outcome = await begun(Engine(["baseline"], named=1, number=2).client(), CHANGE)
    assert outcome.trial is None
