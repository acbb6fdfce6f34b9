from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

import httpx
import pytest
from tests.support.memory_audit import MemoryAudit

from specdeck.engine.client.engine_client import EngineClient, open_client
from specdeck.engine.client.secret import Secret
from specdeck.engine.errors import (
    EngineError,
    NoReply,
    NotAnEngine,
    Stalled,
    Unauthorized,
    Unreachable,
    Unsupported,
)
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.scrape import Scraper
from specdeck.engine.operations.change import (
    IDLE_S,
    ChangeApplied,
    ChangeEvent,
    ChangeNotObserved,
    ChangeObserved,
    ChangeRequested,
    Look,
    Proof,
    ReadingFeed,
    as_applied,
    is_made,
    make_change,
    poll,
)
from specdeck.engine.operations.record import NotRecorded
from specdeck.engine.protocol.messages import AppliedChange, Change, EngineState, LastChange
from specdeck.engine.store.audit import Action

URL = "http://engine:8000"
State = Callable[..., EngineState]


def page(drafts: float, drafted: float, generated: float) -> str:
    rows = {
        "vllm:spec_decode_num_drafts_total": drafts,
        "vllm:spec_decode_num_draft_tokens_total": drafted,
        "vllm:generation_tokens_total": generated,
        "other": 0.0,
    }
    return "".join(
        f'{name}{{engine="0",model_name="demo"}} {value}\n' for name, value in rows.items()
    )


