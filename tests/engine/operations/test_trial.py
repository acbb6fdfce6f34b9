"""A trial is kept alive while somebody attends, and taken back when he stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from tests.support.engine_state import engine_state
from tests.support.memory_audit import MemoryAudit

from specdeck.engine.client.engine_client import EngineClient
from specdeck.engine.client.secret import Secret
from specdeck.engine.errors import EngineError, NoReply, NotAnEngine, Unreachable
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.operations.change import LOST, ChangeApplied
from specdeck.engine.operations.record import NotRecorded
from specdeck.engine.operations.trial import (
    TrialEnded,
    TrialEvent,
    TrialRunner,
    TrialSeen,
    TrialStopped,
    TrialUnseen,
    as_trial,
)
from specdeck.engine.protocol.messages import Change, EngineState, LastChange, Origin
from specdeck.engine.protocol.tuning import BreakerTuning, TrialTuning, Tuning

URL = "http://engine"
CHANGE = as_trial(Change(k=3, who="ana"), trial_s=60.0)
GONE = httpx.ConnectError("refused")


@dataclass
class JudgingEngine:
    """Answers as the plugin does; every look at it takes a second."""

    states: list[str | httpx.HTTPError]
    instance: str = "one"
    now: float = 0.0
    deaf_to_renewals: int = 0
    deaf_to_cancels: bool = False
    keeps_what_is_cancelled: bool = False
    """Whether its knobs stay on trial, whatever it answers to a cancel."""
    named: int | None = None
    """The trial's number in the answer to a change; an older plugin names none."""
    number: int = 1
    """Of the trial under way."""
    loses: str | None = None
    """Of the change: its `reply`, or the `request`, for which nothing is begun."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    log: MemoryAudit = field(default_factory=MemoryAudit)
    renewed: asyncio.Event = field(default_factory=asyncio.Event)
    working: bool = False
    """Whether its counters move."""
    length: int = 3
    """Tokens of a draft while the change is on trial."""
    uncounted: bool = False
    """Whether its page has no counter of drafts."""
    worked: int = 0
    drafted: int = 0
    turns: int = 0
    """Turns between the settings so far; an older plugin tells of none."""
    last: str = "baseline"
    said: str = "baseline"
    tries: dict[str, Any] = field(default_factory=lambda: {"k": 3})
    is_deaf: bool = False
    """Whether its k stays as it was, whatever it tells of its trial."""
    is_mute: bool = False
    """Whether it does not tell its state."""
    version: int = 1
    changed: LastChange | None = None
    """By whom, as its state has it."""
    stands: dict[str, Any] = field(default_factory=dict)
    """What its state has besides."""
    pairs: tuple[int, int] = (0, 0)
    """Pairs measured and planned; an older plugin tells of none."""
    who: str = "ana"
    """Whose trial it is."""

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
            if self.loses is not None:
                self.loses, lost = None, self.loses
                self.states = self.states if lost == "reply" else ["kept"]
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
            if self.asked[-1].get("cancel") and not self.keeps_what_is_cancelled:
                self.said = "reverted"
            knobs = {"before": {"k": 5}, "applied": {"k": 5}}
            return httpx.Response(200, json={**knobs, "version": 1, "step": 7, "trial": self.named})
        if request.url.path == "/metrics":
            return httpx.Response(200, text=self.page())
        if request.url.path.endswith("/state"):
            if self.is_mute:
                raise httpx.ConnectError("refused")
            return httpx.Response(200, json=self.state().as_json())
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return httpx.Response(200, json=self.tuning(state).as_json())

    def state(self) -> EngineState:
        k = 3 if self.said in ("changed", "kept") and not self.is_deaf else 5
        found = engine_state(
            instance=self.instance, version=self.version, k=k, k_set=k, last_change=self.changed
        )
        return replace(found, **self.stands)

    def page(self) -> str:
        if not self.working:
            return ""
        self.worked += 10
        self.drafted += 10 * (5 if self.last == "baseline" and self.turns else self.length)
        if self.uncounted:
            generated = f'vllm:generation_tokens_total{{engine="0"}} {2 * self.worked}\n'
            return generated + 'vllm:prompt_tokens_total{engine="0"} 1.0\n'
        rows = {
            "spec_decode_num_drafts": self.worked,
            "spec_decode_num_draft_tokens": self.drafted,
            "generation_tokens": 2 * self.worked,
        }
        return "".join(f'vllm:{name}_total{{engine="0"}} {rows[name]}\n' for name in rows)

    def tuning(self, state: str) -> Tuning:
        self.said = state
        over = state not in ("baseline", "changed", "replaced")
        phase: Any = "changed" if state == "replaced" else state
        if self.turns:
            self.turns += phase != self.last
            self.last = phase
        trial = TrialTuning(
            phase, self.who, {"k": 5}, self.tries, 60.0, 1.0, number=self.number,
            reason="better" if over else None, seconds_left=None if over else 30.0,
            turns=self.turns, pairs=self.pairs[0], pairs_planned=self.pairs[1],
        )  # fmt: skip
        return Tuning(
            self.instance, 1, 0.0, "fixed", None, ((1, 8, 3),), (), BreakerTuning("closed", False),
            trial,
        )  # fmt: skip

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += 1.0
        await asyncio.sleep(0)

    def trial(self, **more: Any) -> TrialRunner:
        """Of `CHANGE`, unless `more` has another `change`."""
        http = httpx.AsyncClient(transport=httpx.MockTransport(self), base_url=URL)
        asking = EngineClient(http, url=URL, token=lambda: Secret("t"))
        options: dict[str, Any] = {
            "clock": self.clock,
            "wall": lambda: 1000.0,
            "sleep": self.sleep,
        } | more
        return TrialRunner(
            asking, options.pop("change", CHANGE), name="demo", audit=self.log, **options
        )

    async def attended(
        self, on_event: Callable[[TrialEvent], None] = lambda _: None
    ) -> list[TrialEvent]:
        events = []
        async for event in self.trial().attend():
            on_event(event)
            events.append(event)
        return events

    @property
    def renewals(self) -> list[dict[str, Any]]:
        return [ask for ask in self.asked if ask.get("renew")]


def lines(engine: JudgingEngine) -> list[tuple[object, object, object, object]]:
    actions = engine.log.actions
    return [(one.before, one.after, one.reason, one.observed) for one in actions]


def ended(events: list[TrialEvent]) -> TrialEnded:
    assert isinstance(events[-1], TrialEnded)
    return events[-1]


async def test_the_lease_is_renewed_until_the_verdict() -> None:
    engine = JudgingEngine(["baseline", *["changed"] * 9, "kept"])
    begun, *seen, end = await engine.attended()
    assert engine.renewals == [{"renew": True, "lease_s": 10.0}] * 3
    assert isinstance(begun, ChangeApplied)
    assert begun.undo == "specdeck set http://engine k=5"
    assert [event.trial.state for event in seen if isinstance(event, TrialSeen)] == [
        "baseline", *["changed"] * 9
    ]  # fmt: skip
    assert ended([end]).trial.state == "kept"


async def test_a_trial_of_the_console_is_renewed_as_one_of_the_command_line_is() -> None:
    engine = JudgingEngine(["baseline", *["changed"] * 9, "kept"])
    looks: list[Sample | None] = [None]

    async def read_sample() -> Sample | None:
        return looks[-1]

    events = [event async for event in engine.trial(every=3.0, read_sample=read_sample).attend()]
    assert ended(events).trial.state == "kept"
    assert engine.renewals == [{"renew": True, "lease_s": 10.0}] * 3


async def test_what_is_observed_is_of_stints_with_the_change_only() -> None:
    by_turns = [*["changed"] * 4, *["baseline"] * 4, "changed", *["baseline"] * 2, "kept"]
    engine = JudgingEngine([*by_turns], working=True, turns=1, last="changed")
    assert ended(await engine.attended()).observed_k == 3.0
    # Never seen twice in one stint: nothing can be said of what the counters show.
    engine = JudgingEngine([*["changed", "baseline"] * 5, "kept"], working=True, turns=1)
    assert ended(await engine.attended()).observed_k is None


async def test_drafts_that_nobody_counts_are_not_observed_as_none() -> None:
    engine = JudgingEngine(["baseline", *["changed"] * 3, "kept"], working=True, uncounted=True)
    assert ended(await engine.attended()).observed_k is None
    assert lines(engine)[0] == ({"k": 5}, {"k": 3}, "on trial", None)


async def test_how_a_trial_began_and_ended_is_in_the_audit_log_with_what_was_observed() -> None:
    engine = JudgingEngine(["baseline", *["changed"] * 3, "kept"], working=True)
    end = ended(await engine.attended())
    assert end.observed_k == 3.0
    assert lines(engine) == [
        ({"k": 5}, {"k": 3}, "on trial", 3.0),
        ({"k": 5}, {"k": 3}, "trial kept: better", 3.0),
    ]


async def test_a_trial_whose_reply_is_lost_is_attended_and_in_the_audit_log() -> None:
    engine = JudgingEngine([*["changed"] * 11, "kept"], loses="reply")
    events = await engine.attended()
    assert isinstance(events[0], ChangeApplied)
    assert events[0].applied.notices == (LOST,)
    assert events[0].applied.trial == engine.number
    assert engine.renewals == [{"renew": True, "lease_s": 10.0, "trial": engine.number}] * 3
    assert [one[:3] for one in lines(engine)] == [
        ({"k": 5}, {"k": 3}, "on trial"), ({"k": 5}, {"k": 3}, "trial kept: better"),
    ]  # fmt: skip


async def test_a_trial_whose_outcome_nobody_hears_is_in_the_audit_log_as_unknown() -> None:
    engine = JudgingEngine(["changed"], loses="request")
    with pytest.raises(NoReply):
        await engine.attended()
    (entry,) = engine.log.actions
    assert (entry.after, entry.outcome) == ({"k": 3}, "unknown")


@pytest.mark.parametrize("end", ["reverted", "abandoned"])
async def test_what_was_taken_back_is_not_said_to_be_in_force(end: str) -> None:
    engine = JudgingEngine(["changed", "changed", end], working=True)
    assert ended(await engine.attended()).trial.state == end
    assert lines(engine)[-1] == ({"k": 5}, {"k": 5}, f"trial {end}: better", None)


async def test_a_kept_change_that_the_state_does_not_have_is_told() -> None:
    engine = JudgingEngine(["baseline", "changed", "kept"], is_deaf=True)
    end = ended(await engine.attended())
    assert (end.state, end.is_contradicted) == ("k=5", True)
    assert end.line() == (
        "NOT made: the engine says that it kept the change, and its state has k=5"
    )
    assert lines(engine)[-1][2] == "trial kept: better; the engine's state has k=5"


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_kept_k_that_the_counters_exceed_is_told(is_away: bool) -> None:
    engine = JudgingEngine(["baseline", *["changed"] * 3, "kept"], working=True, length=5)
    if is_away:
        engine.state = Mock(side_effect=GONE)  # type: ignore[method-assign]
    end = ended(await engine.attended())
    assert (end.counted_k, end.is_contradicted) == (5.0, True)
    assert end.line() == (
        "NOT made: the engine says that it kept the change, and its counters show k 5.0"
    )
    assert lines(engine)[-1][2] == "trial kept: better; the counters show k 5.0"


STILL = {"k": 5, "k_set": 5}
"""Of a trial that turns no k."""


async def end_of(change: Change, engine: JudgingEngine) -> TrialEnded:
    trial = engine.trial(change=as_trial(replace(change, who="ana"), trial_s=60.0))
    return ended([event async for event in trial.attend()])


@pytest.mark.parametrize(
    ("change", "stands", "is_told"),
    [
        (Change(mode="target-only"), {**STILL, "mode": "target-only"}, True),
        (Change(mode="target-only"), None, True),  # its state cannot be read
        (Change(fallback="cold"), {"k": 3, "k_set": 3, "fallback": "cold"}, True),
        (Change(policy="fixed"), {"k": 3, "k_set": 3}, True),
        (Change(parameters={"breaker.floor": 0.3}), {"k": 3, "k_set": 3}, True),
        (Change(fallback="cold"), {**STILL, "fallback": "cold"}, False),
        (Change(policy="goodput"), {"k": 3, "k_set": 3, "policy": "goodput"}, False),
        (Change(policy="fixed"), None, False),
        (Change(policy="fixed"), {"k": 3, "k_set": 3, "version": 2}, False),  # of later
    ],
)
async def test_a_kept_change_is_held_against_the_counters_whatever_it_turns(
    change: Change, stands: dict[str, Any] | None, is_told: bool
) -> None:
    engine = JudgingEngine(
        ["baseline", *["changed"] * 3, "kept"], working=True, length=5,
        tries=change.knobs(), stands=stands or {},
    )  # fmt: skip
    if stands is None:
        engine.state = Mock(side_effect=GONE)  # type: ignore[method-assign]
    end = await end_of(change, engine)
    assert (end.observed_k, end.counted_k) == (5.0, 5.0 if is_told else None)
    assert end.is_contradicted is is_told


@pytest.mark.parametrize(("drafts", "is_told"), [([12], False), ([12, 12], True)])
async def test_drafts_of_before_a_stint_are_no_contradiction(
    drafts: list[int], is_told: bool
) -> None:
    change = Change(mode="target-only")
    engine = JudgingEngine(
        ["baseline", *["changed"] * 6, "kept"], tries=change.knobs(),
        stands={**STILL, "mode": "target-only"},
    )  # fmt: skip
    sums, looks = {"drafts": 0, "generated": 0}, iter([0, *drafts])

    def page() -> str:
        sums["drafts"] += next(looks, 0)
        sums["generated"] += 40
        return (
            f'vllm:spec_decode_num_drafts_total{{engine="0"}} {sums["drafts"]}\n'
            f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {5 * sums["drafts"]}\n'
            f'vllm:generation_tokens_total{{engine="0"}} {sums["generated"]}\n'
            'vllm:num_requests_running{engine="0"} 4.0\n'
        )

    engine.page = page  # type: ignore[method-assign]
    assert (await end_of(change, engine)).is_contradicted is is_told


async def test_a_change_that_the_state_has_after_its_trial_was_reverted_is_told() -> None:
    engine = JudgingEngine(["baseline", "reverted"])
    engine.state = lambda: engine_state(k_set=3)  # type: ignore[method-assign]
    end = ended(await engine.attended())
    assert end.line() == (
        "NOT reverted: the engine says that the change is not in force, and its state has k=3"
    )


@pytest.mark.parametrize(
    ("stands", "wait", "words"),
    [
        ({"breaker": "open", "k": 0}, "breaker", "it takes effect when the breaker closes"),
        (
            {"mode": "target-only", "k": 0},
            "speculation",
            "it takes effect when speculation is back",
        ),
        ({"breaker": "half-open"}, None, None),
    ],
)
async def test_a_kept_k_that_nothing_is_drafted_by_is_stored(
    stands: dict[str, Any], wait: str | None, words: str | None
) -> None:
    engine = JudgingEngine(["baseline", "changed", "kept"], stands=stands)
    end = ended(await engine.attended())
    assert (end.waits_for, dict(end.in_force), end.is_contradicted) == (wait, {"k": 3}, False)
    assert lines(engine)[-1][2] == "trial kept: better" + ("" if words is None else f"; {words}")


async def test_what_a_trial_has_left_is_told_as_the_state_has_it_whoever_set_it() -> None:
    engine = JudgingEngine(["baseline", "reverted"], stands={"k_set": 2, "k": 2})
    engine.changed, engine.version = change_of("operator", 9.0), 2
    end = ended(await engine.attended())
    assert (dict(end.left), dict(end.in_force), end.is_contradicted) == ({"k": 5}, {"k": 2}, False)


@pytest.mark.parametrize(
    ("turns", "pairs", "is_told"),
    [(0, (0, 16), True), (9, (0, 16), True), (9, (6, 16), False), (0, (0, 0), False)],
)
async def test_a_change_that_was_kept_unmeasured_is_told(
    turns: int, pairs: tuple[int, int], is_told: bool
) -> None:
    engine = JudgingEngine(["kept"], turns=turns, last="kept", pairs=pairs)
    end = ended(await engine.attended())
    assert end.is_contradicted is is_told
    if is_told:
        assert end.line() == (
            "NOT judged: the engine says that it kept the change, and has measured no pair"
        )
        assert lines(engine)[-1][2] == "trial kept: better; no pair was measured"


async def test_a_trial_of_somebody_else_under_the_same_number_is_not_taken_for_ours() -> None:
    engine = JudgingEngine(["changed", "kept"], named=1, who="bob")
    with pytest.raises(EngineError, match="another trial took its place"):
        await engine.attended()
    events = [event async for event in JudgingEngine(["changed"], who="bob").trial().detach()]
    assert events[-1] == TrialUnseen(None)


async def test_an_end_whose_state_cannot_be_read_is_the_engines_word_alone() -> None:
    engine = JudgingEngine(["baseline", "kept"])
    engine.state = Mock(side_effect=GONE)  # type: ignore[method-assign]
    end = ended(await engine.attended())
    assert isinstance(end.error, Unreachable)
    assert (end.found, end.is_contradicted) == (None, False)


def change_of(origin: Origin, t: float) -> LastChange:
    return LastChange(t, "bob", None, {"k": 5}, {"k": 4}, origin)


@pytest.mark.parametrize(
    ("told", "is_told"),
    [
        ({"version": 2}, False),  # of later than the trial's end
        ({"changed": change_of("operator", 9.0)}, False),
        ({"changed": change_of("trial", 9.0)}, True),
        ({"changed": change_of("operator", 0.5)}, True),  # of before the trial
    ],
)
async def test_a_change_by_somebody_else_is_no_contradiction_of_a_trial(
    told: dict[str, Any], is_told: bool
) -> None:
    engine = JudgingEngine(["baseline", "kept"], is_deaf=True)

    def change(event: TrialEvent) -> None:
        if isinstance(event, TrialSeen):
            for name, value in told.items():
                setattr(engine, name, value)

    assert ended(await engine.attended(change)).is_contradicted is is_told


@pytest.mark.parametrize("end", ["kept", "reverted"])
async def test_a_change_that_a_restart_has_forgotten_is_not_said_to_be_kept(end: str) -> None:
    engine = JudgingEngine(["baseline", end])
    engine.state = lambda: engine_state(instance="two", k=5, k_set=5)  # type: ignore[method-assign]
    found = ended(await engine.attended())
    assert (found.is_contradicted, found.in_force) == (end == "kept", {"k": 5})
    if end == "kept":
        assert found.line() == "NOT in force: the engine was restarted and has forgotten it"
    assert lines(engine)[-1][2] == (
        f"trial {end}: better; the engine was restarted and has forgotten it"
    )


@pytest.mark.parametrize("tries", [{}, {"k": 5}, {"policy": "goodput"}])
async def test_a_trial_of_another_change_than_was_asked_for_is_not_attended(
    tries: dict[str, Any],
) -> None:
    engine = JudgingEngine(["baseline", "kept"], named=1, tries=tries)
    with pytest.raises(NotAnEngine, match="a trial of another change"):
        await engine.attended()


async def test_an_audit_log_that_cannot_be_written_ends_no_trial() -> None:
    engine = JudgingEngine(["changed", "kept"], log=MemoryAudit(full=True))
    events = await engine.attended()
    assert [type(event) for event in events] == [
        ChangeApplied, NotRecorded, TrialSeen, NotRecorded, TrialEnded
    ]  # fmt: skip


async def test_an_engine_restarted_in_mid_trial_is_said_to_be() -> None:
    engine = JudgingEngine(["changed"])

    def restarted(event: TrialEvent) -> None:
        if isinstance(event, TrialSeen):
            engine.instance = "two"

    with pytest.raises(EngineError, match="restarted during the trial"):
        await engine.attended(restarted)


@pytest.mark.parametrize("before", [[], ["changed"]])
async def test_an_engine_that_is_silent_for_a_moment_is_waited_for(before: list[Any]) -> None:
    found = await JudgingEngine([*before, GONE, GONE, GONE, "changed", "kept"]).attended()
    assert ended(found).trial.state == "kept"
    engine = JudgingEngine([*before, GONE])
    with pytest.raises(Unreachable):
        await engine.attended()
    assert engine.now < 12.0


async def test_a_renewal_that_does_not_get_through_is_tried_again() -> None:
    engine = JudgingEngine(["baseline", *["changed"] * 9, "kept"], deaf_to_renewals=2)
    assert ended(await engine.attended()).trial.state == "kept"
    assert len(engine.renewals) >= 4


async def stopped(engine: JudgingEngine) -> tuple[TrialStopped, list[dict[str, Any]]]:
    """What becomes of a trial that is stopped, and what is asked from then on."""
    trial = engine.trial()
    async with aclosing(trial.attend()) as events:
        async for event in events:
            if isinstance(event, TrialSeen):
                break
    before = len(engine.asked)
    if engine.states[0] == "replaced":
        engine.states, engine.number = ["changed"], 2
    end = await trial.take_back()
    return end, engine.asked[before:]


async def test_renewals_name_the_trial_that_was_begun() -> None:
    engine = JudgingEngine(["baseline", *["changed"] * 9, "kept"], named=1)
    await engine.attended()
    assert engine.renewals == [{"renew": True, "lease_s": 10.0, "trial": 1}] * 3


async def test_a_trial_that_took_the_place_of_ours_is_not_taken_for_it() -> None:
    engine = JudgingEngine(["changed"], named=1, number=2)
    with pytest.raises(EngineError, match="another trial took its place"):
        await engine.attended()
    assert len(engine.asked) == 1


@pytest.mark.parametrize(("named", "how"), [(1, ("trial", 1)), (None, ("expect_version", 1))])
async def test_what_is_taken_back_is_the_trial_that_was_begun(
    named: int | None, how: tuple[str, int]
) -> None:
    engine = JudgingEngine(["changed"], named=named)
    end, asked = await stopped(engine)
    assert (end.end, end.line()) == ("taken_back", "the change is reverted")
    cancel = {"cancel": True, "who": "ana", "reason": "interrupted", "origin": "undo"}
    assert asked == [{**cancel, how[0]: how[1]}]
    assert lines(engine)[1:] == [({"k": 5}, {"k": 5}, "trial reverted: interrupted", None)]


@pytest.mark.parametrize("named", [1, None])
async def test_who_stops_leaves_alone_what_is_not_its_own(named: int | None) -> None:
    end, asked = await stopped(JudgingEngine(["replaced"], named=named))
    assert (end.end, end.line(), asked) == ("lost", "another trial took its place", [])


async def test_a_trial_that_was_kept_is_not_said_to_be_taken_back() -> None:
    engine = JudgingEngine(["changed", "kept"], named=1)
    end, asked = await stopped(engine)
    assert end.end == "ended"
    assert end.line() == "the trial had ended: kept; undo: specdeck set http://engine k=5"
    assert asked == []
    assert lines(engine)[-1][2] == "trial kept: better"


async def test_a_take_back_that_does_not_get_through_is_left_to_the_lease() -> None:
    end, _ = await stopped(JudgingEngine(["changed"], named=1, deaf_to_cancels=True))
    assert (end.end, end.line()) == ("leased", "the engine reverts the change within 10 s")
    end, asked = await stopped(JudgingEngine(["changed", GONE], named=1))
    assert (end.end, asked) == ("leased", [])


async def test_a_take_back_that_the_state_contradicts_is_not_called_one() -> None:
    engine = JudgingEngine(["changed"], named=1, keeps_what_is_cancelled=True)
    end, _ = await stopped(engine)
    assert end.state == "k=3"
    assert end.line().startswith("NOT reverted: ")
    assert "the engine's state has k=3" in str(lines(engine)[-1][2])
    # Somebody else's change since says nothing of it.
    end, _ = await stopped(
        JudgingEngine(["changed"], named=1, keeps_what_is_cancelled=True, version=2)
    )
    assert (end.state, end.line()) == (None, "the change is reverted")


async def test_a_take_back_whose_state_cannot_be_read_says_so() -> None:
    end, _ = await stopped(JudgingEngine(["changed"], named=1, is_mute=True))
    assert end.line().startswith(
        "the engine says that it reverted the change; its state cannot be read: "
    )


async def test_a_trial_whose_attendant_is_cancelled_can_be_taken_back() -> None:
    engine = JudgingEngine(["changed"])
    trial = engine.trial()

    async def attend() -> None:
        async for _ in trial.attend():
            pass

    task = asyncio.create_task(attend())
    await engine.renewed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await trial.take_back()).end == "taken_back"
    assert engine.asked[-1]["cancel"] is True


async def test_a_detached_trial_is_begun_and_seen_once() -> None:
    engine = JudgingEngine(["baseline"], named=1)
    events = [event async for event in engine.trial().detach()]
    assert [type(event) for event in events] == [ChangeApplied, TrialSeen]
    assert lines(engine) == [({"k": 5}, {"k": 3}, "on trial", None)]


async def test_a_trial_left_to_an_engine_that_cannot_be_asked_is_begun_all_the_same() -> None:
    begun, unseen = [event async for event in JudgingEngine([GONE]).trial().detach()]
    assert isinstance(begun, ChangeApplied)
    assert isinstance(unseen, TrialUnseen)
    assert isinstance(unseen.error, Unreachable)
    other = JudgingEngine(["baseline"], named=1, number=2)
    assert [event async for event in other.trial().detach()][-1] == TrialUnseen(None)
    strange = JudgingEngine(["baseline"], named=1, tries={"k": 5})
    assert [event async for event in strange.trial().detach()][-1] == TrialUnseen(None)


async def test_a_trial_is_in_the_audit_log_before_anything_else_is_asked() -> None:
    engine = JudgingEngine([GONE], named=1)
    with pytest.raises(Unreachable):
        await engine.attended()
    assert lines(engine) == [({"k": 5}, {"k": 3}, "on trial", None)]
