"""A check as one night of many."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check
from tests.support.completion_engine import Fault

from specdeck.engine.divergence.canary import LEAST_NIGHTS, Canary
from specdeck.engine.divergence.report import check_junit, check_markdown
from specdeck.engine.operations.check import CheckResult


async def night(bench: Bench, faults: dict[str, Fault], **options: Any) -> CheckResult:
    async with bench.lab(bench.engine(faults=faults), max_tokens=4, **options) as lab:
        return await finish_check(lab, bench.many(12), bench.store)


async def test_nights_are_weighed_against_those_before_them(bench: Bench) -> None:
    tie = bench.fault(2, margin=0.0)
    usual = {"prompt 3": tie}
    words = [(await night(bench, usual)).canary.word for _ in range(LEAST_NIGHTS)]
    assert words == ["too early"] * (LEAST_NIGHTS - 1) + ["as before"]
    worse = await night(bench, {f"prompt {n}": tie for n in range(1, 9)})
    assert (worse.canary.word, worse.canary.nights) == ("changed", LEAST_NIGHTS + 1)
    assert worse.is_sound
    said = worse.as_json()["canary"]
    assert said["since"] == LEAST_NIGHTS + 1
    assert not {"counts", "nightly", "starts"} & said.keys()
    assert (await night(bench, usual)).canary.word == "changed"
    anew = await night(bench, usual, new_baseline=True)
    assert (anew.canary.word, anew.canary.nights) == ("too early", 1)
    assert (await night(bench, usual)).canary.nights == 2


async def test_a_canary_is_found_again_past_any_other_checks(bench: Bench) -> None:
    for _ in range(2):
        found = await night(bench, {})
        async with bench.lab(bench.engine(), max_tokens=4) as lab:
            for _ in range(32):
                await finish_check(lab, bench.many(1), bench.store)
    assert found.canary.nights == 2
    assert found.history.runs == 1


async def test_a_night_whose_clock_was_ahead_is_one_of_many(bench: Bench) -> None:
    nights = []
    for t in (1000.0, 9000.0, 1001.0, 1002.0):
        async with bench.lab(bench.engine(), max_tokens=4) as lab:
            lab.wall = lambda t=t: t  # type: ignore[misc]  # a value of its own for each
            nights.append((await finish_check(lab, bench.many(12), bench.store)).canary.nights)
    assert nights == [1, 2, 3, 4]


def reds(found: CheckResult) -> tuple[str | None, ...]:
    suite = ET.fromstring(check_junit(found.as_json()))
    return suite.get("failures"), suite.get("errors")


async def test_the_reports_of_a_canary_go_by_what_its_exit_code_goes_by(bench: Bench) -> None:
    tie = bench.fault(2, margin=0.0)
    usual, asked = {"prompt 3": tie}, {"judge": "canary", "threshold": 0.9}
    early = await night(bench, usual, **asked, strict=True)
    assert (early.verdict.word, early.conclusion.word, reds(early)) == (
        "pass", "inconclusive", ("0", "1"),
    )  # fmt: skip
    for _ in range(LEAST_NIGHTS - 1):
        found = await night(bench, usual, **asked, strict=True)
    assert (found.canary.word, found.conclusion.word, reds(found)) == (
        "as before", "pass", ("0", "0"),
    )  # fmt: skip
    worse = await night(bench, {f"prompt {n}": tie for n in range(1, 9)}, **asked)
    assert (worse.verdict.word, worse.canary.word, worse.conclusion.word) == (
        "pass", "changed", "fail",
    )  # fmt: skip
    assert reds(worse) == ("1", "0")
    page = check_markdown(worse.as_json())
    assert page.startswith("# specdeck check --canary: fail\n\nchanged: ")


async def test_a_rate_that_was_always_so_reddens_no_report_of_a_canary(bench: Bench) -> None:
    """The one check on its own fails by it."""
    faults = {f"prompt {n}": bench.fault(2, margin=0.0) for n in range(1, 13)}
    alone = await night(bench, faults, threshold=0.0)
    found = await night(bench, faults, threshold=0.0, judge="canary")
    assert (alone.verdict.word, found.verdict.word) == ("fail", "fail")
    assert not found.verdict.defect
    assert (alone.conclusion.word, found.conclusion.word) == ("fail", "pass")
    assert reds(alone) != ("0", "0")
    assert reds(found) == ("0", "0")


async def test_what_is_not_sound_is_red_in_a_canary_however_usual(bench: Bench) -> None:
    wrong = {"prompt 3": bench.fault(2, margin=3.0, honest=False)}
    defect = await night(bench, wrong, judge="canary")
    assert (defect.conclusion.word, defect.conclusion.reason) == ("fail", defect.verdict.reason)
    assert reds(defect) == ("2", "0")
    refuse = {f"prompt {n}": (400, "the context is too long") for n in range(2, 13)}
    async with bench.lab(bench.engine(refuse=refuse), max_tokens=4, judge="canary") as lab:
        refused = await finish_check(lab, bench.many(12), bench.store)
    assert (refused.canary.word, refused.conclusion.word) == ("too early", "inconclusive")
    assert reds(refused) == ("0", "1")


async def test_a_night_with_a_proven_defect_is_not_sound(bench: Bench) -> None:
    found = await night(bench, {"prompt 3": bench.fault(2, margin=3.0, honest=False)})
    assert found.canary.word == "too early"
    assert not found.is_sound


async def test_a_night_in_which_nothing_was_tried_counts_for_nothing(bench: Bench) -> None:
    nights = [await night(bench, {}) for _ in range(2)]
    refuse = {f"prompt {n}": (400, "the context is too long") for n in range(2, 13)}
    async with bench.lab(bench.engine(refuse=refuse), max_tokens=4) as lab:
        refused = await finish_check(lab, bench.many(12), bench.store)
    assert not refused.is_sound
    assert refused.canary.nights == nights[-1].canary.nights == 2
    assert (await night(bench, {})).canary.nights == 3


@pytest.mark.parametrize("ties", [0, 9])
@pytest.mark.parametrize(
    "engine",
    [
        {"drafts": False},  # nothing shows a pin
        {"named": ["sd1:p0123456789abcdef+k0"]},
    ],
    ids=str,
)
async def test_a_night_without_speculation_counts_for_nothing_whatever_its_rate(
    bench: Bench, engine: dict[str, Any], ties: int
) -> None:
    tie = bench.fault(2, margin=0.0)
    usual = {f"prompt {n}": tie for n in range(1, 10)}
    nights = [await night(bench, usual) for _ in range(2)]
    faults = {f"prompt {n}": tie for n in range(1, ties + 1)}
    async with bench.lab(bench.engine(faults=faults, **engine), max_tokens=4) as lab:
        found = await finish_check(lab, bench.many(12), bench.store)
    assert found.verdict.word == ("fail" if ties else "inconclusive")
    assert not found.is_sound
    assert found.canary.nights == nights[-1].canary.nights == 2


async def test_a_night_whose_reference_is_unsound_counts_for_nothing(bench: Bench) -> None:
    nights = [await night(bench, {}) for _ in range(2)]
    wrong = {f"prompt {n}": bench.fault(2, margin=4.0, honest=False) for n in range(1, 13)}
    async with bench.lab(bench.engine(unrepeatable=wrong), max_tokens=4) as lab:
        found = await finish_check(lab, bench.many(12), bench.store)
    assert found.verdict.word == "inconclusive"
    assert not found.is_sound
    assert found.canary.nights == nights[-1].canary.nights == 2


def test_what_a_canary_keeps_can_be_read_again_however_sure_it_is() -> None:
    canary = Canary()
    for _ in range(40):
        canary = canary.next_night({})
    for _ in range(40):
        canary = canary.next_night({f"{n}": 2 for n in range(100)})
    assert canary.word == "changed"
    assert Canary.from_json(json.loads(json.dumps(canary.as_json()))) == canary


@pytest.mark.parametrize(
    "damage",
    [
        {"nights": -1}, {"nights": "3"}, {"counts": {"a": [-5, 0]}}, {"counts": {"a": [9, 9]}},
        {"counts": {"a": 1}}, {"evidence": [1e18] * 4}, {"evidence": [None] * 4}, {"since": "x"},
        {"nightly": ["3"]}, {"starts": [-1.0]}, {"gross": [1e18] * 2},
    ],
    ids=str,
)  # fmt: skip
async def test_a_damaged_night_is_passed_over(bench: Bench, damage: dict[str, Any]) -> None:
    await night(bench, {})
    await night(bench, {})
    last = bench.store.history("http://engine")[0]
    assert last.summary is not None
    damaged = {**last.summary, "canary": {**last.summary["canary"], **damage}}
    bench.store.finish(last.id, last.finished or 0.0, damaged)
    assert (await night(bench, {})).canary.nights == 2
