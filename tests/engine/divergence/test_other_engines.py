"""Engines that are not what a check takes them for: replaced, the same by two names, drafting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check, finish_sampled_check
from tests.support.completion_engine import CompletionEngine

from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.divergence.sampled import Distributions, Sampling
from specdeck.engine.divergence.verdict import (
    NOT_PINNED,
    REFERENCE_DRAFTED,
    TURNED_IDLE,
    Verdict,
)
from specdeck.engine.errors import Unsupported, UsageError
from specdeck.engine.operations.check import ArmsReady, CheckEvent, run_check
from specdeck.engine.protocol.messages import EngineState


@dataclass
class ChangingEngine(CompletionEngine):
    """Says something else of itself once it has been asked often enough."""

    late: int = 40

    state_now: dict[str, Any] = field(default_factory=dict)
    """What is another in its state from the beginning."""
    state_then: dict[str, Any] = field(default_factory=dict)
    """And what is from then on."""
    pages_then: tuple[str, str] | None = None
    """Its metrics before and after."""

    def state(self) -> EngineState:
        told = self.state_now | (self.state_then if self._is_late else {})
        return replace(super().state(), **told)

    def _get(self, path: str) -> httpx.Response:
        if path == "/metrics" and self.pages_then is not None:
            return httpx.Response(200, text=self.pages_then[self._is_late])
        return super()._get(path)

    @property
    def _is_late(self) -> bool:
        return len(self.asked) > self.late


def page(
    started: float = 100.0,
    prompt: float = 5.0,
    generated: float = 5.0,
    drafted: float | None = None,
) -> str:
    """A metrics page of a process that started then."""
    drafts = "" if drafted is None else f"vllm:spec_decode_num_draft_tokens_total {drafted}\n"
    return (
        f"process_start_time_seconds {started}\nvllm:num_requests_running 0\n"
        f"vllm:prompt_tokens_total 5\nvllm:generation_tokens_total {generated}\n{drafts}"
    )


async def check(
    bench: Bench, serving: CompletionEngine, reference: CompletionEngine | None = None
) -> Verdict:
    async with bench.lab(serving, reference, max_tokens=8) as lab:
        return (await finish_check(lab, bench.many(200), bench.store)).verdict


async def sample(
    bench: Bench,
    serving: CompletionEngine,
    reference: CompletionEngine | None = None,
    count: int = 8,
) -> Distributions:
    async with bench.lab(serving, reference) as lab:
        sampling = Sampling(samples=64, tokens=2)
        return (await finish_sampled_check(lab, bench.many(count), sampling, bench.store)).found


NAME = "vllm-0.32.0-ab-sd1:p0123456789abcdef"
REPLACED = "the serving engine was replaced while it was checked"


async def test_no_pass_is_of_two_engines_whose_answers_name_neither(bench: Bench) -> None:
    engine = ChangingEngine(
        state_then={"instance": "another", "fingerprint": "sd1:p0000000000000001"}
    )
    verdict = await check(bench, engine)
    assert verdict.word == "inconclusive"
    assert verdict.reason.startswith(REPLACED)


async def test_a_restart_of_the_same_path_is_no_other_engine(bench: Bench) -> None:
    engine = ChangingEngine(state_then={"instance": "another"})
    assert (await check(bench, engine)).word == "pass"


async def test_answers_that_name_one_path_are_of_one_engine(bench: Bench) -> None:
    other = {"instance": "another", "fingerprint": None}
    engine = ChangingEngine(state_then=other, named=["vllm-0.32.0-ab-sd1:p01"])
    assert (await check(bench, engine)).word == "pass"


async def test_an_engine_without_the_plugin_is_known_by_its_start(bench: Bench) -> None:
    pages = page(started=100.0), page(started=200.0)
    serving = ChangingEngine(plugin=False, pages_then=pages)
    reference = bench.engine(url="http://other", drafts=False)
    verdict = await check(bench, serving, reference)
    assert verdict.word == "inconclusive"
    assert verdict.reason.startswith(REPLACED)


async def test_draws_from_two_engines_are_no_pass(bench: Bench) -> None:
    engine = ChangingEngine(state_then={"instance": "another", "fingerprint": None})
    found = await sample(bench, engine, count=24)
    assert found.verdict.word == "inconclusive"
    assert found.verdict.reason.startswith(REPLACED)


async def test_one_engine_by_two_addresses_is_refused_without_the_plugin_too(bench: Bench) -> None:
    one = bench.engine(plugin=False, pages=[page()])
    other = bench.engine(url="http://other", plugin=False, pages=[page()])
    with pytest.raises(UsageError, match="is the engine that is checked"):
        await check(bench, one, other)


async def test_engines_that_began_in_one_moment_are_told_apart_by_their_counters(
    bench: Bench,
) -> None:
    one = bench.engine(plugin=False, pages=[page(generated=6.0)])
    other = bench.engine(
        url="http://other", plugin=False, drafts=False, pages=[page(generated=5.0)]
    )
    assert (await check(bench, one, other)).word == "pass"


@pytest.mark.parametrize(("drafted", "word"), [((7, 7), "pass"), ((7, 90), "inconclusive")])
async def test_a_reference_that_drafts_by_its_counters_is_not_the_target_alone(
    bench: Bench, drafted: tuple[float, float], word: str
) -> None:
    before, after = (page(started=200.0, drafted=count) for count in drafted)
    reference = ChangingEngine(
        url="http://other", plugin=False, drafts=False, pages_then=(before, after)
    )
    verdict = await check(bench, bench.engine(plugin=False, pages=[page()]), reference)
    assert verdict.word == word
    assert (verdict.reason == REFERENCE_DRAFTED) == (word == "inconclusive")


async def test_a_reference_that_speculates_by_its_own_word_proves_nothing_of_draws(
    bench: Bench,
) -> None:
    found = await sample(bench, bench.engine(), bench.engine(url="http://other", drafts=False))
    assert (found.verdict.word, found.verdict.reason) == ("inconclusive", REFERENCE_DRAFTED)


async def test_draws_of_requests_that_nothing_shows_to_be_pinned_are_no_pass(bench: Bench) -> None:
    found = await sample(bench, bench.engine(drafts=False))
    assert (found.verdict.word, found.verdict.reason) == ("inconclusive", NOT_PINNED)


async def test_draws_of_an_engine_that_disobeys_pins_are_refused(bench: Bench) -> None:
    with pytest.raises(Unsupported, match="drafts for requests that are pinned"):
        await sample(bench, bench.engine(obeys_pins=False))


async def test_draws_for_few_of_the_prompts_are_no_pass(bench: Bench) -> None:
    refuse = {f"prompt {n}": (400, "the context is too long") for n in range(2, 9)}
    found = await sample(bench, bench.engine(refuse=refuse))
    assert found.verdict.word == "inconclusive"
    assert found.verdict.reason == "7 of 8 prompts were refused by an arm, and so not checked"


@pytest.mark.parametrize("fingerprint", [None, "sd1:p~0123456789abcdef"])
async def test_nothing_is_gone_on_with_that_another_engine_may_have_begun(
    bench: Bench, fingerprint: str | None
) -> None:
    """The same partial name is of other weights as well."""

    def engine(started: float) -> ChangingEngine:
        told = {"fingerprint": fingerprint, "started": started}
        return ChangingEngine(state_now=told)

    prompts = bench.many(12)
    for started, resumed in ((1.0, 0), (1.0, 4), (2.0, 0)):
        async with bench.lab(engine(started), streams=1) as lab:
            assert await stop_after(4, run_check(lab, prompts, bench.store)) == resumed


async def stop_after(prompts: int, check: AsyncGenerator[CheckEvent, None]) -> int:
    """Follows a check for so many prompts, and says how many it was resumed after."""
    resumed = 0
    async with aclosing(check) as events:
        async for event in events:
            if isinstance(event, ArmsReady):
                resumed = event.resumed
            if isinstance(event, CheckProgress) and event.done >= resumed + prompts:
                break
    return resumed


async def test_an_engine_that_tells_no_start_has_its_check_begun_anew(bench: Bench) -> None:
    prompts = bench.many(12)
    for _ in range(2):
        reference = bench.engine(url="http://other", drafts=False)
        async with bench.lab(bench.engine(plugin=False), reference, streams=1) as lab:
            assert await stop_after(4, run_check(lab, prompts, bench.store)) == 0


IDLE: tuple[dict[str, Any], ...] = ({"mode": "target-only", "k": 0}, {"k": 0}, {"method": None})


@pytest.mark.parametrize("told", IDLE, ids=str)
async def test_an_engine_that_drafts_nothing_by_its_own_word_passes_nothing(
    bench: Bench, told: dict[str, Any]
) -> None:
    serving = ChangingEngine(state_now=told, drafts=False)
    reference = bench.engine(url="http://other", plugin=False)
    verdict = await check(bench, serving, reference)
    assert (verdict.word, verdict.untried) == ("inconclusive", True)
    assert "drafted nothing" in verdict.reason
    found = await sample(bench, ChangingEngine(state_now=told))
    assert found.verdict.word == "inconclusive"


async def test_another_end_of_equal_tokens_is_a_fail(bench: Bench) -> None:
    @dataclass
    class EndsOtherwise(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> httpx.Response:
            found = super()._greedy(body, text)
            pinned = body.get("vllm_xargs") is not None
            if pinned or body.get("stream") or text != "prompt 2":
                return found
            ended = found.content.replace(b'"finish_reason":"length"', b'"finish_reason":"stop"')
            assert ended != found.content
            return httpx.Response(200, content=ended)

    verdict = await check(bench, EndsOtherwise())
    assert (verdict.word, verdict.defect) == ("fail", True)
    assert "another text or end for 1 prompt" in verdict.reason


async def test_a_prompt_that_is_given_often_is_asked_once(bench: Bench) -> None:
    engine = bench.engine()
    bodies = [{"prompt": "same"}] * 200 + [{"prompt": f"prompt {n}"} for n in (1, 2)]
    prompts = bench.written(*bodies, {"prompt": "same", "id": "x"})
    assert (prompts.count, [prompt.number for prompt in prompts]) == (3, [1, 2, 3])
    assert [prompt.line for prompt in prompts] == [1, 201, 202]
    found = prompts.find(2)
    assert found is not None
    assert found.body == {"prompt": "prompt 1"}
    async with bench.lab(engine, max_tokens=8) as lab:
        outcome = (await finish_check(lab, prompts, bench.store)).outcome
    assert outcome.totals.prompts == 3
    assert outcome.verdict.word == "inconclusive"
    assert outcome.notices[0].startswith("200 prompts left out as copies")


@dataclass
class LeavingEngine(ChangingEngine):
    """Its plugin says nothing any more from the 40th answer on."""

    def _get(self, path: str) -> httpx.Response:
        if path.endswith("/state") and self._is_late:
            return httpx.Response(503, json={"error": {"message": "busy"}})
        return super()._get(path)


async def test_an_engine_that_is_away_in_the_end_is_not_taken_for_the_same(bench: Bench) -> None:
    async with bench.lab(LeavingEngine(), max_tokens=8, retry_s=0.0) as lab:
        verdict = (await finish_check(lab, bench.many(200), bench.store)).verdict
    assert verdict.word == "inconclusive"
    assert verdict.reason.startswith(REPLACED)


@pytest.mark.parametrize(
    ("drafted", "word"),
    [(range(7, 900), "pass"), ([7], "inconclusive"), ([None], "inconclusive")],
)
async def test_a_serving_engine_whose_counters_stand_still_was_not_tried(
    bench: Bench, drafted: Sequence[float | None], word: str
) -> None:
    pages = [page(drafted=count) for count in drafted]
    serving = bench.engine(plugin=False, drafts=False, pages=pages)
    reference = bench.engine(
        url="http://other", plugin=False, drafts=False, pages=[page(started=200.0)]
    )
    verdict = await check(bench, serving, reference)
    assert verdict.word == word
    assert ("drafted nothing" in verdict.reason) == (word != "pass")


async def test_a_reference_of_which_nothing_is_known_is_none(bench: Bench) -> None:
    silent = bench.engine(url="http://gateway", plugin=False, drafts=False)
    verdict = await check(bench, bench.engine(), silent)
    assert (verdict.word, verdict.reason) == ("inconclusive", NOT_PINNED)
    found = await sample(bench, bench.engine(), silent)
    assert (found.verdict.word, found.verdict.reason) == ("inconclusive", NOT_PINNED)


@dataclass
class CountingEngine(CompletionEngine):
    """Counts what it drafts in its metrics alone."""

    plugin: bool = False
    drafts: bool = False
    drafts_until: float = float("inf")
    """The number of the answer from which on it drafts nothing."""
    away_at: int = 0
    """Of its looks at the counters after the last answer, the one that fails."""
    state_then: dict[str, Any] = field(default_factory=dict)
    """What is another in its state once it drafts nothing."""
    late: int = 0

    def _get(self, path: str) -> httpx.Response:
        if path != "/metrics":
            return super()._get(path)
        self.late += len(self.answers_asked()) >= 400
        if self.late == self.away_at > 0:
            self.late += 1
            return httpx.Response(503, text="busy")
        drafted = 5 * min(len(self.answers_asked()), self.drafts_until)
        return httpx.Response(200, text=page(started=len(self.url), drafted=drafted))

    def state(self) -> EngineState:
        is_over = len(self.answers_asked()) > self.drafts_until
        return replace(super().state(), **(self.state_then if is_over else {}))


@dataclass
class PassingEngine(CountingEngine):
    """Has its breaker open, or does not answer for its state, while some of its answers are asked
    for; it drafts all the time."""

    plugin: bool = True
    open_in: range = range(0)
    mute_in: range = range(0)

    def _get(self, path: str) -> httpx.Response:
        if path.endswith("/state") and len(self.answers_asked()) in self.mute_in:
            return httpx.Response(401, json={})
        return super()._get(path)

    def state(self) -> EngineState:
        is_open = len(self.answers_asked()) in self.open_in
        return replace(super().state(), breaker="open" if is_open else "closed")


@pytest.mark.parametrize("drafts", [True, False])
async def test_a_breaker_that_is_open_for_a_look_is_nothing_beside_answers_that_show_drafts(
    bench: Bench, drafts: bool
) -> None:
    """A look is of all answers since the one before it."""
    serving = PassingEngine(drafts=drafts, open_in=range(50, 140))
    verdict = await check(bench, serving, target_alone())
    assert (verdict.word == "pass") is drafts
    assert ("drafted nothing by its own word at" in verdict.reason) is not drafts


async def test_a_state_that_cannot_be_read_is_no_word_of_drafts(bench: Bench) -> None:
    mute = range(60, 390)
    verdict = await check(bench, PassingEngine(mute_in=mute), target_alone())
    assert verdict.word == "inconclusive"
    assert "did not say whether it drafts" in verdict.reason
    assert (await check(bench, PassingEngine(drafts=True, mute_in=mute), target_alone())).word == (
        "pass"
    )


def target_alone(**told: Any) -> CountingEngine:
    return CountingEngine(url="http://other", drafts_until=0, **told)


async def check_patiently(
    bench: Bench, serving: CompletionEngine, reference: CompletionEngine | None, retry_s: float
) -> Verdict:
    async with bench.lab(serving, reference, max_tokens=8, retry_s=retry_s) as lab:
        return (await finish_check(lab, bench.many(200), bench.store)).verdict


@pytest.mark.parametrize("retry_s", [0.0, 5.0])
async def test_counters_that_are_away_once_are_asked_for_again(
    bench: Bench, retry_s: float
) -> None:
    """Those of the last look: a reference that drafts, and a serving engine that does not."""
    drafting = CountingEngine(url="http://other", away_at=1)
    verdict = await check_patiently(bench, CountingEngine(), drafting, retry_s)
    assert verdict.word == "inconclusive"
    assert retry_s == 0.0 or verdict.reason == REFERENCE_DRAFTED
    idle = CountingEngine(drafts_until=0, away_at=1)
    verdict = await check_patiently(bench, idle, target_alone(), retry_s)
    assert verdict.word == "inconclusive"
    assert "drafted nothing" in verdict.reason
    honest = CountingEngine(away_at=1)
    verdict = await check_patiently(bench, honest, target_alone(), retry_s)
    assert verdict.word == ("pass" if retry_s else "inconclusive")


@pytest.mark.parametrize("plugin", [True, False])
async def test_drafts_for_the_first_answers_are_none_for_the_others(
    bench: Bench, plugin: bool
) -> None:
    state = {"breaker": "open"}
    serving = CountingEngine(plugin=plugin, drafts_until=40, state_then=state)
    verdict = await check(bench, serving, target_alone())
    assert (verdict.word, verdict.untried) == ("inconclusive", True)
    if not plugin:
        assert verdict.reason.startswith("nothing was drafted for 336 of 400 serving answers")


async def test_drafts_before_a_check_was_cut_short_are_not_forgotten(bench: Bench) -> None:
    """In its last moment, so that nothing is asked any more; or in its midst."""
    for prompts in (200, 64):
        reference = CountingEngine(url="http://other", drafts_until=4 * prompts)
        arms = CountingEngine(), reference
        async with bench.lab(*arms, streams=1, max_tokens=8) as lab:
            assert await stop_after(prompts, run_check(lab, bench.many(200), bench.store)) == 0
        async with bench.lab(*arms, streams=1, max_tokens=8) as lab:
            result = await finish_check(lab, bench.many(200), bench.store)
        assert result.outcome.totals.prompts == 200
        assert (result.verdict.word, result.verdict.reason) == ("inconclusive", REFERENCE_DRAFTED)


async def test_an_honest_check_by_counters_goes_on_and_passes(bench: Bench) -> None:
    for prompts in (200, 70):
        arms = CountingEngine(), target_alone()
        async with bench.lab(*arms, streams=1, max_tokens=8) as lab:
            assert await stop_after(prompts, run_check(lab, bench.many(200), bench.store)) == 0
        async with bench.lab(*arms, streams=1, max_tokens=8) as lab:
            assert (await finish_check(lab, bench.many(200), bench.store)).verdict.word == "pass"


@dataclass
class OpeningEngine(ChangingEngine):
    """Its breaker opens after 40 answers, which tell their drafts."""

    def _greedy(self, body: dict[str, Any], text: str) -> httpx.Response:
        off = {"vllm_xargs": {"specdeck_k": 0}} if self._is_late else {}
        return super()._greedy(body | off, text)


@pytest.mark.parametrize("then", [{"breaker": "open"}, {}], ids=str)
async def test_a_drafter_by_text_whose_breaker_opens_passes_nothing(
    bench: Bench, then: dict[str, Any]
) -> None:
    """That some of its answers have no drafts is no standstill of such a drafter."""
    verdict = await check(bench, OpeningEngine(state_now={"method": "ngram"}, state_then=then))
    assert verdict.word == ("inconclusive" if then else "pass")
    # The first answers show drafts of theirs.
    assert ("by its own word at 376 of 400" in verdict.reason) == bool(then)


async def test_a_breaker_that_was_open_in_the_midst_is_not_forgotten(bench: Bench) -> None:
    @dataclass
    class OpenForAWhile(OpeningEngine):
        closes_at: int = 0

        @property
        def _is_late(self) -> bool:
            return 40 < len(self.asked) < self.closes_at

    now, then = {"method": "ngram"}, {"breaker": "open"}
    for closes_at, word in ((900, "inconclusive"), (100, "pass")):
        engine = OpenForAWhile(state_now=now, state_then=then, closes_at=closes_at)
        verdict = await check(bench, engine)
        assert verdict.word == word
        assert ("by its own word" in verdict.reason) == (word == "inconclusive")


async def test_short_answers_do_not_hide_that_drafting_stopped(bench: Bench) -> None:
    """Answers of a few tokens have no drafts now and then, whatever their engine does."""
    prompts = bench.many(200)
    async with bench.lab(OpeningEngine(state_then={"breaker": "open"}), max_tokens=4) as lab:
        verdict = (await finish_check(lab, prompts, bench.store)).verdict
    assert verdict.word == "inconclusive"
    assert "by its own word at 376 of 400" in verdict.reason
    counting = CountingEngine(drafts=True, drafts_until=40)
    async with bench.lab(counting, target_alone(), max_tokens=4) as lab:
        verdict = (await finish_check(lab, prompts, bench.store)).verdict
    assert verdict.reason.startswith("nothing was drafted for 336 of 400 serving answers")
    async with bench.lab(ChangingEngine(), max_tokens=4) as lab:
        assert (await finish_check(lab, prompts, bench.store)).verdict.word == "pass"


async def test_most_short_answers_have_drafts_of_an_engine_that_drafts(bench: Bench) -> None:
    """The counters of blocks are of others' drafts as well."""
    prompts, elsewhere = bench.many(200), CountingEngine(drafts=True, drafts_until=9_000)

    @dataclass
    class Idling(OpeningEngine):
        def _get(self, path: str) -> httpx.Response:
            return elsewhere._get(path) if path == "/metrics" else super()._get(path)

        def _greedy(self, body: dict[str, Any], text: str) -> httpx.Response:
            elsewhere.asked.append(body)
            return super()._greedy(body, text)

    for late, word in ((40, "inconclusive"), (2_000, "pass")):
        async with bench.lab(Idling(late=late), max_tokens=4) as lab:
            verdict = (await finish_check(lab, prompts, bench.store)).verdict
        assert verdict.word == word
        assert ("of 400 serving answers" in verdict.reason) == (word == "inconclusive")