class SteppingEngine:
    """An engine that makes `pace` steps each time its state is asked, drafting k in each.

    A step verifies the drafts of the step before, so a change shows one step late.
    """

    def __init__(self, state: EngineState, *, pace: int = 2, lengths: tuple[int, ...] = ()) -> None:
        self.k, self.k_set, self.mode = state.k, state.k_set, state.mode
        self.state = state
        self.log = MemoryAudit()
        self.version = 0
        self.pace = pace
        self._lengths: Iterator[int] = iter(lengths * 1000)
        self._waiting_draft = state.k
        self.step, self.drafts, self.drafted, self.generated = 100, 0, 0, 0
        self.fails: Exception | None = None
        self.loses: str | None = None
        """Of a change: its `reply`, or the `request`; or the `core` makes it later."""
        self.last: dict[str, Any] | None = None
        self.asked: list[Action] = []
        """The audit log's newest entry when the engine was asked."""
        self.silent_for = 0
        self.is_deaf = False
        """Whether it acknowledges a k and goes on as it was."""
        self.rests_at: int | None = None
        """The step after which it has no request; None where it always has some."""
        self.says: dict[str, Any] | None = None
        """What it says that it applied, where that is not what it was asked for."""
        self.maker: str | None = None
        """The life that says it has made the change; None of a plugin that tells none."""
        self.states: dict[str, Any] = {}
        """What its state has in place of the truth."""
        self.page: Callable[[float, float, float], str] = page
        """What its metrics make of drafts, draft tokens and generated tokens."""
        self.now = 0.0

    def client(self, token: str | None = "secret") -> EngineClient:
        return open_client(
            URL,
            token=lambda: Secret(token) if token else None,
            transport=httpx.MockTransport(self.answer),
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.now += 0.01
        if request.method == "PUT":
            return self._change(json.loads(request.content))
        if self.silent_for:
            self.silent_for -= 1
            raise httpx.ReadTimeout("")
        if self.fails:
            raise self.fails
        if request.url.path == "/metrics":
            text = self.page(self.drafts, self.drafted, self.generated)
            return httpx.Response(200, text=text)
        if self.rests_at is not None and self.step >= self.rests_at:
            self.pace = 0
        for _ in range(self.pace):
            self._make_step()
        busy = {"running": 4 if self.pace else 0, "step": self.step, "k": self.k}
        busy |= {"version": self.version, "k_set": self.k_set}
        now = {**self.state.as_json(), **busy, "mode": self.mode, "last_change": self.last}
        now |= self.states
        return httpx.Response(200, json=now)

    def _make_step(self) -> None:
        self.step += 1
        self.generated += 1
        if self._waiting_draft:
            self.drafts += 1
            self.drafted += self._waiting_draft
        self._waiting_draft = min(self.k, next(self._lengths, self.k))

    def _change(self, asked: dict[str, Any]) -> httpx.Response:
        self.asked = self.log.actions[-1:]
        if self.loses == "request":
            raise httpx.ReadTimeout("")
        before = {"k": self.k_set, "mode": self.mode}
        self.version += 1
        self.k_set = asked.get("k", self.k_set)
        self.mode = asked.get("mode", self.mode)
        if not self.is_deaf:
            self.k = 0 if self.mode == "target-only" else self.k_set
        reply = {
            "before": {knob: before[knob] for knob in ("k", "mode") if knob in asked},
            "applied": {knob: asked[knob] for knob in ("k", "mode") if knob in asked},
            "version": self.version,
            "step": self.step,
            "instance": self.maker,
        }
        if self.says is not None:
            return httpx.Response(200, json={**reply, "applied": self.says})
        who, t = asked.get("who", ""), 1000.0 + self.now
        changed = {"before": reply["before"], "after": reply["applied"]}
        self.last = {"t": t, "who": who, "reason": None, **changed}
        if self.loses == "core":
            stalled = {
                "code": "stalled",
                "message": "the engine core has not answered for 4 s",
                "remedy": None,
            }
            return httpx.Response(503, json={"error": stalled})
        if self.loses == "reply":
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        if self.loses == "gateway":
            return httpx.Response(502, text="Bad Gateway")
        if self.loses == "page":
            return httpx.Response(200, text="<html>")
        if self.loses == "half of the reply":
            raise httpx.RemoteProtocolError("peer closed connection (incomplete chunked read)")
        return httpx.Response(200, json=reply)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def make(
        self, change: Change, *, asking: EngineClient | None = None
    ) -> AsyncGenerator[ChangeEvent, None]:
        """Makes a change as the command line does: it asks for every look."""
        asking = asking or self.client()
        return make_change(
            asking,
            change,
            name="demo",
            known=self.state,
            looks=poll(asking, clock=self.clock, sleep=self.sleep),
            audit=self.log,
            clock=self.clock,
            wall=lambda: 1000.0 + self.now,
            idle_s=IDLE_S,
        )

    async def events(self, change: Change) -> list[ChangeEvent]:
        return [event async for event in self.make(change)]

    async def end(self, change: Change) -> ChangeEvent:
        return (await self.events(change))[-1]


class PromptEngine(SteppingEngine):
    """One whose requests come one after the other: `rest` steps follow the end of a prompt, whose
    token comes from no draft."""

    def __init__(self, state: EngineState, *, pace: int, rest: int = 5) -> None:
        super().__init__(state, pace=pace)
        self.rest, self.starts = rest, 0
        self.states = {"running": 1}
        self.page = self._page

    def _make_step(self) -> None:
        if self.step % (self.rest + 1):
            super()._make_step()
        else:
            self.step += 1
            self.generated += 1
            self.starts += 1

    def _page(self, drafts: float, drafted: float, generated: float) -> str:
        buckets = (("0.1", 0), ("+Inf", self.starts))
        ttft = "".join(
            f'vllm:time_to_first_token_seconds_bucket{{engine="0",model_name="demo",le="{bound}"}}'
            f" {count}\n"
            for bound, count in buckets
        )
        return page(drafts, drafted, generated) + ttft


@pytest.mark.parametrize("pace", [1, 2, 50])
@pytest.mark.parametrize("k", [1, 3, 4])
async def test_the_observed_k_is_of_steps_after_the_change(state: State, k: int, pace: int) -> None:
    requested, applied, observed = await SteppingEngine(state(), pace=pace).events(Change(k=k))
    assert isinstance(requested, ChangeRequested)
    assert isinstance(applied, ChangeApplied)
    assert isinstance(observed, ChangeObserved)
    assert observed.k == k
    assert observed.after_ms > applied.ack_ms == pytest.approx(10.0)
    assert applied.undo == f"specdeck set {URL} k=5"


async def test_a_change_is_in_the_audit_log_once_applied_and_has_its_observed_value_once_seen(
    state: State,
) -> None:
    engine = SteppingEngine(state())
    async with aclosing(engine.make(Change(k=3, who="ana", reason="try"))) as events:
        async for event in events:
            assert len(engine.log.actions) == (not isinstance(event, ChangeRequested))
            if isinstance(event, ChangeApplied):
                assert engine.log.actions[0].observed is None
    undo = f"specdeck set {URL} k=5"
    assert engine.log.actions == [
        Action(1000.01, "ana", URL, "demo", {"k": 5}, {"k": 3}, undo, "one", "try", 3.0, "operator")
    ]


@pytest.mark.parametrize("loses", ["reply", "half of the reply", "gateway", "page", "core"])
async def test_a_change_whose_reply_is_lost_is_found_in_the_state_and_in_the_audit_log(
    state: State, loses: str
) -> None:
    engine = SteppingEngine(state())
    engine.loses = loses
    _, applied, observed = await engine.events(Change(k=3, who="ana"))
    assert isinstance(applied, ChangeApplied)
    assert applied.applied.notices == ("the reply was lost; the engine's state shows the change",)
    assert applied.undo == f"specdeck set {URL} k=5"
    assert isinstance(observed, ChangeObserved)
    assert [(one.before, one.after, one.observed) for one in engine.log.actions] == [
        ({"k": 5}, {"k": 3}, 3.0)
    ]


def test_of_a_change_that_is_found_in_the_state_those_knobs_are_told_that_it_turned(
    state: State,
) -> None:
    knobs = {"k": 5, "mode": "speculate", "policy": "goodput", "breaker.windows": 3}
    last = LastChange(1.0, "ana", None, knobs, {**knobs, "policy": "fixed", "breaker.windows": 7})
    asked = Change(k=5, parameters={"breaker.windows": 7})
    found = as_applied(last, asked, state(version=8))
    assert found.before == {"k": 5, "policy": "goodput", "breaker.windows": 3}
    assert found.applied == {"k": 5, "policy": "fixed", "breaker.windows": 7}
    lent = replace(last, undo={"k": 4, "policy": "goodput"})
    assert as_applied(lent, asked, state(version=8)).undo == lent.undo


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        (Change(breaker="open", probe=True), {"k": 5, "breaker": "open"}),
        (Change(parameters={"goodput.margin": "none"}), {"k": 5, "goodput.margin": None}),
    ],
)
def test_a_change_is_known_by_what_is_in_force_after_its_words(
    state: State, asked: Change, after: dict[str, Any]
) -> None:
    last = LastChange(1.0, "", None, {"k": 5}, after)
    assert is_made(asked, 7, replace(state(version=8), last_change=last))
    assert not is_made(
        asked, 7, replace(state(version=8), last_change=replace(last, after={"k": 5}))
    )


