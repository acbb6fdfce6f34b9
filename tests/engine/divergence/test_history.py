"""A check among its earlier ones, and the gauges of the last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check

from specdeck.engine.divergence import history
from specdeck.engine.divergence.bundle import case_page, choose_case
from specdeck.engine.divergence.history import (
    History,
    comparable_checks,
    comparable_runs,
    compare_with_history,
    past_checks,
    read_counts,
)
from specdeck.engine.divergence.report import CheckGauges
from specdeck.engine.divergence.requests import RequestSettings
from specdeck.engine.errors import UsageError
from specdeck.engine.operations.watches import list_finished, read_outcome
from specdeck.engine.store.checks import Checks, Run
from specdeck.engine.store.database import Store
from specdeck.engine.text import parse_duration


def past(
    number: int, mismatches: int, vllm: str = "0.31.0", grade: str = "soft", **named: Any
) -> Run:
    facts = {
        "prompts": "abc", "settings": {}, "reference": {"grade": grade, "facts": {**named}},
        "serving": {"facts": {"vllm": vllm, "details": {"model.dtype": "bfloat16"}, **named}},
    }  # fmt: skip
    summary = {"mismatches": mismatches, "prompts": 500}
    return Run(number, "key", number, "http://e", number, facts, {}, summary)


def test_a_check_is_compared_with_its_own_kind() -> None:
    runs = [past(9, 12, "0.32.0"), past(8, 6), past(7, 6), past(6, 400, grade="hard")]
    found = compare_with_history(runs)
    assert (found.runs, found.rate, found.changed) == (2, 0.012, ("vllm",))
    assert found.p is not None
    assert 0.001 < found.p < 0.2
    assert found.line(0.024) == ("2.40%, was 1.20% for 2 runs; the fingerprint changed in: vllm")


def test_another_model_is_another_kind_and_an_unnamed_one_is_not() -> None:
    same, other, unnamed = past(3, 6, model="a"), past(2, 400, model="b"), past(1, 8)
    assert comparable_runs([past(4, 6, model="a"), same, other, unnamed]) == [same, unnamed]
    assert comparable_runs([past(4, 6), same, unnamed]) == [same, unnamed]


def test_the_first_check_has_no_history() -> None:
    assert compare_with_history([past(1, 0)]) == History(0, None, None, ())


DAMAGED: list[Any] = [
    {"mismatches": "6", "prompts": 500}, {"mismatches": 6}, {"mismatches": None, "prompts": 5},
    {"mismatches": 6, "prompts": 10**40}, {"mismatches": 9, "prompts": 5},
    {"mismatches": -1, "prompts": 5},
]  # fmt: skip


@pytest.mark.parametrize("summary", DAMAGED, ids=str)
def test_a_damaged_run_of_the_store_is_no_history_and_loses_no_verdict(summary: Any) -> None:
    damaged = replace(past(8, 6), summary=summary)
    found = compare_with_history([past(9, 12), damaged, past(7, 6)])
    assert (found.runs, found.rate) == (1, 0.012)
    assert comparable_checks([past(9, 12), damaged]) == ()
    with pytest.raises(UsageError, match="a check in the store cannot be read"):
        read_counts(damaged)
    with pytest.raises(UsageError, match="a check in the store cannot be read"):
        past_checks([damaged])


@pytest.mark.parametrize(
    "facts",
    [{"serving": []}, {"serving": {"facts": [1]}}, {"reference": 3}, {"prompts": {}},
     {"serving": {"facts": {"details": "x"}}}, {"settings": 3}],
    ids=str,
)  # fmt: skip
def test_a_run_asked_with_damaged_facts_is_no_history(facts: dict[str, Any]) -> None:
    run = past(8, 6)
    damaged = replace(run, facts={**run.facts, **facts})
    assert comparable_runs([past(9, 12), damaged]) == []
    with pytest.raises(UsageError, match="a check in the store cannot be read"):
        past_checks([damaged])


@pytest.mark.parametrize(
    "summary",
    [
        {"mismatches": [], "prompts": {}},
        {"mismatches": 1, "prompts": 5, "streamed": {"mismatches": 6, "pairs": 5}},
        {"mismatches": 1, "prompts": 5, "noise_floor": {"mismatches": None, "pairs": 5}},
        {"mismatches": 1, "prompts": 5, "streamed": []},
    ],
    ids=str,
)
def test_a_damaged_run_is_no_outcome_to_warn_of(tmp_path: Path, summary: Any) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        checks = Checks(store)
        run = checks.begin("key", 1.0, "http://e", {})
        checks.finish(run.id, 2.0, summary)
    (found,) = list_finished(tmp_path / "store.sqlite", "http://e")
    with pytest.raises(UsageError, match="a check in the store cannot be read"):
        read_outcome(found)


def test_a_long_history_is_weighed_at_once() -> None:
    """Whole numbers of a million digits held the console's loop for half a minute."""
    half = Run(
        1, "k", 1, "http://e", 1, past(1, 0).facts, {}, {"mismatches": 10**6, "prompts": 2 * 10**6}
    )
    found = compare_with_history([half] * 31)
    assert found.p == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "0s", "nanh", "2w"])