async def test_answers_that_all_show_drafts_outweigh_a_state_that_is_idle_in_the_end(
    bench: Bench,
) -> None:
    engine = ChangingEngine(
        state_now={"method": "ngram"}, state_then={"policy": "goodput", "k": 0}, late=900
    )
    assert (await check(bench, engine)).word == "pass"


async def test_an_engine_whose_breaker_is_open_in_the_end_passes_nothing(bench: Bench) -> None:
    for then in ({"breaker": "open"}, {"mode": "target-only", "k": 0}):
        for late, said in ((40, "by its own word at 400 of 400"), (1000, TURNED_IDLE)):
            engine = ChangingEngine(drafts=False, named=[NAME], state_then=then, late=late)
            verdict = await check(bench, engine)
            assert verdict.word == "inconclusive"
            assert said in verdict.reason


async def test_a_reference_that_is_wrong_itself_passes_nothing(bench: Bench) -> None:
    """Streamed answers of either arm have a sure token replaced, in one prompt or in all."""
    for count in (1, 200):
        wrong = {f"prompt {n}": bench.fault(2, 9.0) for n in range(1, count + 1)}
        verdict = await check(bench, bench.engine(unrepeatable=wrong))
        assert verdict.word == "inconclusive"
        assert "of its own" in verdict.reason or "against itself" in verdict.reason
