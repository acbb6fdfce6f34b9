from __future__ import annotations

import json
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import numpy as np
import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_sampled_check
from tests.support.completion_engine import CompletionEngine

from specdeck.engine.divergence.report import sampled_lines, sampled_markdown, write_report
from specdeck.engine.divergence.sampled import (
    ALPHA,
    Distributions,
    Sampling,
    judge_draws,
    p_value,
    permute,
    samples_wanted,
)
from specdeck.engine.protocol.messages import EngineState


def draws(seed: int, biased: float = 0.0, count: int = 128) -> list[tuple[int, ...]]:
    """Two tokens: the first from no draft, the second too often the draft's by `biased`."""
    random = Random(seed)
    found: list[tuple[int, ...]] = []
    for _ in range(count):
        first = random.randrange(3)
        second = 9 if random.random() < biased else random.choice((first, first + 1, 9, 9))
        found.append((first, second))
    return found


def p(seed: int, biased: float) -> float:
    random = np.random.default_rng(seed)
    return p_value(permute(draws(2 * seed, biased), draws(2 * seed + 1), 999, random))


async def test_the_reference_is_named_with_the_k_it_is_pinned_to(bench: Bench) -> None:
    found = (await sampled(bench, bench.engine(), 1)).as_json()
    assert [arm["k"] for arm in found["arms"].values()] == [5, 0]
    assert "soft, k=0" in "\n".join(sampled_lines(found))


def test_p_values_of_one_distribution_are_spread_evenly() -> None:
    found = [p(seed, 0.0) for seed in range(60)]
    assert 0.3 < sum(found) / len(found) < 0.7
    assert min(found) > 1 / 1000


def test_a_verification_that_accepts_too_much_is_seen() -> None:
    assert all(p(seed, 0.7) < 0.01 for seed in range(10))


def test_the_first_token_says_nothing_of_drafts() -> None:
    one, other = [(1, 5)] * 50, [(2, 5)] * 50
    assert p_value(permute(one, other, 199, np.random.default_rng(1))) == 1.0


def test_an_arm_that_breaks_off_draws_otherwise() -> None:
    random = Random(0)
    whole = [(1, *random.choices((4, 5, 6), k=3)) for _ in range(100)]
    for length in (1, 2):
        cut = [draw[:length] if n % 2 else draw for n, draw in enumerate(whole)]
        assert p_value(permute(cut, whole, 199, np.random.default_rng(1))) < ALPHA
        # Where both arms end as early as often, neither differs.
        assert p_value(permute(cut, cut, 199, np.random.default_rng(1))) > ALPHA


def test_one_draw_that_ends_early_hides_no_later_difference() -> None:
    one, other = [(1, 4, 5)] * 50 + [(1,)], [(1, 4, 6)] * 50
    assert p_value(permute(one, other, 199, np.random.default_rng(1))) < ALPHA


def test_a_difference_that_the_control_shows_as_well_is_no_proof() -> None:
    assert judge_draws([0.5, 0.2], [0.9, 0.9]).word == "pass"
    assert judge_draws([1e-5, 0.2], [0.9, 0.9]).word == "fail"
    assert judge_draws([1e-5, 0.2], [1e-5, 0.9]).word == "inconclusive"
    assert judge_draws([1e-5, 0.2], [0.005, 0.9]).word == "fail"
    assert judge_draws([1e-4, 0.2], [0.005, 0.9]).word == "inconclusive"


async def sampled(bench: Bench, engine: Any, count: int) -> Distributions:
    async with bench.lab(engine) as lab:
        sampling = Sampling(samples=128, tokens=2)
        return (await finish_sampled_check(lab, bench.many(count), sampling, bench.store)).found


async def test_an_honest_engine_is_not_accused(bench: Bench) -> None:
    found = await sampled(bench, bench.engine(), 12)
    data = found.as_json()
    assert (data["verdict"], data["prompts"]) == ("pass", 12)
    assert data["p_lowest"] >= ALPHA


async def test_a_biased_arm_is_found_and_its_control_is_clean(bench: Bench) -> None:
    faults = {f"prompt {n}": bench.fault(1, margin=1.0) for n in (2, 5)}
    data = (await sampled(bench, bench.engine(faults=faults), 8)).as_json()
    assert data["verdict"] == "fail"
    assert data["control"]["p_lowest"] > ALPHA
    lowest = sorted(data["cases"], key=lambda case: case["p"])[:2]
    assert {case["prompt"] for case in lowest} == {2, 5}


def page(drafted: int | None) -> str:
    """A metrics page after so many drafted tokens; None for an engine without a drafter."""
    known = "" if drafted is None else f"vllm:spec_decode_num_draft_tokens_total {drafted}\n"
    return f"vllm:generation_tokens_total 5\nvllm:num_requests_running 0\n{known}"


async def test_draws_that_were_drafted_for_say_so_by_a_pass(bench: Bench) -> None:
    engine = bench.engine(pages=[page(100 * n) for n in range(20)])
    found = await sampled(bench, engine, 8)
    assert found.verdict.word == "pass"
    assert "draft" not in found.verdict.reason