def test_nonsense_is_no_time_between_checks(text: str) -> None:
    with pytest.raises(UsageError, match="no time"):
        parse_duration(text)


async def checked(bench: Bench, **faults: Any) -> dict[str, Any]:
    engine = bench.engine(faults={name.replace("_", " "): f for name, f in faults.items()})
    async with bench.lab(engine) as lab:
        data: dict[str, Any] = (await finish_check(lab, bench.many(20), bench.store)).as_json()
        return data


async def test_gauges_say_what_the_check_says(bench: Bench, tmp_path: Path) -> None:
    data = await checked(bench, prompt_3=bench.fault(1, margin=2.0, honest=False))
    gauges = CheckGauges("http://engine")
    gauges.show(data, 1000.0)
    gauges.write(tmp_path / "check.prom")
    page = (tmp_path / "check.prom").read_text()
    assert 'specdeck_check_mismatch_rate{engine="http://engine"} 0.05' in page
    assert 'specdeck_check_streamed_mismatch_rate{engine="http://engine"} 0.0' in page
    assert 'specdeck_check_verdict{engine="http://engine",verdict="fail"} 1.0' in page
    assert 'specdeck_check_cases{engine="http://engine",kind="material"} 1.0' in page
    gauges.mark_failed()
    gauges.write(tmp_path / "check.prom")
    assert 'specdeck_check_up{engine="http://engine"} 0.0' in (tmp_path / "check.prom").read_text()
    with pytest.raises(UsageError, match="no such file"):
        gauges.write(tmp_path / "no" / "such" / "folder")


async def test_a_bundle_reproduces_the_gravest_case(bench: Bench) -> None:
    data = await checked(
        bench,
        prompt_3=bench.fault(1, margin=0.0),
        prompt_5=bench.fault(2, margin=3.0, honest=False),
    )
    case = choose_case(data, None)
    assert case is not None
    assert case["prompt"] == 5
    prompt = bench.many(20).find(5)
    assert prompt is not None
    page = case_page(data, case, prompt, RequestSettings(), keyed=True)
    assert page.count("curl -s http://engine/v1/completions") == 2
    assert page.count('"vllm_xargs": {"specdeck_k": 0}') == 1
    assert page.count("Bearer $API_KEY") == 2
    assert '"prompt": "prompt 5"' in page
    near_tie = choose_case(data, 3)
    assert near_tie is not None
    assert near_tie["class"] == "near_tie"
    with pytest.raises(UsageError, match="prompt 4 did not differ"):
        choose_case(data, 4)


async def test_a_draft_is_known_by_its_content(bench: Bench) -> None:
    def engine(weights: str) -> Any:
        draft = {"weights": {"model.safetensors": weights}, "shape": "c7"}
        return bench.engine(facts={"model": {"target": {"shape": "a1"}, "draft": draft}})

    for weights in ("6be2", "6be2", "77aa"):
        async with bench.lab(engine(weights)) as lab:
            await finish_check(lab, bench.many(2), bench.store)
    other, same, first = history.past_checks(bench.store.history("http://engine"))
    assert first.draft is not None
    assert len(first.draft) == 8
    assert (first.draft == same.draft, first.draft == other.draft) == (True, False)
    assert history.past_check_cells(first)[2] == first.draft


async def test_an_engine_without_a_draft_model_has_none(bench: Bench) -> None:
    async with bench.lab(bench.engine(facts={"model": {"target": {"shape": "a1"}}})) as lab:
        await finish_check(lab, bench.many(2), bench.store)
    (line,) = history.past_checks(bench.store.history("http://engine"))
    assert line.draft is None
