"""What shows that a soft reference's requests were left without drafts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check, finish_sampled_check
from tests.support.completion_engine import CompletionEngine, Fault

from specdeck.engine.divergence.sampled import Distributions, Sampling
from specdeck.engine.divergence.verdict import NOT_PINNED

NAME = "vllm-0.32.0-ab-sd1:p0123456789abcdef"


async def sample(bench: Bench, engine: CompletionEngine, **options: Any) -> Distributions:
    async with bench.lab(engine, **options) as lab:
        sampling = Sampling(samples=64, tokens=2)
        return (await finish_sampled_check(lab, bench.many(8), sampling, bench.store)).found


def edit(response: httpx.Response, change: dict[str, Any]) -> httpx.Response:
    """The reply, or each event of its stream, with what changes in it."""
    if not response.text.startswith("data: "):
        return httpx.Response(200, json=json.loads(response.content) | change)
    events = (
        f"data: {json.dumps(json.loads(event[6:]) | change)}" if event[6:7] == "{" else event
        for event in response.text.split("\n\n")
    )
    return httpx.Response(200, text="\n\n".join(events))


async def test_no_draft_where_none_is_found_anyway_proves_no_pin(bench: Bench) -> None:
    """As of a drafter that finds nothing in the first prompts."""

    @dataclass
    class FindsNothing(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> httpx.Response:
            found = json.loads(super()._greedy(body, text).content)
            found["metrics"]["speculative_decoding"]["num_draft_tokens"] = 0
            return httpx.Response(200, json=found)

    found = await sample(bench, FindsNothing())
    assert (found.verdict.word, found.verdict.reason) == ("inconclusive", NOT_PINNED)


@dataclass
class NamingEngine(CompletionEngine):
    """Its answers' name tells a pin, which a gateway before it may drop."""

    drops_pins_of_draws: bool = False

    def _greedy(self, body: dict[str, Any], text: str) -> httpx.Response:
        return edit(super()._greedy(body, text), name(body))

    def _sampled(self, body: dict[str, Any]) -> httpx.Response:
        if self.drops_pins_of_draws:
            body = drop_pin(body)
        return edit(super()._sampled(body), name(body))


def drop_pin(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "vllm_xargs"}


def name(body: dict[str, Any]) -> dict[str, str]:
    return {"system_fingerprint": NAME + "+k0" * ("vllm_xargs" in body)}


@pytest.mark.parametrize("gentle", [False, True])
@pytest.mark.parametrize("drops", [False, True])
async def test_where_a_name_tells_a_pin_that_of_every_draw_has_to(
    bench: Bench, gentle: bool, drops: bool
) -> None:
    found = await sample(bench, NamingEngine(drops_pins_of_draws=drops), gentle=gentle)
    assert (found.verdict.reason == NOT_PINNED) == drops
    assert (found.verdict.word == "pass") != drops


@dataclass
class Router(CompletionEngine):
    """Sends prompts by their number to an engine that drops pins and tells nothing of drafts."""

    tells: Literal["names", "drafts"] = "drafts"
    """What the other engine tells of its answers."""
    astray: str = "[13579]$"

    def _answer(self, body: dict[str, Any]) -> httpx.Response:
        if isinstance(body.get("prompt"), list):
            return super()._answer(body)
        if re.search(self.astray, self._text(body)):
            return edit(super()._answer(drop_pin(body)), {"metrics": None})
        reply = super()._answer(body)
        return edit(reply, name(body) | {"metrics": None}) if self.tells == "names" else reply


@pytest.mark.parametrize("tells", ["names", "drafts"])
@pytest.mark.parametrize("astray", ["[13579]$", "[2468]$", "7$", "none"])
async def test_one_answer_does_not_prove_the_pins_of_others(
    bench: Bench, tells: Literal["names", "drafts"], astray: str
) -> None:
    """Not even of the corrupt ones: those agree with themselves."""
    corrupt = {f"prompt {n}": Fault(2, 9.0) for n in range(201) if re.search(astray, f"{n}")}
    engine = Router(tells=tells, astray=astray, faults=corrupt)
    async with bench.lab(engine, max_tokens=8) as lab:
        verdict = (await finish_check(lab, bench.many(200), bench.store)).verdict
    found = await sample(bench, engine)
    for one in (verdict, found.verdict):
        assert one.word == ("inconclusive" if corrupt else "pass")
        assert (one.reason == NOT_PINNED) == bool(corrupt)


async def test_a_pin_to_another_k_proves_nothing_and_is_none_without_drafts(bench: Bench) -> None:
    """As of a gateway that pins every request to 3."""

    @dataclass
    class PinsToThree(CompletionEngine):
        def _answer(self, body: dict[str, Any]) -> httpx.Response:
            if isinstance(body.get("prompt"), list):
                return super()._answer(body)
            told = {"system_fingerprint": f"{NAME}+k3", "metrics": None}
            return edit(super()._answer(body | {"vllm_xargs": {"specdeck_k": 3}}), told)

    corrupt = {f"prompt {n}": Fault(2, 9.0) for n in range(1, 101)}
    async with bench.lab(PinsToThree(faults=corrupt), max_tokens=8) as lab:
        verdict = (await finish_check(lab, bench.many(200), bench.store)).verdict
    assert (verdict.word, verdict.reason) == ("inconclusive", NOT_PINNED)
    found = await sample(bench, PinsToThree(faults=corrupt))
    assert (found.verdict.word, found.verdict.reason) == ("inconclusive", NOT_PINNED)


async def test_serving_draws_that_name_a_pin_are_none_with_drafts(bench: Bench) -> None:
    """As of a name under `exact_models`, of an engine that drafts for others meanwhile."""

    @dataclass
    class Exact(NamingEngine):
        def _sampled(self, body: dict[str, Any]) -> httpx.Response:
            return super()._sampled(body | {"vllm_xargs": {"specdeck_k": 0}})

    found = await sample(bench, Exact())
    assert found.verdict.word == "inconclusive"
    assert found.verdict.reason.startswith("8 of 8 prompts' serving draws name a pin")


async def test_serving_answers_that_name_a_pin_are_none_with_drafts(bench: Bench) -> None:
    """As of a gateway that keeps answers and knows nothing of pins."""

    @dataclass
    class NamesPins(CompletionEngine):
        def _greedy(self, body: dict[str, Any], text: str) -> httpx.Response:
            told = {"system_fingerprint": f"{NAME}+k0", "metrics": None}
            return edit(super()._greedy(body, text), told)

    async with bench.lab(NamesPins(), max_tokens=8) as lab:
        verdict = (await finish_check(lab, bench.many(200), bench.store)).verdict
    assert (verdict.word, verdict.untried) == ("inconclusive", True)
    assert verdict.reason.startswith("400 of 400 serving answers name a pin")