@pytest.mark.parametrize("drafted", [700, None])
async def test_draws_without_drafts_are_no_pass(bench: Bench, drafted: int | None) -> None:
    found = await sampled(bench, bench.engine(pages=[page(drafted)]), 8)
    assert found.verdict.word == "inconclusive"
    assert "drafted nothing" in found.verdict.reason


async def test_draws_after_drafting_stopped_are_no_pass(bench: Bench) -> None:
    engine = bench.engine(pages=[page(100 * n) for n in range(6)])
    found = await sampled(bench, engine, 8)
    assert found.verdict.word == "inconclusive"
    assert "nothing was drafted during 3 of 8 prompts" in found.verdict.reason


class Mute(CompletionEngine):
    """Says nothing of itself after some of its prompts."""

    def __init__(self, mute: range) -> None:
        super().__init__(pages=[page(100 * n) for n in range(90)])
        self.mute = mute

    def _get(self, path: str) -> httpx.Response:
        drawn = len({self._text(body) for body in self.asked if body.get("n", 1) > 1})
        if path.endswith("/state") and drawn in self.mute:
            return httpx.Response(401, json={})
        return super()._get(path)


async def test_draws_after_which_the_engine_cannot_be_asked_are_no_pass(bench: Bench) -> None:
    found = await sampled(bench, Mute(range(2, 8)), 8)
    assert found.verdict.word == "inconclusive"
    assert "did not say whether it drafts at 6 of 8 prompts" in found.verdict.reason
    assert (await sampled(bench, Mute(range(0)), 8)).verdict.word == "pass"


class Idling(CompletionEngine):
    """Drafts nothing by its own word during some of its prompts; its counter moves all the same."""

    def __init__(self, idle: range, **told: Any) -> None:
        super().__init__(pages=[page(100 * n) for n in range(90)])
        self.idle = idle
        self.told = told

    def state(self) -> EngineState:
        drawn = len({self._text(body) for body in self.asked if body.get("n", 1) > 1})
        return replace(super().state(), **self.told) if drawn in self.idle else super().state()


@pytest.mark.parametrize("idle", [range(99), range(2, 8), range(8, 9)], ids=str)
@pytest.mark.parametrize("told", [{"breaker": "open"}, {"mode": "target-only", "k": 0}], ids=str)
async def test_draws_of_an_engine_that_is_idle_by_its_own_word_are_no_pass(
    bench: Bench, idle: range, told: dict[str, Any]
) -> None:
    """Probes of a breaker, and drafts for others, move a counter."""
    found = await sampled(bench, Idling(idle, **told), 8)
    assert found.verdict.word == "inconclusive"
    assert "drafted nothing by its own word" in found.verdict.reason
    assert (await sampled(bench, Idling(range(0)), 8)).verdict.word == "pass"


async def test_an_engine_that_keeps_its_counters_to_itself_passes_with_that_said(
    bench: Bench,
) -> None:
    found = await sampled(bench, bench.engine(), 4)
    assert found.verdict.word == "pass"
    assert "does not say whether it drafted" in found.verdict.reason


async def test_a_difference_without_drafts_is_still_one(bench: Bench) -> None:
    faults = {f"prompt {n}": bench.fault(1, margin=1.0) for n in (2, 5)}
    found = await sampled(bench, bench.engine(faults=faults, pages=[page(7)]), 8)
    assert found.verdict.word == "fail"


async def test_first_tokens_alone_are_nothing_compared(bench: Bench) -> None:
    async with bench.lab(bench.engine()) as lab:
        sampling = Sampling(tokens=1)
        found = (await finish_sampled_check(lab, bench.many(4), sampling, bench.store)).found
    assert found.verdict.word == "inconclusive"
    assert "nothing was compared" in found.verdict.reason


async def test_too_few_draws_to_accuse_anybody_say_how_many_would_do(bench: Bench) -> None:
    async with bench.lab(bench.engine()) as lab:
        found = (
            await finish_sampled_check(
                lab, bench.many(1), Sampling(samples=4, tokens=2), bench.store
            )
        ).found
    assert found.verdict.word == "inconclusive"
    assert f"at least {samples_wanted(1)}" in found.verdict.reason


def test_the_draws_wanted_can_tell_even_what_never_agrees() -> None:
    count = samples_wanted(1)
    random = np.random.default_rng(1)
    for n, reached in ((count, True), (count - 1, False)):
        lowest = p_value(permute([(1, 2)] * n, [(1, 3)] * n, 9999, random))
        assert (2 * lowest < ALPHA) == reached


async def test_a_run_is_kept_apart_from_greedy_ones_and_compared_with_its_own(bench: Bench) -> None:
    said: list[str] = []
    for _ in range(2):
        async with bench.lab(bench.engine()) as lab:
            result = await finish_sampled_check(lab, bench.many(4), Sampling(tokens=2), bench.store)
        said.append(result.history.line())
    assert said == ["the first run", "of 1 earlier run none failed"]
    assert bench.store.history("http://engine") == ()
    assert bench.store.history() == ()
    (newest, _) = bench.store.history("http://engine", kind="sampled")
    assert newest.summary is not None
    assert newest.summary["verdict"] == "pass"


