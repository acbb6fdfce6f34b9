"""Whole checks against fake engines with planted faults."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import httpx
import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check
from tests.support.completion_engine import CompletionEngine, Fault

from specdeck.engine.divergence import report
from specdeck.engine.divergence.bundle import case_page
from specdeck.engine.divergence.outcome import Outcome
from specdeck.engine.divergence.requests import RequestSettings
from specdeck.engine.divergence.runner import CheckProgress, Found
from specdeck.engine.errors import EngineError, Unsupported, UsageError
from specdeck.engine.operations.check import begin_run


def looked_at(body: dict[str, Any]) -> bool:
    """Whether the target is fed tokens instead of a prompt."""
    return isinstance(body.get("prompt"), list)


def looks_at(engine: CompletionEngine, candidates: int) -> int:
    """Passes over an answer with so many candidates: five at a difference, two at all others."""
    return sum(body.get("prompt_logprobs") == candidates for body in engine.asked)


async def checked(bench: Bench, lab: Any, prompts: Any, said: Any = lambda _: None) -> Outcome:
    async with lab:
        return (await finish_check(lab, prompts, bench.store, said)).outcome


async def test_an_honest_engine_passes_with_its_floor_shown(bench: Bench) -> None:
    outcome = await checked(bench, bench.lab(bench.engine(), max_tokens=8), bench.many(200))
    data = outcome.as_json()
    assert (data["verdict"], data["mismatches"], data["prompts"]) == ("pass", 0, 200)
    assert data["noise_floor"]["pairs"] == 200
    assert data["noise_floor"]["rate"] == data["noise_floor"]["serving"]["rate"] == 0.0
    assert data["arms"]["reference"]["drafted"] == 0
    assert data["arms"]["serving"]["drafted"] > 0
    assert data["near_tie"]["resolution"] == bench.step
    verdict, mismatches, *_ = report.check_lines(data)
    assert verdict.endswith("at most 1.49% differ (one-sided 95% bound)")
    assert "two-sided 95% 0.00% to 1.83%" in mismatches


async def test_a_path_that_moves_during_a_check_is_a_notice(bench: Bench) -> None:
    engine = bench.engine(named=["vllm-0.32.0-ab-sd1:p01"] * 25 + ["vllm-0.32.0-ab-sd1:p02"])
    outcome = await checked(bench, bench.lab(engine), bench.many(20))
    (moved,) = [n for n in outcome.as_json()["notices"] if "path changed" in n]
    assert moved == (
        "the serving path changed while it was checked: 2 fingerprints, sd1:p01 first;"
        " the verdict is of all of them together"
    )


async def test_a_name_that_was_not_whole_yet_is_no_other_path(bench: Bench) -> None:
    known, whole = "sd1:p~0123456789abcdef", "sd1:p0123456789abcdef"
    engine = bench.engine(named=[f"vllm-0.32.0-ab-{known}"] * 25 + [f"vllm-0.32.0-ab-{whole}"])
    outcome = await checked(bench, bench.lab(engine), bench.many(20))
    assert outcome.totals.serving.names == [known, whole]
    assert not [n for n in outcome.as_json()["notices"] if "path changed" in n]


async def test_a_path_that_stays_is_none(bench: Bench) -> None:
    engine = bench.engine(named=["vllm-0.32.0-ab-sd1:p01"])
    outcome = await checked(bench, bench.lab(engine), bench.many(20))
    assert outcome.totals.serving.names == ["sd1:p01"]
    arms = outcome.as_json()["arms"]
    assert arms["serving"]["fingerprint"] == "sd1:0f3a"
    assert (arms["reference"]["k"], arms["reference"]["fingerprint"]) == (0, "sd1:p01+k0")
    assert not [n for n in outcome.as_json()["notices"] if "path changed" in n]


async def test_both_arms_get_the_same_request_but_for_pin_cache_and_figures(bench: Bench) -> None:
    engine = bench.engine()
    await checked(bench, bench.lab(engine), bench.many(3))
    asked = engine.answers_asked()
    own = "vllm_xargs", "cache_salt", "logprobs"
    same = [{k: v for k, v in body.items() if k not in own} for body in asked]
    assert all(same.count(body) == 2 for body in same)
    assert all(body["temperature"] == 0.0 and body["return_token_ids"] for body in same)
    kinds = Counter(("vllm_xargs" in b, "stream" in b, "logprobs" in b) for b in asked)
    reference = {(True, False, True): 3, (True, True, True): 3}
    assert kinds == reference | {(False, False, True): 3, (False, True, False): 3}


async def test_an_arm_reads_every_prompt_for_itself_and_once(bench: Bench) -> None:
    engine = bench.engine()
    for _ in range(2):
        await checked(bench, bench.lab(engine, streams=1, fresh=True), bench.many(8))
    asked = engine.answers_asked()
    salts = [(body["cache_salt"], "vllm_xargs" in body) for body in asked]
    assert list(Counter(salts).values()) == [16] * 4  # two checks of two arms
    assert len({salt for salt, _ in salts}) == 4
    firsts: dict[tuple[str, str], bool] = {}
    for body in asked:
        firsts.setdefault((body["prompt"], body["cache_salt"]), "stream" in body)
    by_block = {f"prompt {n}": n > 4 for n in range(1, 9)}
    assert all(streamed == by_block[text] for (text, _), streamed in firsts.items())


async def test_no_batch_has_requests_with_and_without_log_probabilities(bench: Bench) -> None:
    @dataclass
    class Batches(CompletionEngine):
        kinds: list[set[bool]] = field(default_factory=list)

        async def __call__(self, request: httpx.Request) -> httpx.Response:
            self.asking.append("logprobs" in json.loads(request.content or b"{}"))
            self.kinds.append(set(self.asking))
            answer = await super().__call__(request)
            self.asking.pop()
            return answer

        asking: list[bool] = field(default_factory=list)

    engine = Batches(pause=0.001)
    await checked(bench, bench.lab(engine, max_tokens=4), bench.many(32))
    assert {True} in engine.kinds
    assert {False} in engine.kinds
    assert {True, False} not in engine.kinds


@pytest.mark.parametrize("kind", ["bare_faults", "cold_faults"])
async def test_a_fault_that_some_requests_alone_meet_is_found(bench: Bench, kind: str) -> None:
    """Where no log-probabilities are asked for; where the prompt is not in the prefix cache."""
    faults = {f"prompt {n}": bench.fault(3, margin=3.0, honest=False) for n in range(1, 41)}
    engine = bench.engine()
    getattr(engine, kind).update(faults)
    prompts = bench.many(40)
    outcome = await checked(bench, bench.lab(engine, max_tokens=6), prompts)
    assert outcome.verdict.word == "fail"
    assert outcome.classes.counts["material"] == 40
    pairs = Counter(case["pair"] for case in outcome.as_json()["cases"])
    data = outcome.as_json()
    seen = data["mismatches"], data["streamed"]["mismatches"]
    assert seen == ((0, 40) if kind == "bare_faults" else (24, 16))
    (line,) = [one for one in report.check_lines(data) if one.startswith("streamed ")]
    assert f"{seen[1]} of 40 (" in line
    (*_, case), (*_, prompt) = (one for one in data["cases"] if one["pair"] == "streamed"), prompts
    page = case_page(data, case, prompt, RequestSettings(), keyed=False)
    assert f"Seen in {seen[1]} of 40 prompts" in page
    assert pairs == ({"streamed": 40} if kind == "bare_faults" else {"cross": 24, "streamed": 16})


async def test_a_planted_token_is_found_at_its_index(bench: Bench) -> None:
    engine = bench.engine(faults={"prompt 7": bench.fault(23, margin=bench.step)})
    outcome = await checked(bench, bench.lab(engine), bench.many(20))
    (case,) = outcome.as_json()["cases"]
    assert (case["prompt"], case["index"], case["class"]) == (7, 23, "near_tie")
    assert case["serving_token"] == case["reference_token"] + 1000
    assert case["margin_serving"] == case["margin_reference"] == bench.step


async def test_a_confident_token_that_was_replaced_is_material_and_confirmed(bench: Bench) -> None:
    engine = bench.engine(faults={"prompt 9": bench.fault(11, margin=3.0, honest=False)})
    outcome = await checked(bench, bench.lab(engine, max_tokens=12), bench.many(200))
    data = outcome.as_json()
    (case,) = data["cases"]
    assert (data["verdict"], case["class"], case["index"]) == ("fail", "material", 11)
    assert case["recheck"]["confirmed"]
    assert (case["recheck"]["gap"], case["recheck"]["rank"]) == (3.0, 2)
    assert case["margin_serving"] == -3.0


async def test_what_only_the_noise_so_far_makes_a_tie_is_looked_at_again(bench: Bench) -> None:
    engine = bench.engine(faults={"prompt 1": bench.fault(1, margin=4 * bench.step)})
    async with bench.lab(engine) as lab:
        check = begin_run(lab, bench.many(1), bench.store)
        loud = check.totals.calibration
        loud.margins = {"serving": [1000, 0, 0, 0] + [1000] * 8}
        loud.noise = {0: 1000}
        assert loud.near_tie() == 8 * bench.step
        async for _ in check.events():
            pass
    assert looks_at(engine, 5) == 2  # and twice one token at a time
    assert sum("logprobs" in body for body in engine.asked if looked_at(body)) == 2


async def test_a_defect_in_2_of_100_outputs_is_found_with_500_prompts(bench: Bench) -> None:
    faults = {
        f"prompt {n}": bench.fault(5, margin=0.25 + n / 50, honest=False)
        for n in range(50, 501, 50)
    }
    lab = bench.lab(bench.engine(faults=faults), max_tokens=6)
    outcome = await checked(bench, lab, bench.many(500))
    assert outcome.verdict.word == "fail"
    assert outcome.classes.counts["material"] == 10


async def test_honest_prompts_with_ties_hold_no_material_case(bench: Bench) -> None:
    faults = {
        f"prompt {n}": bench.fault(n % 4, margin=bench.step * (n % 3)) for n in range(1, 401, 20)
    }
    lab = bench.lab(bench.engine(faults=faults), max_tokens=4, streams=16)
    outcome = await checked(bench, lab, bench.many(400))
    assert outcome.totals.mismatches == 20
    assert {kind: n for kind, n in outcome.classes.counts.items() if n} == {"near_tie": 20}


async def test_an_engine_that_differs_no_more_than_from_itself_passes(bench: Bench) -> None:
    loose = {f"prompt {n}": bench.fault(3, margin=0.0) for n in range(1, 201, 4)}
    lab = bench.lab(bench.engine(unrepeatable=loose), max_tokens=4)
    outcome = await checked(bench, lab, bench.many(200))
    assert outcome.totals.floor.rate == outcome.totals.serving_floor.rate == 0.25
    assert outcome.verdict.word == "pass"
    assert "beyond the noise floors" in outcome.verdict.reason


async def test_what_differs_is_asked_again_and_floor_cases_are_looked_at_alike(
    bench: Bench,
) -> None:
    ties = {"prompt 3": bench.fault(3, margin=3.0)}
    engine = bench.engine(unrepeatable=ties)
    outcome = await checked(bench, bench.lab(engine, max_tokens=6), bench.many(20))
    asked = Counter(body["prompt"] for body in engine.answers_asked())
    assert (asked["prompt 3"], asked["prompt 16"], asked["prompt 2"]) == (8, 5, 4)
    assert outcome.totals.patterns == {"aa.aa.a": 19, "abab.abab.aaaa": 1}
    data = outcome.as_json()
    assert data["asks"] == {"answers": 85, "more": 5, "looks": 23}
    assert data["noise_floor"]["material"] == 1
    assert data["noise_floor"]["batch"]["pairs"] == data["noise_floor"]["shape"]["mismatches"] + 1


async def test_the_arms_share_no_batch_and_take_turns(bench: Bench) -> None:
    engine = bench.engine()
    await checked(bench, bench.lab(engine, streams=2, max_tokens=4), bench.many(8))
    pins = ["vllm_xargs" in body for body in engine.answers_asked()]
    assert pins == [True] * 8 + [False] * 16 + [True] * 8


async def test_what_answers_owe_to_their_batch_is_no_excess(bench: Bench) -> None:
    class Batched(CompletionEngine):
        """At a close call the others in the batch decide, whichever the arm."""

        async def _wait(self) -> None:
            for _ in range(20):  # whoever is about to ask is there by then
                await asyncio.sleep(0)

        async def __call__(self, request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content or b"{}")
            text = body.get("prompt")
            if not isinstance(text, str):
                return await super().__call__(request)
            together.append(text)
            await self._wait()
            batch = crc32(f"{text} {sorted(together)}".encode())
            await self._wait()
            together.remove(text)
            tied = text in close and batch % 2
            self.unrepeatable = {text: bench.fault(3, margin=0.0)} if tied else {}
            self.counts = dict.fromkeys((f"{text} True", f"{text} False"), 1)
            return self._answer(body)

    together: list[str] = []
    close = {f"prompt {n}" for n in range(1, 193, 3)}
    lab = bench.lab(Batched(), max_tokens=4, streams=8)
    outcome = await checked(bench, lab, bench.many(192))
    assert min(outcome.totals.floor.count, outcome.totals.serving_floor.count) > 15
    assert outcome.excess is not None
    assert outcome.excess.over_repeat.p > 0.001
    assert abs(outcome.excess.over_repeat.value) < 0.1


async def test_near_ties_alone_fail_only_above_the_threshold(bench: Bench) -> None:
    ties = {f"prompt {n}": bench.fault(3, margin=0.0) for n in range(1, 41)}
    prompts = bench.many(200)
    engine = bench.engine(faults=ties)
    strict = await checked(bench, bench.lab(engine, max_tokens=4), prompts)
    loose = await checked(bench, bench.lab(engine, max_tokens=4, threshold=0.3), prompts)
    assert (strict.verdict.word, loose.verdict.word) == ("fail", "pass")
    assert "near tie" in strict.verdict.reason


async def test_too_few_prompts_say_how_many_would_do(bench: Bench) -> None:
    outcome = await checked(bench, bench.lab(bench.engine()), bench.many(20))
    assert outcome.verdict.word == "inconclusive"
    assert outcome.verdict.prompts_wanted == 199


async def test_an_arm_that_drafts_nothing_was_not_tried(bench: Bench) -> None:
    class Idle(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            return super()._greedy({**body, "vllm_xargs": {"specdeck_k": 0}}, text)

    outcome = await checked(bench, bench.lab(Idle(), max_tokens=6), bench.many(200))
    assert outcome.verdict.word == "inconclusive"
    assert "drafted nothing" in outcome.verdict.reason


class Short(CompletionEngine):
    """Answers `tokens` at most to every prompt but the first ones."""

    def __init__(self, tokens: int, but: int = 0) -> None:
        super().__init__(drafts=False, named=["sd1:p0"])
        self._tokens, self._whole = tokens, {str(n) for n in range(but)}

    def _said(self, text: str, tokens: int, fault: Fault | None) -> Any:
        number = text.rpartition(" ")[2]
        return super()._said(text, tokens if number in self._whole else self._tokens, fault)


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (Short(0), "200 of 200 answers have no token"),
        (Short(0, but=171), "30 of 200 answers have no token"),
        (Short(1), "no more than a token each"),
    ],
)
async def test_answers_without_tokens_prove_nothing(
    bench: Bench, engine: Short, reason: str
) -> None:
    outcome = await checked(bench, bench.lab(engine, max_tokens=6), bench.many(200))
    assert outcome.verdict.word == "inconclusive"
    assert reason in outcome.verdict.reason


async def test_a_reference_that_drafts_is_none(bench: Bench) -> None:
    ours, other = bench.engine(), bench.engine(url="http://other")
    outcome = await checked(bench, bench.lab(ours, other, max_tokens=6), bench.many(200))
    assert (outcome.verdict.word, outcome.totals.mismatches) == ("inconclusive", 0)
    assert "the reference drafted as well" in outcome.verdict.reason


async def test_an_engine_is_no_reference_of_its_own(bench: Bench) -> None:
    class Alias(CompletionEngine):
        def state(self) -> Any:
            return replace(super().state(), instance="same")

    ours, other = Alias(), Alias(url="http://localhost")
    with pytest.raises(UsageError, match="is the engine that is checked"):
        await checked(bench, bench.lab(ours, other), bench.many(3))


async def test_pins_that_nothing_shows_prove_nothing(bench: Bench) -> None:
    """A gateway that drops the pin of a request drops the figures of its answer."""
    silent, stamped = bench.engine(drafts=False), bench.engine(drafts=False, named=["sd1:p0"])
    outcome = await checked(bench, bench.lab(silent, max_tokens=6), bench.many(200))
    assert outcome.verdict.word == "inconclusive"
    assert "nothing shows" in outcome.verdict.reason
    outcome = await checked(bench, bench.lab(stamped, max_tokens=6), bench.many(200))
    assert outcome.verdict.word == "pass"


async def stopped(bench: Bench, after: int, method: str = "draft_model") -> Outcome:
    """The check of 200 prompts on an engine that stops drafting `after` so many answers."""

    class Stopped(CompletionEngine):
        def state(self) -> Any:
            return replace(super().state(), method=method)

        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            off = {"vllm_xargs": {"specdeck_k": 0}} if len(self.answers_asked()) > after else {}
            return super()._greedy({**body, **off}, text)

    return await checked(bench, bench.lab(Stopped(), max_tokens=6), bench.many(200))


async def test_a_pass_after_drafting_stopped_is_none(bench: Bench) -> None:
    outcome = await stopped(bench, after=600)
    assert outcome.verdict.word == "inconclusive"
    assert "of 400 serving answers" in outcome.verdict.reason


async def test_a_few_answers_without_drafts_are_a_notice(bench: Bench) -> None:
    outcome = await stopped(bench, after=760)
    assert outcome.verdict.word == "pass"
    (said,) = [n for n in outcome.as_json()["notices"] if "nothing was drafted" in n]
    assert said.endswith("of 400 serving answers")


async def test_a_drafter_that_looks_things_up_may_find_nothing(bench: Bench) -> None:
    assert (await stopped(bench, after=400, method="ngram")).verdict.word == "pass"


async def test_a_changed_tool_argument_is_named_by_path(bench: Bench) -> None:
    body = {"messages": [{"role": "user", "content": "list"}], "tools": [{"type": "function"}]}
    engine = bench.engine(
        faults={"list": bench.fault(4, margin=bench.step)},
        calls={"list": ('{"q": "a", "limit": 50}', '{"q": "a", "limit": 500}')},
    )
    outcome = await checked(bench, bench.lab(engine), bench.written(body))
    data = outcome.as_json()
    (case,) = data["cases"]
    assert case["class"] == "structural"
    assert case["structure"] == [
        {"path": "limit", "kind": "value", "reference": 50, "serving": 500}
    ]
    assert data["tool_arguments"]["mismatches"] == data["tool_arguments"]["prompts"] == 1


async def test_busy_engines_are_asked_again(bench: Bench) -> None:
    engine = bench.engine(statuses=[429, 503, 0, 429])
    outcome = await checked(bench, bench.lab(engine), bench.many(5))
    assert outcome.totals.prompts == 5
    assert len(engine.answers_asked()) == 20


async def test_a_prompt_that_is_refused_counts_for_nothing(bench: Bench) -> None:
    engine = bench.engine(refuse={"prompt 3": (400, "the context is too long")})
    outcome = await checked(bench, bench.lab(engine), bench.many(10))
    assert (outcome.totals.prompts, outcome.totals.refused) == (9, 1)
    assert outcome.as_json()["refused"]["first"] == [
        {"prompt": 3, "reason": "the context is too long"}
    ]


async def test_an_engine_that_refuses_everything_is_an_error(bench: Bench) -> None:
    refuse = {f"prompt {n}": (400, "no such tool parser") for n in range(1, 5)}
    with pytest.raises(EngineError, match="no such tool parser"):
        await checked(bench, bench.lab(bench.engine(refuse=refuse)), bench.many(4))


async def test_arms_with_different_tokenizers_are_refused(bench: Bench) -> None:
    other = bench.engine(url="http://other", vocabulary=1)
    with pytest.raises(Unsupported, match="other tokens"):
        await checked(bench, bench.lab(bench.engine(), other), bench.many(3))


async def test_another_url_is_a_hard_reference(bench: Bench) -> None:
    other = bench.engine(url="http://other")
    outcome = await checked(bench, bench.lab(bench.engine(), other), bench.many(3))
    assert outcome.as_json()["arms"]["reference"]["grade"] == "hard"
    assert len(other.answers_asked()) == 6
    assert not any("vllm_xargs" in body for body in other.asked)


@pytest.mark.parametrize(
    ("served", "asked"), [(("base", "demo"), "demo"), (("base", "other"), "base")]
)
async def test_a_hard_reference_is_asked_for_the_same_model(
    bench: Bench, served: tuple[str, ...], asked: str
) -> None:
    ours = bench.engine(models=("first", "demo"))
    other = bench.engine(url="http://other", models=served)
    async with bench.lab(ours, other, model="demo") as lab:
        assert [arm.model for arm in lab.arms] == ["demo", asked]
        found = (await finish_check(lab, bench.many(2), bench.store)).outcome
    told = "the arms are asked by different names: demo and base"
    assert (told in found.notices) == (asked == "base")


async def test_an_engine_that_cannot_pin_is_refused_with_a_remedy(bench: Bench) -> None:
    with pytest.raises(Unsupported, match="too old") as raised:
        await checked(bench, bench.lab(bench.engine(pins=False)), bench.many(3))
    assert "--reference" in raised.value.line()


async def test_a_pin_that_is_not_obeyed_ends_the_check(bench: Bench) -> None:
    with pytest.raises(Unsupported, match="pinned to k = 0"):
        await checked(bench, bench.lab(bench.engine(obeys_pins=False)), bench.many(3))


async def test_streams_are_bounded_and_used(bench: Bench) -> None:
    engine = bench.engine()
    await checked(bench, bench.lab(engine, streams=6), bench.many(30))
    assert engine.busiest == 6


async def test_memory_does_not_grow_with_the_number_of_prompts(bench: Bench) -> None:
    async def held(count: int) -> int:
        """Bytes that are held shortly before the end."""
        found = 0

        def weigh(event: CheckProgress | Found) -> None:
            nonlocal found
            if isinstance(event, CheckProgress) and event.done == count - 10:
                gc.collect()
                found, _ = tracemalloc.get_traced_memory()

        tracemalloc.start()
        lab = bench.lab(_Forgetful(), max_tokens=4, fresh=True)
        await checked(bench, lab, bench.many(count), weigh)
        tracemalloc.stop()
        return found

    class _Forgetful(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> Any:
            self.asked.clear()
            self.counts.clear()
            self.cached.clear()
            return super()._greedy(body, text)

    await held(300)  # fills what is kept for good
    assert await held(300) < 1.25 * await held(50)


async def test_prompts_that_were_all_refused_are_asked_again(bench: Bench) -> None:
    engine = bench.engine(refuse={"prompt 1": (400, "no tool parser")})
    with pytest.raises(Unsupported, match="no tool parser"):
        await checked(bench, bench.lab(engine), bench.many(1))
    engine.refuse.clear()
    assert (await checked(bench, bench.lab(engine), bench.many(1))).totals.prompts == 1