@pytest.mark.parametrize("meanwhile", [None, "bob"])
async def test_a_change_whose_outcome_nobody_hears_is_in_the_audit_log_as_unknown(
    state: State, meanwhile: str | None
) -> None:
    engine = SteppingEngine(state())
    engine.loses = "request"
    if meanwhile is not None:  # somebody else asked for the same
        engine.version += 1
        changed = {"before": {"k": 5}, "after": {"k": 3}}
        engine.last = {"t": 1000.0, "who": meanwhile, "reason": None, **changed}
    with pytest.raises(NoReply, match="gave no answer"):
        await engine.events(Change(k=3, who="ana"))
    (entry,) = engine.log.actions
    assert (entry.before, entry.after, entry.outcome) == ({"k": 5}, {"k": 3}, "unknown")


async def test_a_change_is_in_the_audit_log_before_the_engine_is_asked(state: State) -> None:
    engine = SteppingEngine(state())
    await engine.events(Change(k=3, who="ana", reason="try"))
    (asked,) = engine.asked
    assert (asked.who, asked.after, asked.reason, asked.outcome) == (
        "ana", {"k": 3}, "try", "unknown",
    )  # fmt: skip
    assert asked.undo == f"specdeck set {URL} k=5"
    assert [one.outcome for one in engine.log.actions] == ["applied"]