async def test_a_gentle_run_draws_a_few_at_a_time(bench: Bench) -> None:
    engine = bench.engine()
    async with bench.lab(engine, gentle=True) as lab:
        found = (
            await finish_sampled_check(
                lab, bench.many(1), Sampling(samples=8, tokens=2), bench.store
            )
        ).found
    assert [body["n"] for body in engine.asked if "n" in body] == [4] * 6
    assert engine.busiest == 1
    assert len(found.tested) == 1


async def test_the_reports_name_the_prompts_whose_draws_differ(
    bench: Bench, tmp_path: Path
) -> None:
    faults = {f"prompt {n}": bench.fault(1, margin=1.0) for n in (2, 5)}
    data = (await sampled(bench, bench.engine(faults=faults), 8)).as_json()
    for name in ("a.xml", "a.md", "a.json"):
        write_report(data, tmp_path / name)
    suite = ET.fromstring((tmp_path / "a.xml").read_text())
    assert suite.attrib["failures"] == "3"
    assert {case.attrib["name"] for case in suite} == {"verdict", "prompt 2", "prompt 5"}
    assert "| 2 | " in (tmp_path / "a.md").read_text()
    assert json.loads((tmp_path / "a.json").read_text()) == data
    assert sampled_lines(data)[0].startswith("verdict     fail: ")


async def test_the_page_has_one_head_for_its_table(bench: Bench) -> None:
    async with bench.lab(bench.engine()) as lab:
        sampling = Sampling(samples=16)
        found = (await finish_sampled_check(lab, bench.many(2), sampling, bench.store)).found
    page = sampled_markdown(found.as_json())
    assert page.count("| | |\n|---|---|\n") == 1
    assert "|---|---|\n| verdict | " in page


def test_dealing_in_parts_is_dealing_at_once() -> None:
    at_once = permute(draws(1), draws(2), 999, np.random.default_rng(0))
    in_parts = permute(draws(1), draws(2), 999, np.random.default_rng(0), held=10_000)
    assert np.array_equal(at_once, in_parts)


async def test_the_tokens_are_weighed_by_the_reference(bench: Bench) -> None:
    engine = bench.engine(pages=[page(100 * n) for n in range(20)])
    data = (await sampled(bench, engine, 8)).as_json()
    assert data["likelihood"]["tokens"] == 8 * 128
    assert data["likelihood"]["scores"]["first_choice"]["p"] > ALPHA
    assert data["visible"]["unchecked_flat"] < 0.1
    weighed = [body for body in engine.asked if "prompt_logprobs" in body]
    assert all(body["vllm_xargs"] == {"specdeck_k": 0} for body in weighed)
    assert {body["prompt_logprobs"] for body in weighed} == {20}
    said = "\n".join(sampled_lines(data))
    assert "found with 80% power" in said


async def test_without_the_references_view_nothing_found_is_no_pass(bench: Bench) -> None:
    found = await sampled(bench, bench.engine(tells_logprobs=False), 8)
    assert found.verdict.word == "inconclusive"
    assert "only large differences show" in found.verdict.reason
    assert "not known: logprobs are not available" in "\n".join(sampled_lines(found.as_json()))


async def test_without_the_references_view_large_differences_still_fail(bench: Bench) -> None:
    faults = {f"prompt {n}": bench.fault(1, margin=1.0) for n in (2, 5)}
    found = await sampled(bench, bench.engine(faults=faults, tells_logprobs=False), 8)
    assert found.verdict.word == "fail"


async def test_prompts_too_long_for_one_pass_are_drawn_from_and_not_weighed(bench: Bench) -> None:
    engine = bench.engine()
    prompts = bench.written({"prompt": "long " * 500}, {"prompt": "prompt 1"})
    async with bench.lab(engine) as lab:
        found = (await finish_sampled_check(lab, prompts, Sampling(16), bench.store)).found
    weighed = [body["prompt"] for body in engine.asked if "prompt_logprobs" in body]
    assert weighed
    assert max(map(len, weighed)) < 20
    assert len(found.tested) == 2
    prompts = bench.written({"prompt": "long " * 500})
    async with bench.lab(engine) as lab:
        found = (await finish_sampled_check(lab, prompts, Sampling(16), bench.store)).found
    assert found.scores is None
    assert found.unscored is not None
    assert "2048 tokens" in found.unscored


async def test_draws_are_dealt_beside_the_event_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def note(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return permute(*given)

    monkeypatch.setattr("specdeck.engine.divergence.sampled.permute", note)
    await sampled(bench, bench.engine(), 2)
    assert len(threads) == 4
    assert threading.main_thread() not in threads


def test_dealing_holds_what_it_promises() -> None:
    one, other = ([(0, n) for n in range(at, at + 64)] for at in (0, 64))
    random = np.random.default_rng(0)
    permute(one, other, 9, random)
    tracemalloc.start()
    permute(one, other, 20_000, random, held=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * 4 * 1_000_000
