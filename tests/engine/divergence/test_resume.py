"""By what a check that was cut short is found again, and what is said of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check
from tests.support.completion_engine import CompletionEngine

from specdeck.engine.divergence.arms import Arm, Facts
from specdeck.engine.divergence.outcome import Outcome
from specdeck.engine.divergence.resume import ResumeState, unasked_prompts
from specdeck.engine.divergence.runner import ASKS, CheckProgress
from specdeck.engine.divergence.running import RunningFigures
from specdeck.engine.errors import Unreachable
from specdeck.engine.operations.check import (
    ArmsReady,
    CheckEvent,
    CheckResult,
    begin_run,
    judge_run,
    run_check,
)
from specdeck.engine.protocol.messages import EngineState
from specdeck.engine.store.checks import Checks
from specdeck.engine.store.database import Store, StoreHeld


async def checked(bench: Bench, lab: Any, prompts: Any, said: Any = lambda _: None) -> Outcome:
    async with lab:
        return (await finish_check(lab, prompts, bench.store, said)).outcome


def stopped(
    fingerprint: str | None,
    *,
    started: float | None = None,
    stored: bool = True,
    own: bool = False,
    policy: str | None = None,
) -> str:
    ours = Facts("demo", policy=policy, fingerprint="sd1:p01")
    serving = Arm("serving", "http://a:1", "serving", ours)
    facts = Facts("demo", fingerprint=fingerprint, started=started)
    reference = Arm("reference", "http://b:2", "hard", facts)
    state = ResumeState(200, done=30)
    state.note_arms((serving, reference), stored=stored, own=own)
    return state.line()


def test_a_check_goes_on_where_its_engines_are_known_again() -> None:
    goes_on = "stopped after 30 of 200 prompts: the same command resumes from there"
    assert stopped("sd1:p02") == goes_on
    assert stopped("sd1:p02", own=True) == goes_on
    assert stopped(None, started=7.0) == f"{goes_on}, unless an engine is restarted"
    assert stopped("sd1:p~2" + "0" * 15, started=7.0) == stopped(None, started=7.0)
    assert stopped("sd1:p02", policy="fixed") == goes_on
    assert stopped("sd1:p02", policy="goodput") == f"{goes_on}, unless k has moved by then"
    assert stopped(None, started=7.0, policy="goodput") == (
        f"{goes_on}, unless an engine is restarted or k has moved by then"
    )


def test_a_check_that_is_not_found_again_says_so() -> None:
    begins = "stopped after 30 of 200 prompts: the same command starts over"
    assert stopped("sd1:p02", stored=False) == begins
    assert stopped("sd1:p~2" + "0" * 15, own=True) == begins
    assert stopped(None, own=True) == begins
    assert stopped(None) == begins  # another engine would be taken for it


def test_a_check_that_is_finished_need_not_go_on() -> None:
    assert "--history" in ResumeState(200, done=200, finished=True).line()


async def test_a_killed_engine_ends_the_run_and_it_goes_on_where_it_was(bench: Bench) -> None:
    engine, prompts = bench.engine(), bench.many(30)
    seen: list[int] = []

    def kill(event: CheckEvent) -> None:
        if isinstance(event, CheckProgress):
            seen.append(event.done)
            if event.done == 10:
                engine.statuses = [0] * 10_000

    with pytest.raises(Unreachable):
        await checked(bench, bench.lab(engine, retry_s=0.0), prompts, kill)
    engine.statuses = []
    before = len(engine.answers_asked())
    ready: list[CheckEvent] = []
    outcome = await checked(bench, bench.lab(engine), prompts, ready.append)
    assert isinstance(ready[0], ArmsReady)
    assert ready[0].resumed == seen[-1] >= 10
    assert (outcome.totals.prompts, outcome.totals.floor.of) == (30, 30)
    alone = outcome.as_json()["noise_floor"]["batch"]["pairs"]
    assert len(engine.answers_asked()) - before <= 4 * (30 - ready[0].resumed) + alone
    assert outcome.totals.serving.requests == 60


async def test_a_restarted_engine_is_known_again_once_it_has_read_its_weights(bench: Bench) -> None:
    class Restarted(CompletionEngine):
        looks = 0

        def _get(self, path: str) -> Any:
            if path.endswith("/facts"):
                self.looks += 1
                finished = {"progress": {"finished": self.looks > 1}}
                return httpx.Response(200, json={"facts": self.facts, **finished})
            return super()._get(path)

        def state(self) -> Any:
            return replace(super().state(), fingerprint="sd1:p1" if self.looks > 1 else "sd1:p~0")

    lab = bench.lab(Restarted())
    async with lab:
        assert lab.arms[0].facts.fingerprint == "sd1:p1"


async def test_the_figures_on_the_way_are_those_of_the_end(bench: Bench) -> None:
    faults = {"prompt 3": bench.fault(9, 3.2), "prompt 7": bench.fault(4, bench.step)}
    engine, prompts = bench.engine(faults=faults), bench.many(12)
    found: list[RunningFigures] = []

    def keep(event: CheckEvent) -> None:
        if isinstance(event, CheckProgress) and event.figures is not None:
            found.append(event.figures)

    outcome = await checked(bench, bench.lab(engine, streams=1), prompts, keep)
    assert [one.differ.of for one in found] == [0, 4, 8, 12]
    assert [one.differ.count for one in found] == [0, 1, 2, 2]
    assert found[1].classes["material"] == 1
    assert found[-1].classes == outcome.classes.counts
    assert found[-1].differ == outcome.totals.cross
    assert (found[-1].repeat, found[-1].shape) == (outcome.totals.floor, outcome.totals.shape_floor)


async def test_a_run_that_was_cancelled_can_be_resumed_or_begun_anew(bench: Bench) -> None:
    engine, prompts = bench.engine(), bench.many(12)
    lab = bench.lab(engine)
    async with lab, aclosing(run_check(lab, prompts, bench.store)) as events:
        async for event in events:
            if isinstance(event, CheckProgress) and event.done >= 5:
                break
    assert not [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    anew = bench.lab(engine, fresh=True)
    ready: list[CheckEvent] = []
    assert (await checked(bench, anew, prompts, ready.append)).totals.prompts == 12
    assert isinstance(ready[0], ArmsReady)
    assert ready[0].resumed == 0


async def cut_short(bench: Bench, lab: Any, prompts: Any) -> int:
    """A run that is left after 5 prompts or more; how many of it an earlier one had done."""
    async with lab:
        check = begin_run(lab, prompts, bench.store)
        async with aclosing(check.events()) as events:
            async for event in events:
                if isinstance(event, CheckProgress) and event.done >= check.resumed + 5:
                    break
        return check.resumed


def started(t: float) -> list[str]:
    return [f"vllm:num_requests_running 0\nprocess_start_time_seconds {t}\n"]


@pytest.mark.parametrize(
    "other",
    [{"pages": started(2000.0)}, {"pages": started(1000.0), "version": "0.33.0"}],
    ids=["restarted", "updated"],
)
async def test_a_reference_without_a_name_is_known_by_its_process(
    bench: Bench, other: dict[str, Any]
) -> None:
    prompts, serving = bench.many(20), bench.engine()
    plain: dict[str, Any] = {"url": "http://b", "plugin": False}
    first = bench.engine(**plain, pages=started(1000.0))
    assert await cut_short(bench, bench.lab(serving, first), prompts) == 0
    assert await cut_short(bench, bench.lab(serving, bench.engine(**plain, **other)), prompts) == 0
    assert await cut_short(bench, bench.lab(serving, first), prompts) >= 5


@dataclass
class Silent(CompletionEngine):
    """Its answers do not show their drafts; its breaker is open once it was asked `opens_after`
    times."""

    drafts: bool = False
    named: list[str] = field(default_factory=lambda: ["sd1:p0123456789abcdef"])
    opens_after: int = 1_000
    elsewhere: int = 0
    """Tokens that it has drafted for others."""

    @property
    def is_open(self) -> bool:
        return len(self.asked) > self.opens_after

    def state(self) -> EngineState:
        return replace(super().state(), breaker="open" if self.is_open else "closed")

    def _get(self, path: str) -> httpx.Response:
        if path != "/metrics":
            return super()._get(path)
        drafted = self.elsewhere + (0 if self.is_open else len(self.asked))
        counters = (
            f"vllm:spec_decode_num_draft_tokens_total {drafted}\nvllm:generation_tokens_total 9\n"
        )
        return httpx.Response(200, text=counters)


@pytest.mark.parametrize("is_looked_at", [True, False])
async def test_what_an_engine_said_before_a_break_is_not_forgotten(
    bench: Bench, is_looked_at: bool
) -> None:
    """Of the answers that came after the last look, nothing is known."""
    engine, prompts = Silent(opens_after=0), bench.many(60)
    async with bench.lab(engine) as lab:
        work: AsyncGenerator[Any, None] = (
            run_check(lab, prompts, bench.store)
            if is_looked_at
            else begin_run(lab, prompts, bench.store).events()
        )
        async with aclosing(work) as events:
            async for event in events:
                if isinstance(event, CheckProgress) and event.figures and event.done >= 16:
                    break
    engine.opens_after, engine.elsewhere = 1_000, 500
    outcome = await checked(bench, bench.lab(engine, threshold=0.5), prompts)
    assert outcome.totals.prompts == 60
    assert outcome.verdict.word == "inconclusive"
    said = "drafted nothing by its own word" if is_looked_at else "did not say whether it drafts"
    assert said in outcome.verdict.reason


async def test_another_engine_before_a_break_is_not_forgotten(bench: Bench) -> None:
    """The first one is back by the time at which the check goes on."""

    @dataclass
    class Standin(CompletionEngine):
        is_away: bool = False

        def state(self) -> EngineState:
            name = "sd1:pf" if self.is_away else "sd1:p0"
            instance = "standin" if self.is_away else "one"
            return replace(super().state(), fingerprint=name, instance=instance)

    engine, prompts = Standin(), bench.many(60)
    async with bench.lab(engine) as lab, aclosing(run_check(lab, prompts, bench.store)) as events:
        async for event in events:
            if isinstance(event, ArmsReady):
                engine.is_away = True
            if isinstance(event, CheckProgress) and event.figures and event.done >= 16:
                break
    engine.is_away = False
    outcome = await checked(bench, bench.lab(engine, threshold=0.5), prompts)
    assert (outcome.totals.prompts, outcome.totals.serving.replaced) == (60, True)
    assert outcome.verdict.word == "inconclusive"


async def test_a_break_costs_an_engine_that_drafts_nothing(bench: Bench) -> None:
    engine, prompts = Silent(), bench.many(60)
    for _ in range(3):
        async with (
            bench.lab(engine) as lab,
            aclosing(run_check(lab, prompts, bench.store)) as events,
        ):
            async for event in events:
                if isinstance(event, CheckProgress) and event.figures and event.done:
                    break
    outcome = await checked(bench, bench.lab(engine, threshold=0.5), prompts)
    assert (outcome.totals.prompts, outcome.verdict.word) == (60, "pass")


async def test_a_reference_with_a_name_may_come_back_at_another_port(bench: Bench) -> None:
    prompts, serving = bench.many(20), bench.engine()
    for number, port in enumerate((8001, 8002)):
        lab = bench.lab(serving, bench.engine(url=f"http://b:{port}"))
        assert (await cut_short(bench, lab, prompts) >= 5) == bool(number)


async def test_a_finished_run_is_not_resumed(bench: Bench) -> None:
    engine, prompts = bench.engine(), bench.many(4)
    await checked(bench, bench.lab(engine), prompts)
    ready: list[CheckEvent] = []
    await checked(bench, bench.lab(engine), prompts, ready.append)
    assert isinstance(ready[0], ArmsReady)
    assert ready[0].resumed == 0
    assert len(bench.store.history(engine.url)) == 2


async def test_two_checks_at_once_do_not_count_into_one_run(bench: Bench, tmp_path: Path) -> None:
    engine = bench.engine()
    async with bench.lab(engine) as lab:
        first = begin_run(lab, bench.many(6), bench.store)
        events = first.events()
        await anext(events)
        with Store(tmp_path / "store.sqlite") as store:
            async with bench.lab(engine) as second:
                other = (await finish_check(second, bench.many(6), Checks(store))).outcome
            assert (other.totals.prompts, len(Checks(store).history(engine.url))) == (6, 1)
        async for _ in events:
            pass
        found, _ = judge_run(lab, first, bench.store)
        bench.store.finish(first.run.id, lab.wall(), found.as_json())
    assert found.totals.prompts == 6
    assert len(bench.store.history(engine.url)) == 2


async def test_progress_moves_before_the_first_block_is_compared(bench: Bench) -> None:
    moves: list[CheckProgress] = []

    def keep(event: CheckEvent) -> None:
        if isinstance(event, CheckProgress):
            moves.append(event)

    await checked(bench, bench.lab(bench.engine(), streams=2), bench.many(12), keep)
    first = [one for one in moves if not one.done]
    asked = [one.answers for one in first if one.step is None]
    assert asked == sorted(set(asked))
    assert len(first) > 10
    assert {one.answers_of for one in first} == {ASKS * 12}
    assert first[0].seconds_left is None
    assert all(one.seconds_left is not None for one in first if one.answers >= 2)
    assert moves[-1].done == 12
    assert moves[-1].answers >= ASKS * 12
    assert moves[-1].answers == moves[-1].answers_of
    assert moves[-1].seconds_left == 0


async def test_progress_says_what_is_done_once_every_answer_is_there(bench: Bench) -> None:
    moves: list[CheckProgress] = []

    def keep(event: CheckEvent) -> None:
        if isinstance(event, CheckProgress):
            moves.append(event)

    engine = bench.engine(faults={"prompt 7": bench.fault(11, margin=3.0, honest=False)})
    await checked(bench, bench.lab(engine, streams=4), bench.many(12), keep)
    counted = [one for one in moves if not one.done and one.answers == one.answers_of]
    steps = [one.step for one in counted]
    assert "looking again at 1 prompt" in steps
    assert any(step is not None and step.startswith("rechecking ") for step in steps)
    assert [one for one in counted if one.step is None and one.seconds_left is not None] == []
    assert all(one.seconds_left is None for one in counted)
    assert all(one.step is None for one in moves if one.done)


async def test_an_attempt_counts_only_the_answers_of_its_own(bench: Bench) -> None:
    engine, prompts = bench.engine(), bench.many(12)
    lab = bench.lab(engine, streams=1)
    async with lab, aclosing(begin_run(lab, prompts, bench.store).events()) as events:
        async for event in events:
            if isinstance(event, CheckProgress) and event.done >= 4 and event.figures is not None:
                break
    moves: list[CheckProgress] = []

    def keep(event: CheckEvent) -> None:
        if isinstance(event, CheckProgress):
            moves.append(event)

    await checked(bench, bench.lab(engine, streams=1), prompts, keep)
    assert (moves[0].done, moves[0].answers, moves[0].answers_of) == (4, 0, ASKS * 8)
    assert (moves[-1].done, moves[-1].answers_of) == (12, moves[-1].answers)


class Known(Checks):
    """A store in which all prompts but the last ones have been asked."""

    first_unasked = 1990

    def has(self, run: int, prompt: int) -> bool:
        return prompt < self.first_unasked


async def test_prompts_that_were_asked_leave_the_loop_its_turns(
    bench: Bench, tmp_path: Path
) -> None:
    """A million of them take half a minute, and neither keys nor signals were heard."""
    prompts, turns = bench.many(2000), 0
    with Store(tmp_path / "known.sqlite") as store:
        checks = Known(store)
        run = checks.begin("key", 1000.0, "http://a:1", {})

        async def look() -> list[int]:
            return [one.number async for one in unasked_prompts(prompts, checks, run)]

        looking = asyncio.create_task(look())
        while not looking.done():
            turns += 1
            await asyncio.sleep(0)
        assert looking.result() == list(range(1990, 2001))
    assert turns > 10


async def test_a_store_that_is_held_for_a_while_costs_a_check_nothing(bench: Bench) -> None:
    faults = {"prompt 3": bench.fault(9, 3.2), "prompt 7": bench.fault(4, bench.step)}
    alone = await checked(bench, bench.lab(bench.engine(faults=faults)), bench.many(12))
    holder, waited = hold(bench), list[int]()

    def release(event: CheckEvent) -> None:
        if not isinstance(event, CheckProgress):
            return
        if event.done == 4 and not holder.in_transaction:
            holder.execute("BEGIN IMMEDIATE")
        if event.done == 8 and holder.in_transaction:
            waited.append(bench.store.waiting)
            holder.execute("ROLLBACK")

    lab = bench.lab(bench.engine(faults=faults), streams=1, fresh=True)
    async with lab:
        result = await finish_check(lab, bench.many(12), bench.store, release)
    holder.close()
    assert waited[0] > 0
    assert result.unstored is None
    assert result.outcome.totals.cross == alone.totals.cross
    run, *_ = bench.store.history(lab.arms[0].url)
    assert run.id == result.run
    assert [one.prompt for one in bench.store.divergences(run.id, "cross")] == [3, 7]


async def test_a_check_has_its_verdict_where_the_store_stays_held(
    bench: Bench, tmp_path: Path
) -> None:
    faults = {"prompt 3": bench.fault(9, 3.2), "prompt 7": bench.fault(4, bench.step)}
    engine, prompts = bench.engine(faults=faults), bench.many(12)
    holder, results = hold(bench), list[CheckResult]()
    lab = bench.lab(engine, streams=1)
    async with lab, aclosing(run_check(lab, prompts, bench.store, held_s=0.0)) as events:
        async for event in events:
            if isinstance(event, CheckProgress) and event.done == 4 and not holder.in_transaction:
                holder.execute("BEGIN IMMEDIATE")
            if isinstance(event, CheckResult):
                results.append(event)
    (result,) = results
    assert isinstance(result.unstored, StoreHeld)
    assert [case.prompt for case in result.outcome.classes.listed] == [3, 7]
    assert result.history.runs == 0
    assert bench.store.history(engine.url) == ()
    holder.execute("ROLLBACK")
    holder.close()
    # All of it is told: nothing of it is taken for an answer of the next night.
    bench.store._store.close()
    async with bench.lab(engine, streams=1) as anew:
        with Store(tmp_path / "store.sqlite") as store:
            ready = await anext(run_check(anew, prompts, Checks(store)))
    assert isinstance(ready, ArmsReady)
    assert ready.resumed == 0


def hold(bench: Bench) -> sqlite3.Connection:
    """Another process that can take the store for itself; nothing waits for it here."""
    ((_, _, path),) = bench.store._store._db.execute("PRAGMA database_list").fetchall()
    bench.store._store._db.execute("PRAGMA busy_timeout = 0")
    return sqlite3.connect(path, isolation_level=None)
