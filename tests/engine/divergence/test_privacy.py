"""What a private check keeps of prompts, answers and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check, finish_sampled_check

from specdeck.engine.divergence import report
from specdeck.engine.divergence.compare import Divergence, StructureChange, find_json_changes
from specdeck.engine.divergence.outcome import Outcome
from specdeck.engine.divergence.privacy import hide_answers
from specdeck.engine.divergence.prompts import PromptSet
from specdeck.engine.divergence.sampled import Sampling
from specdeck.engine.errors import Unsupported
from specdeck.engine.operations.check import ArmPair


async def checked(bench: Bench, lab: ArmPair, prompts: PromptSet) -> Outcome:
    async with lab:
        return (await finish_check(lab, prompts, bench.store)).outcome


def parted(*changes: StructureChange) -> Divergence:
    return Divergence(3, 5, 9, ((5, -0.25),), ((9, -0.25),), 3.0, 3.0, False, changes)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("$", "depth 0"),
        ("limit", "depth 1"),
        ("calls[1].secret", "depth 3"),
        ("patients.Ada Lovelace.hiv", "depth 3"),
    ],
)
def test_a_place_is_kept_by_its_depth(path: str, kept: str) -> None:
    (change,) = hide_answers(parted(StructureChange(path, "value", 1, 2))).structure
    assert (change.path, change.kind) == (kept, "value")


def test_nothing_that_was_said_is_kept() -> None:
    before: dict[str, Any] = {"patients": {"Ada Lovelace": {"hiv": True}}}
    after: dict[str, Any] = {"patients": {"Ada Lovelace": {"hiv": False}, "Eve": {}}}
    found = parted(*find_json_changes(before, after))
    kept = json.dumps(hide_answers(found).as_json())
    assert len(found.structure) == 2
    assert not [word for word in ("patients", "Ada", "hiv", "Eve") if word in kept]
    assert Divergence.from_json(json.loads(kept)).kind(0.1) == found.kind(0.1)


@pytest.mark.parametrize("ended", [False, True])
def test_what_was_not_said_weighs_as_it_did(ended: bool) -> None:
    theirs = None if ended else 9
    found = replace(parted(), reference_token=theirs, margin_serving=None, ended=ended)
    assert hide_answers(found).is_clear(0.1) == found.is_clear(0.1) == ended


def test_a_count_of_further_places_is_kept() -> None:
    more = StructureChange("$", "more", None, 7)
    assert hide_answers(parted(more)).structure == (more,)


def test_a_place_is_named_where_nothing_is_private() -> None:
    found = parted(StructureChange("calls[1].limit", "value", 50, 500))
    (change,) = found.as_json()["structure"]
    assert change["path"] == "calls[1].limit"


async def test_a_private_check_tells_of_a_call_without_its_arguments(bench: Bench) -> None:
    calls = {"find 2": ('{"patient": "Ada"}', '{"patient": "Eve"}')}
    engine = bench.engine(faults={"find 2": bench.fault(4, margin=0.0)}, calls=calls)
    asked = [{"messages": [{"role": "user", "content": f"find {n}"}]} for n in range(1, 4)]
    async with bench.lab(engine, private=True) as lab:
        data = (await finish_check(lab, bench.written(*asked), bench.store)).as_json()
    (case,) = data["cases"]
    assert case["class"] == "structural"
    assert case["structure"] == [
        {"path": "depth 1", "kind": "value", "reference": None, "serving": None}
    ]
    assert all(b"patient" not in file.read_bytes() for file in bench.folder.glob("store*"))


async def test_private_runs_keep_nothing_that_was_said(bench: Bench) -> None:
    engine = bench.engine(faults={"prompt 2": bench.fault(4, margin=0.0)})
    await checked(bench, bench.lab(engine, private=True), bench.many(4))
    (kept,) = bench.store.history(engine.url)
    assert kept.summary is not None
    (case,) = kept.summary["cases"]
    assert case["serving_token"] is case["reference_token"] is None
    assert case["serving_top"] == case["reference_top"] == []
    (row,) = bench.store.divergences(kept.id, "cross")
    assert row.detail is not None
    assert row.detail["serving_token"] is None
    assert len(row.prompt_hash) == 16


async def test_private_runs_keep_no_reason_that_may_quote_a_prompt(bench: Bench) -> None:
    engine = bench.engine(refuse={"prompt 2": (400, "cannot read 'my secret'")})
    outcome = await checked(bench, bench.lab(engine, private=True), bench.many(3))
    assert outcome.as_json()["refused"]["first"] == [
        {"prompt": 2, "reason": "the engine's reason is not stored"}
    ]
    assert "secret" not in json.dumps([one.summary for one in bench.store.history(engine.url)])


async def test_a_case_without_its_tokens_does_not_say_that_answers_ended(bench: Bench) -> None:
    engine = bench.engine(faults={"prompt 2": bench.fault(4, margin=0.0)})
    found = await checked(bench, bench.lab(engine, private=True), bench.many(3))
    (case,) = found.as_json()["cases"]
    assert report.case_line(case).startswith("prompt 2, token 4: margins 0 → 0, near tie")


async def test_a_private_check_of_distributions_quotes_no_refusal(bench: Bench) -> None:
    engine = bench.engine(refuse={"prompt 1": (400, "cannot read 'my secret'")})
    with pytest.raises(Unsupported, match="the engine's reason is not stored") as raised:
        async with bench.lab(engine, private=True) as lab:
            await finish_sampled_check(lab, bench.many(1), Sampling(samples=8), bench.store)
    assert "secret" not in raised.value.line()