async def test_a_change_that_is_no_longer_watched_stays_in_the_audit_log(state: State) -> None:
    engine = SteppingEngine(state())
    async with aclosing(engine.make(Change(k=3))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                break
    assert [action.observed for action in engine.log.actions] == [None]


async def test_an_audit_log_that_cannot_be_written_is_an_event_and_the_change_is_made(
    state: State,
) -> None:
    engine = SteppingEngine(state())
    engine.log.full = True
    _, applied, failure, observed = await engine.events(Change(k=3))
    assert isinstance(applied, ChangeApplied)
    assert isinstance(failure, NotRecorded)
    assert str(failure.error) == "the disk is full"
    assert isinstance(observed, ChangeObserved)


async def test_target_only_is_observed_as_tokens_without_drafts(state: State) -> None:
    _, applied, observed = await SteppingEngine(state(), pace=1).events(Change(mode="target-only"))
    assert isinstance(applied, ChangeApplied)
    assert applied.undo == f"specdeck set {URL} mode=speculate"
    assert isinstance(observed, ChangeObserved)
    assert observed.k == 0.0


@pytest.mark.parametrize("change", [Change(mode="target-only"), Change(k=0)], ids=str)
async def test_the_end_of_a_prompt_is_no_step_without_drafts(state: State, change: Change) -> None:
    engine = PromptEngine(state(), pace=3)
    engine.is_deaf = True
    end = await engine.end(change)
    assert isinstance(end, ChangeObserved)
    assert (end.k, end.is_contradicted) == (5.0, True)
    honest = await PromptEngine(state(), pace=3).end(change)
    assert isinstance(honest, ChangeObserved)
    assert (honest.k, honest.is_contradicted) == (0.0, False)
    assert honest.after_ms < 500.0


@pytest.mark.parametrize("is_deaf", [True, False])
async def test_requests_of_a_single_token_show_nothing_of_drafts(
    state: State, is_deaf: bool
) -> None:
    engine = PromptEngine(state(), pace=2, rest=0)
    engine.is_deaf = is_deaf
    engine.states["k"] = 0
    end = await engine.end(Change(mode="target-only"))
    assert end == ChangeNotObserved("no_chance")
    assert end.line() == (
        "not observed: no request had tokens after the change that a draft could have brought"
    )


@pytest.mark.parametrize("is_deaf", [True, False])
async def test_requests_with_a_k_of_their_own_show_nothing_of_drafts(
    state: State, is_deaf: bool
) -> None:
    """Four of them, and nothing else runs: a step brings each of them a token."""
    engine = SteppingEngine(state(k=0), pace=2)
    engine.is_deaf, engine.states = is_deaf, {"pinned": 4}
    engine.page = lambda drafts, drafted, generated: page(drafts, drafted, 4 * generated)
    assert await engine.end(Change(mode="target-only")) == ChangeNotObserved("no_chance")
    engine.states = {"pinned": 2}
    assert isinstance(await engine.end(Change(mode="target-only")), ChangeObserved)


async def test_tokens_before_the_engine_went_idle_are_enough(state: State) -> None:
    engine = SteppingEngine(state())
    engine.rests_at = 116
    end = await engine.end(Change(mode="target-only"))
    assert isinstance(end, ChangeObserved)
    assert (end.k, engine.now < 5.0) == (0.0, True)


@pytest.mark.parametrize("looks", [4, 16])
@pytest.mark.parametrize(
    ("change", "k"), [(Change(k=3), 3.0), (Change(k=0), 0.0), (Change(mode="target-only"), 0.0)]
)
async def test_counters_that_lag_are_waited_for(
    state: State, change: Change, k: float, looks: int
) -> None:
    """For up to two seconds: the state is the core's, and pages are an API server's."""
    engine = SteppingEngine(state(), pace=3)
    pages: list[tuple[float, float, float]] = []

    def late(*counts: float) -> str:
        pages.append((counts[0], counts[1], counts[2]))
        return page(*pages[max(0, len(pages) - 1 - looks)])

    engine.page = late
    for _ in range(looks):
        await engine.client().state()
        await engine.client().page()
    end = await engine.end(change)
    assert isinstance(end, ChangeObserved)
    assert (end.k, end.is_contradicted) == (k, False)


async def test_the_way_back_from_target_only_shows_the_k_that_was_set(state: State) -> None:
    end = await SteppingEngine(state(k=0, mode="target-only")).end(Change(mode="speculate"))
    assert isinstance(end, ChangeObserved)
    assert end.k == 5.0


async def test_k_zero_is_observed_too(state: State) -> None:
    end = await SteppingEngine(state()).end(Change(k=0))
    assert isinstance(end, ChangeObserved)
    assert end.k == 0.0


async def test_k_set_in_target_only_says_what_it_waits_for(state: State) -> None:
    _, applied, end = await SteppingEngine(state(k=0, mode="target-only")).events(Change(k=3))
    assert isinstance(applied, ChangeApplied)
    assert (applied.applied.applied, applied.waits_for) == ({"k": 3}, "speculation")
    assert isinstance(end, ChangeObserved)
    assert end.k == 0.0


async def test_without_traffic_nothing_is_observed_and_that_is_said(state: State) -> None:
    engine = SteppingEngine(state(running=0), pace=0)
    assert await engine.end(Change(k=3)) == ChangeNotObserved("no_traffic")
    assert engine.now < 2.0


async def test_drafts_of_varying_length_are_averaged(state: State) -> None:
    end = await SteppingEngine(state(), pace=3, lengths=(3, 2, 3, 3, 1)).end(Change(k=3))
    assert isinstance(end, ChangeObserved)
    assert 2.0 <= end.k <= 3.0


async def test_an_engine_that_ignores_k_is_shown_as_it_is(state: State) -> None:
    engine = SteppingEngine(state())
    engine.is_deaf = True
    _, applied, end = await engine.events(Change(k=3))
    assert isinstance(applied, ChangeApplied)
    assert isinstance(end, ChangeObserved)
    assert (applied.applied.applied, end.k) == ({"k": 3}, 5.0)
    assert end.is_contradicted


@pytest.mark.parametrize("applied", [{}, {"k": 5}, {"k": None}, {"mode": "speculate"}])
async def test_an_answer_to_another_change_is_no_word_on_this_one(
    state: State, applied: dict[str, Any]
) -> None:
    engine = SteppingEngine(state())
    engine.is_deaf, engine.says = True, applied
    with pytest.raises(NotAnEngine, match="was asked for k=3"):
        await engine.events(Change(k=3))
    (entry,) = engine.log.actions
    assert entry.outcome == "unknown"


@pytest.mark.parametrize(
    ("change", "applied"),
    [
        (Change(breaker="open"), {"breaker": "closed"}),
        (Change(breaker="open"), {}),
        (Change(breaker="open", probe=True), {"breaker": "closed"}),
        (Change(breaker="closed"), {"breaker": "nonsense"}),
        (Change(parameters={"goodput.margin": 0.02}), {"goodput.margin": 0.9}),
        (Change(parameters={"goodput.margin": 0.02}), {}),
        (Change(k=3, parameters={"goodput.margin": 0.02}), {"k": 3, "goodput.margin": None}),
    ],
)
async def test_no_knob_is_believed_to_be_turned_by_another_answer(
    state: State, change: Change, applied: dict[str, Any]
) -> None:
    engine = SteppingEngine(state())
    engine.says = applied
    with pytest.raises(NotAnEngine, match="was asked for"):
        await engine.events(change)


@pytest.mark.parametrize(
    ("change", "applied"),
    [
        (Change(breaker="open", probe=True), {"breaker": "open"}),
        (
            Change(parameters={"goodput.max_draft_length": "none"}),
            {"goodput.max_draft_length": None},
        ),
    ],
)
async def test_a_word_and_what_is_in_force_by_it_are_the_same(
    state: State, change: Change, applied: dict[str, Any]
) -> None:
    engine = SteppingEngine(state(), pace=0)
    engine.says = applied
    assert isinstance((await engine.events(change))[1], ChangeApplied)


@pytest.mark.parametrize(
    ("change", "states", "line"),
    [
        (Change(k=3), {"k_set": 2}, "k=2"),
        (Change(k=3), {"policy": "goodput"}, None),
        (Change(mode="target-only"), {"mode": "speculate"}, "mode=speculate"),
        (Change(k=3, lease_s=60.0), {}, "no lease"),
    ],
)
async def test_a_state_that_does_not_have_what_was_acknowledged_is_told(
    state: State, change: Change, states: dict[str, Any], line: str | None
) -> None:
    engine = SteppingEngine(state())
    engine.states = states
    end = await engine.end(change)
    if line is None:  # of what the change did not touch
        assert isinstance(end, ChangeObserved)
        return
    assert isinstance(end, ChangeNotObserved)
    assert (end.reason, end.state, end.is_undone) == ("contradicted", line, True)
    assert end.line() == f"NOT made: the engine acknowledged it, and its state has {line}"
    (entry,) = engine.log.actions
    assert entry.outcome == "not made"


def uncounted(drafts: float, drafted: float, generated: float) -> str:
    """A page without a counter of drafts, of an engine that drafts."""
    return "".join(
        line for line in page(drafts, drafted, generated).splitlines(True) if "spec" not in line
    )


def unreadable(drafts: float, drafted: float, generated: float) -> str:
    """The same page with counters that are not numbers."""
    return page(float("nan"), float("nan"), generated)


def half_counted(drafts: float, drafted: float, generated: float) -> str:
    """The same page with a count of drafts and none of their tokens."""
    return page(drafts, float("nan"), generated)


@pytest.mark.parametrize("told", [uncounted, unreadable, half_counted])
@pytest.mark.parametrize("change", [Change(mode="target-only"), Change(k=0), Change(k=3)], ids=str)
async def test_drafts_that_nobody_counts_are_not_taken_for_none(
    state: State, change: Change, told: Callable[[float, float, float], str]
) -> None:
    engine = SteppingEngine(state())
    engine.is_deaf, engine.page = True, told
    engine.states = {"k": change.k or 0}
    end = await engine.end(change)
    assert end == ChangeNotObserved("no_counter")
    assert end.line() == "not observed: the engine's metrics do not count its drafts"
    assert engine.now < 5.0
    assert [action.observed for action in engine.log.actions] == [None]


async def test_a_page_that_is_unreadable_for_a_moment_takes_nothing_from_the_average(
    state: State,
) -> None:
    lengths = tuple(2 + (number // 9) % 2 for number in range(252))
    engine = SteppingEngine(state(), pace=7, lengths=lengths)
    pages = iter((page, page, half_counted, half_counted) * 100)
    engine.page = lambda *counts: next(pages)(*counts)
    end = await engine.end(Change(k=3))
    assert isinstance(end, ChangeObserved)
    assert 2.0 <= end.k <= 3.0


async def test_a_k_that_only_the_state_shows_contradicts_what_was_acknowledged(
    state: State,
) -> None:
    for engine in (SteppingEngine(state()), SteppingEngine(state(running=0), pace=0)):
        engine.is_deaf, engine.page = True, uncounted
        end = await engine.end(Change(mode="target-only"))
        assert end == ChangeNotObserved("contradicted", state="k=5")


async def test_requests_with_a_k_of_their_own_excuse_no_drafts_beyond_the_k_that_was_set(
    state: State,
) -> None:
    engine = SteppingEngine(state())
    engine.is_deaf, engine.states = True, {"pinned": 1}
    end = await engine.end(Change(k=3))
    assert isinstance(end, ChangeObserved)
    assert (end.k, end.is_contradicted) == (5.0, True)


OPEN, CLOSED = Change(breaker="open"), Change(breaker="closed")
PROBE = Change(breaker="open", probe=True)


@pytest.mark.parametrize("pace", [0, 2, 50])
async def test_an_open_breaker_that_the_state_does_not_have_is_told(
    state: State, pace: int
) -> None:
    engine = SteppingEngine(state(running=4 if pace else 0), pace=pace)
    engine.is_deaf, engine.says = True, {"breaker": "open"}
    engine.states = {"breaker": "closed"}
    assert await engine.end(OPEN) == ChangeNotObserved("contradicted", state="breaker=closed")


@pytest.mark.parametrize(
    ("change", "before", "line"),
    [(PROBE, "closed", "breaker=closed"), (CLOSED, "open", "breaker=open")],
)
async def test_a_breaker_that_never_turned_is_told_where_it_cannot_have_moved_by_itself(
    state: State, change: Change, before: str, line: str
) -> None:
    for engine in (SteppingEngine(state()), SteppingEngine(state(running=0), pace=0)):
        engine.is_deaf, engine.says = True, {"breaker": change.breaker}
        engine.states = {"breaker": before}
        assert await engine.end(change) == ChangeNotObserved("contradicted", state=line)


async def test_a_breaker_that_moves_by_itself_is_no_contradiction(state: State) -> None:
    for by_then in ("half-open", "closed"):
        engine = SteppingEngine(state(), pace=50)
        engine.says, engine.states = {"breaker": "open"}, {"breaker": by_then}
        end = await engine.end(PROBE)
        assert isinstance(end, ChangeObserved)
        assert (end.k, end.is_contradicted) == (5.0, False)


async def test_a_reset_breaker_that_is_open_again_is_no_proof_of_the_reset(state: State) -> None:
    engine = SteppingEngine(state(breaker="open", k=0), pace=50)
    engine.is_deaf, engine.says = True, {"breaker": "closed"}
    end = await engine.end(CLOSED)
    assert end == ChangeNotObserved("no_draft", state="breaker=open")
    assert end.line().endswith("; its state has breaker=open")


async def test_what_a_trial_had_in_force_is_not_expected_once_the_change_has_ended_it(
    state: State,
) -> None:
    engine = SteppingEngine(state(k=5))
    engine.state = state(k=2, k_set=2, trial="changed")
    end = await engine.end(Change(mode="speculate"))
    assert isinstance(end, ChangeObserved)
    assert (end.k, end.is_contradicted) == (5.0, False)


async def test_an_engine_lost_after_the_change_is_an_end_and_no_error(state: State) -> None:
    engine = SteppingEngine(state())
    async with aclosing(engine.make(Change(k=3))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.fails = httpx.ReadTimeout("")
    assert isinstance(event, ChangeNotObserved)
    assert event.reason == "unreachable"
    assert "no answer" in event.line()
    assert engine.now < 10.0


async def test_an_engine_that_is_silent_for_a_moment_is_looked_at_again(state: State) -> None:
    engine = SteppingEngine(state())
    async with aclosing(engine.make(Change(k=3))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.silent_for = 3
    assert isinstance(event, ChangeObserved)


async def test_a_newer_change_leaves_the_older_one_unobserved(state: State) -> None:
    engine = SteppingEngine(state())
    async with aclosing(engine.make(Change(k=3))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.version += 1  # somebody else's
    assert event == ChangeNotObserved("superseded")
    assert [action.observed for action in engine.log.actions] == [None]


LEASED = Change(k=3, lease_s=1.0)
RUNNING = {"seconds_left": 0.75, "k": 5, "mode": "speculate"}


async def successor(
    engine: SteppingEngine, last: dict[str, Any], lease: dict[str, Any] | None
) -> ChangeEvent:
    """The end of a leased change after which there is a newer one."""
    engine.states = {"lease": RUNNING}
    async with aclosing(engine.make(LEASED)) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.version += 1
                engine.last = {"t": 1001.0, "reason": None, "before": {"k": 3}, **last}
                engine.states = {"lease": lease}
    return event


async def test_the_end_of_its_lease_takes_no_newer_change_for_the_cause(state: State) -> None:
    taken_back = {"who": "specdeck", "after": {"k": 5, "mode": "speculate"}, "origin": "lease"}
    event = await successor(SteppingEngine(state()), taken_back, None)
    assert event == ChangeNotObserved("lease_ended", back={"k": 5})
    assert event.is_lease_over
    assert not event.is_undone
    assert event.line() == "not observed: the lease has ended: the engine is back at k=5"


@pytest.mark.parametrize(
    ("lease", "left", "is_over"), [(None, None, True), (RUNNING, 0.75, False)], ids=["over", "on"]
)
async def test_a_newer_change_tells_whether_the_lease_of_the_older_one_goes_on(
    state: State, lease: dict[str, Any] | None, left: float | None, is_over: bool
) -> None:
    theirs = {"who": "bob", "after": {"k": 2}, "origin": "operator"}
    event = await successor(SteppingEngine(state()), theirs, lease)
    assert event == ChangeNotObserved("superseded", lease_left_s=left)
    assert event.is_lease_over is is_over


async def test_a_lease_of_what_was_in_force_before_ends_without_a_newer_version(
    state: State,
) -> None:
    engine = SteppingEngine(state(running=0), pace=0)
    engine.states = {"running": 0, "lease": RUNNING}
    async with aclosing(engine.make(replace(LEASED, k=5, lease_s=0.5))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.now += 0.5
                engine.states = {"running": 0}
    assert event == ChangeNotObserved("lease_ended", back={"k": 5})


async def test_a_change_that_outlives_its_lease_is_told(state: State) -> None:
    """An engine that cannot take it back gives up: the change is in force for good."""
    engine = SteppingEngine(state())
    async with aclosing(engine.make(replace(LEASED, lease_s=0.5))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.now += 9.0
    assert event == ChangeNotObserved("contradicted", state="no lease")


async def test_what_is_left_of_a_lease_is_told_with_the_proof(state: State) -> None:
    engine = SteppingEngine(state())
    engine.states = {"lease": {**RUNNING, "seconds_left": 28.4}}
    observed = await engine.end(replace(LEASED, lease_s=30.0))
    assert isinstance(observed, ChangeObserved)
    assert (observed.k, observed.lease_left_s) == (3.0, 28.4)
    theirs = await engine.end(Change(k=4))
    assert isinstance(theirs, ChangeObserved)
    assert (theirs.k, theirs.lease_left_s) == (4.0, None)


async def test_an_engine_that_was_restarted_has_forgotten_the_change(state: State) -> None:
    engine = SteppingEngine(state())
    async with aclosing(engine.make(Change(k=3))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.state = state(instance="two")
    assert event == ChangeNotObserved("restarted")


@pytest.mark.parametrize(
    ("started", "end"), [(100.0, "another_engine"), (970.0, "restarted"), (1000.0, "restarted")]
)
async def test_another_life_that_is_older_than_the_question_is_another_engine(
    state: State, started: float, end: Literal["another_engine", "restarted"]
) -> None:
    engine = SteppingEngine(state())
    async with aclosing(engine.make(Change(k=3))) as events:
        async for event in events:
            if isinstance(event, ChangeApplied):
                engine.state = state(instance="two", started=started)
    assert event == ChangeNotObserved(end)


async def test_a_change_that_another_engine_has_made_is_none_of_the_one_that_is_asked(
    state: State,
) -> None:
    engine = SteppingEngine(state())
    engine.maker = "one"
    assert isinstance(await engine.end(Change(k=4)), ChangeObserved)
    engine.maker = "two"
    end = await engine.end(Change(k=3))
    assert isinstance(end, ChangeNotObserved)
    assert (end.reason, end.is_bad, end.is_undone) == ("another_engine", True, False)
    assert "its own" in end.line()
    assert engine.log.actions[-1].outcome != "not made"


async def test_a_change_that_is_refused_raises(state: State) -> None:
    engine = SteppingEngine(state())
    with pytest.raises(Unauthorized):
        [event async for event in engine.make(Change(k=3), asking=engine.client(token=None))]
    transport = httpx.MockTransport(lambda _: httpx.Response(404))
    absent = open_client(URL, token=lambda: Secret("secret"), transport=transport)
    with pytest.raises(Unsupported, match="without the specdeck plugin"):
        [event async for event in engine.make(Change(k=3), asking=absent)]
    assert engine.log.actions == []


async def console(
    engine: SteppingEngine, changes: dict[int, Change], seconds: int, *, busy_from: int = 0
) -> list[ChangeEvent]:
    """Makes changes as the console does: seen in the readings that it takes once a second.

    `changes` are by the number of the reading after which they are asked for.
    """
    asking, feeds, events = engine.client(), list[ReadingFeed](), list[ChangeEvent]()
    scraper = Scraper(asking, clock=engine.clock, wall=engine.clock)
    tasks = []

    async def make(change: Change) -> None:
        feed = ReadingFeed()
        steps = make_change(
            asking, change, name="demo", known=engine.state, looks=feed.looks(), audit=engine.log,
            clock=engine.clock, wall=engine.clock,
        )  # fmt: skip
        async for event in steps:
            events.append(event)
            if isinstance(event, ChangeApplied):
                feeds.append(feed)

    for number in range(seconds):
        engine.pace = 20 if number >= busy_from else 0
        reading = await scraper.read()
        for feed in feeds:
            feed.push(reading)
        if number in changes:
            tasks.append(asyncio.create_task(make(changes[number])))
        for _ in range(30):
            await asyncio.sleep(0)
        engine.now += 1.0
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return events


async def test_a_change_made_in_the_console_has_its_observed_value_in_the_audit_log_as_well(
    state: State,
) -> None:
    # Changes of `set` and of the console alike.
    engine = SteppingEngine(state(), pace=20)
    *_, observed = await console(engine, {1: Change(k=3, who="ana")}, seconds=8)
    assert isinstance(observed, ChangeObserved)
    assert observed.k == 3.0
    assert [(action.after, action.observed) for action in engine.log.actions] == [({"k": 3}, 3.0)]


async def test_of_two_quick_changes_in_the_console_the_last_one_is_observed(state: State) -> None:
    engine = SteppingEngine(state(), pace=20)
    events = await console(engine, {1: Change(k=3), 2: Change(k=4)}, seconds=9)
    assert ChangeNotObserved("superseded") in events
    assert [action.observed for action in engine.log.actions] == [None, 4.0]


async def test_an_idle_engine_in_the_console_is_watched_until_traffic_comes(state: State) -> None:
    engine = SteppingEngine(state(running=0), pace=0)
    events = await console(engine, {1: Change(k=3)}, seconds=15, busy_from=8)
    assert isinstance(events[-1], ChangeObserved)


async def test_a_look_is_the_state_of_one_reading_with_the_page_of_the_next(state: State) -> None:
    engine, feed = SteppingEngine(state(), pace=20), ReadingFeed()
    scraper = Scraper(engine.client(), clock=engine.clock, wall=engine.clock)
    one, two = await scraper.read(), await scraper.read()
    lost = Reading(3.0, URL, error=Unreachable("gone"))
    looks = feed.looks()
    waiting = asyncio.ensure_future(anext(looks))
    await asyncio.sleep(0)
    for reading in (one, two, lost, one):
        feed.push(reading)
    assert one.state is not None
    assert two.sample is not None
    assert await waiting == Look(one.state, two.sample, 0)
    assert await anext(looks) is lost.error
    await looks.aclose()


@pytest.mark.parametrize(
    ("error", "is_passing"),
    [(Unreachable("x"), True), (Stalled("x"), True), (NotAnEngine("x"), False)],
)
async def test_only_a_silence_is_waited_for(
    state: State, error: EngineError, is_passing: bool
) -> None:
    proof = Proof(state(), AppliedChange({}, {"k": 3}, 1, 100), requested_at=0.0, applied_at=0.0)
    assert (proof.miss(error, 4.9) is None) is is_passing
    assert proof.miss(error, 5.0) == ChangeNotObserved("unreachable", error)
