"""The pure parts: answers, prompts, structure, calibration, verdicts, reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdeck.engine.divergence.answers import Answer, Call, Piece, assemble, parse_piece
from specdeck.engine.divergence.arms import Arm, Facts
from specdeck.engine.divergence.calibration import FINE, MOST, Calibration
from specdeck.engine.divergence.compare import (
    LONGEST_PATH,
    MOST_CHANGES,
    Divergence,
    Recheck,
    StructureChange,
    find_divergence,
    find_json_changes,
)
from specdeck.engine.divergence.floors import weigh_excess
from specdeck.engine.divergence.outcome import Case, Outcome, build_outcome
from specdeck.engine.divergence.privacy import hash_prompt, hide_answers
from specdeck.engine.divergence.prompts import BUNDLED, load_prompts
from specdeck.engine.divergence.recheck import weigh_preference
from specdeck.engine.divergence.statistics import Rate, above, exact_interval, holm, wilson
from specdeck.engine.divergence.totals import Totals
from specdeck.engine.divergence.verdict import CheckEvidence, judge
from specdeck.engine.errors import ConfigError, NotAnEngine, Unsupported
from specdeck.engine.protocol.codec import WrongType
from specdeck.engine.store.checks import Pair


def answer(ids: list[int], margins: list[float] | None = None, text: str = "") -> Answer:
    margins = margins or [1.0] * len(ids)
    tops = tuple(((i, -0.5), (i + 1, -0.5 - m)) for i, m in zip(ids, margins, strict=True))
    return Answer(tuple(ids), (-0.5,) * len(ids), tops, text, (), "length", (1, 2), None, None, 1.0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 11))
def test_one_changed_token_is_found_at_its_index(ids: list[int], place: int) -> None:
    index = place % len(ids)
    changed = [*ids[:index], ids[index] + 10, *ids[index + 1 :]]
    found = find_divergence(answer(changed), answer(ids))
    assert found is not None
    assert (found.index, found.reference_token, found.serving_token) == (
        index, ids[index], changed[index],
    )  # fmt: skip
    assert find_divergence(answer(ids), answer(ids)) is None


def test_an_answer_that_ends_early_parts_at_its_end() -> None:
    found = find_divergence(answer([1, 2]), answer([1, 2, 3]))
    assert found is not None
    assert (found.index, found.serving_token, found.reference_token) == (2, None, 3)


def test_a_third_token_that_no_arm_lists_is_no_tie_without_a_closer_look() -> None:
    found = find_divergence(answer([50], [0.0]), answer([1], [0.0]))
    assert found is not None
    assert found.bounded
    assert found.kind(0.125) == "material"
    assert replace(found, recheck=Recheck(0.06, 3, 0.06)).kind(0.125) == "near_tie"


@pytest.mark.parametrize(
    ("listed", "gap"), [({50: -4.0, 1: -3.5}, 0.5), ({50: -4.0}, None), ({}, None)]
)
def test_under_a_grammar_a_forbidden_token_is_no_measure(
    listed: dict[int, float], gap: float | None
) -> None:
    found = find_divergence(answer([50], [0.0]), answer([1], [0.0]))
    assert found is not None
    thought = {"9": {"logprob": -0.1}} | {str(t): {"logprob": p} for t, p in listed.items()}
    seen = weigh_preference(found, (50,), (thought,), constrained=True)
    assert (None if seen is None else seen.gap) == gap


def test_two_arms_that_waver_both_are_tied_whatever_a_third_look_says() -> None:
    found = find_divergence(answer([1]), answer([2]))
    assert found is not None
    wavering = replace(found, margin_serving=0.19, margin_reference=0.19, bounded=False)
    assert replace(wavering, recheck=Recheck(0.28, 2, 0.28)).kind(0.25) == "near_tie"
    sure = replace(wavering, margin_reference=0.5)
    assert replace(sure, recheck=Recheck(0.28, 2, 0.28)).kind(0.25) == "material"


def test_a_call_that_was_cut_short_may_be_told_in_parts() -> None:
    whole = replace(answer([1]), finish="stop", calls=(Call("search", "{}"),))
    assert find_divergence(replace(whole, calls=()), whole) is not None
    assert find_divergence(replace(whole, calls=(), finish="length"), whole) is None


def test_a_divergence_survives_the_store() -> None:
    found = find_divergence(answer([50], [0.25]), answer([1], [0.5]))
    assert found is not None
    found = replace(found, recheck=Recheck(1.0, 2, 1.0))
    assert Divergence.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_two_tokens_with_one_text_are_told_apart() -> None:
    logprobs = {"token_logprobs": [-0.1], "top_logprobs": [{"token_id:5": -0.1, "token_id:9": -2}]}
    found = parse_piece({"choices": [{"text": "x", "token_ids": [5], "logprobs": logprobs}]})
    assert found.tops == (((5, -0.1), (9, -2.0)),)


def test_an_answer_without_ids_is_refused() -> None:
    with pytest.raises(Unsupported, match="token ids"):
        assemble([Piece(text="hello")], 1.0)
    with pytest.raises(NotAnEngine):
        parse_piece(
            {"choices": [{"logprobs": {"token_logprobs": [-1], "top_logprobs": [{"a": -1}]}}]}
        )


def calibrated(step: float, count: int = 2000, noise: float = 0.0) -> Calibration:
    random, ruler = Random(1), Calibration()
    margins = [(random.randrange(1, 200) * step if step else random.random()) for _ in range(count)]
    one = answer(list(range(count)), margins)
    other = answer(list(range(count)), [m + noise * random.random() for m in margins])
    ruler.see("reference", one)
    ruler.compare(one, other, count)
    return ruler


@pytest.mark.parametrize("step", [1 / 8, 1 / 16, 1 / 32, 1 / 128])
def test_the_resolution_is_read_off_the_margins(step: float) -> None:
    ruler = calibrated(step)
    assert ruler.resolution() == step
    assert ruler.near_tie() == 2 * step
    assert Calibration.from_json(json.loads(json.dumps(ruler.as_json()))) == ruler


def test_float32_has_a_fine_resolution_and_few_tokens_have_none() -> None:
    assert calibrated(0).resolution() == FINE
    assert not calibrated(1 / 16, count=50).sound


def test_noise_widens_a_tie_but_not_without_end() -> None:
    assert 0.2 < calibrated(1 / 16, noise=0.25).near_tie() < 0.3
    assert calibrated(1 / 16, noise=9.0).near_tie() == MOST / 16


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 60), st.integers(1, 500))
def test_an_exact_interval_holds_the_rate_and_its_bounds_order(count: int, more: int) -> None:
    rate = Rate(count, count + more)
    assert rate.rate is not None
    low, high = rate.ci95
    assert 0 <= low <= rate.rate + 1e-12
    assert rate.rate - 1e-12 <= high <= 1
    assert low <= rate.bounds95[0]
    assert rate.bounds95[1] <= high


@pytest.mark.parametrize(("count", "of"), [(0, 200), (1, 3), (7, 500), (200, 200), (999, 2000)])
def test_intervals_are_scipys(count: int, of: int) -> None:
    from scipy.stats import binomtest

    for confidence in (0.9, 0.95):
        for method, made in (("wilson", wilson), ("exact", exact_interval)):
            known = binomtest(count, of).proportion_ci(confidence, method=method)
            found = made(count, of, confidence)
            assert found == pytest.approx((known.low, known.high), abs=1e-12)


@pytest.mark.parametrize(
    ("rate", "floor"),
    [
        (Rate(5, 200), Rate(0, 200)), (Rate(0, 200), Rate(3, 200)), (Rate(7, 500), Rate(7, 500)),
        (Rate(3, 3), Rate(1, 4)), (Rate(2, 200), Rate(190, 20_000)), (Rate(200, 200), Rate(0, 200)),
    ],
)  # fmt: skip
def test_fishers_test_is_scipys(rate: Rate, floor: Rate) -> None:
    from scipy.stats import fisher_exact

    table = [[rate.count, rate.of - rate.count], [floor.count, floor.of - floor.count]]
    known = fisher_exact(table, alternative="greater").pvalue
    assert above(rate, floor) == pytest.approx(known, rel=1e-9)


def test_a_verdict_loads_no_statistics_library() -> None:
    asked = "from specdeck.engine.divergence.statistics import Rate, above; above(Rate(5, 200), "
    loaded = "Rate(0, 200)); import sys; print({'numpy', 'scipy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", asked + loaded], capture_output=True, text=True)
    assert run.stdout.strip() == "set()", run.stderr


def test_holm_keeps_the_order_and_stays_a_probability() -> None:
    assert holm([0.9, 0.001, 0.5]) == (1.0, 0.003, 1.0)


def evidence(mismatches: int, of: int, material: int = 0, floor_material: int = 0) -> CheckEvidence:
    """Of arms that each repeat themselves."""
    excess = weigh_excess({"aa.bb.a": mismatches, "aa.aa.a": of - mismatches}) if of else None
    return CheckEvidence(Rate(mismatches, of), excess, material, floor_material)


def test_no_share_below_none_is_printed() -> None:
    """Where each arm differs from itself more often than from the other."""
    loose = weigh_excess({"ab.ab.a": 50, "aa.aa.a": 150})
    assert loose is not None
    assert loose.upper < 0
    reason = judge(CheckEvidence(Rate(0, 200), loose, 0, 0), 0.015).reason
    assert reason == "at most 0.00% differ beyond the noise floors (one-sided 95% bound)"


def test_a_verdict_names_the_serving_arms_own_floor_and_ties_only_where_they_are() -> None:
    wavers = weigh_excess({"aa.aa.a": 900, "aa.ab.a": 50, "aa.ba.a": 50})
    reason = judge(CheckEvidence(Rate(50, 1000), wavers, 0, 0), 0.015).reason
    assert "beyond the noise floors, the serving arm's own among them" in reason
    reasons = [
        judge(replace(evidence(30, 200), are_ties=are_ties), 0.015).reason
        for are_ties in (True, False)
    ]
    assert ["near tie" in reason for reason in reasons] == [True, False]


def test_a_defect_that_the_reference_has_too_is_not_laid_at_the_drafts_door() -> None:
    found = evidence(5, 200, material=5, floor_material=5)
    assert judge(found, 0.015).word == "inconclusive"
    assert judge(replace(found, floor_material=0), 0.015).word == "fail"


def test_a_reference_that_is_wrong_itself_is_no_fail_and_no_pass() -> None:
    found = replace(evidence(40, 200), reference_differs=40)
    verdict = judge(found, 0.015)
    assert verdict.word == "inconclusive"
    assert verdict.reason.startswith("the reference differs for 40 prompts")


def test_a_rate_at_the_threshold_is_never_settled_by_more() -> None:
    found = judge(evidence(3, 200), 0.015)
    assert (found.word, found.prompts_wanted) == ("inconclusive", None)


def test_nothing_compared_is_nothing_known() -> None:
    assert judge(evidence(0, 0), 0.015).word == "inconclusive"


def test_structures_are_compared_by_value_type_and_key() -> None:
    before = {"a": {"b": [1, 2]}, "gone": 1, "n": 5}
    after = {"a": {"b": [1, 3]}, "new": 2, "n": "5"}
    assert [(c.path, c.kind) for c in find_json_changes(before, after)] == [
        ("a.b[1]", "value"), ("gone", "key"), ("n", "type"), ("new", "key"),
    ]  # fmt: skip
    assert [c.kind for c in find_json_changes({"x": True}, {"x": 1})] == ["type"]
    assert [c.path for c in find_json_changes([{"": [1]}], [{"": [2]}])] == ["[0].[0]"]
    assert [c.path for c in find_json_changes({"": {"a": 1}}, {"": {"a": 2}})] == ["a"]


def test_of_many_changes_the_first_are_listed_and_the_others_counted() -> None:
    arms = ({"k" * 50_000: {str(n): value for n in range(5_000)}} for value in (1, 2))
    changes = list(find_json_changes(*arms))
    assert len(changes) == MOST_CHANGES + 1
    assert sum(len(change.path) for change in changes) <= len(changes) * LONGEST_PATH
    assert changes[0].path == "k" * (LONGEST_PATH - 1) + "…"
    assert changes[-1] == StructureChange("$", "more", None, 5_000 - MOST_CHANGES)
    assert changes[-1].line() == "and 4900 more places"


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_sets_can_be_read(name: str) -> None:
    found = load_prompts(name, 100)
    assert found.count == 100
    assert len({hash_prompt(prompt) for prompt in found}) == 100
    assert {prompt.has_tools for prompt in found} == {name == "tools"}


def test_plain_text_is_a_prompt_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n\ntwo\n")
    assert [(p.number, p.line, p.body) for p in load_prompts(path)] == [
        (1, 1, {"prompt": "one"}), (2, 3, {"prompt": "two"}),
    ]  # fmt: skip
    assert load_prompts(path, 1).count == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no prompt"),
        ('{"prompt": "a"}\n{"prompt": \n', "b.jsonl:2: no JSON"),
        ('{"text": "a"}\n', "b.jsonl:1: neither a prompt nor a chat"),
        ('{"prompt": "a", "messages": []}\n', "b.jsonl:1: neither"),
        ('{"prompt": ""}\n', "b.jsonl:1: the prompt is empty"),
        ('{"messages": "hi"}\n', "b.jsonl:1: the prompt is empty or of another type"),
        ('{"prompt": "a", "temperature": 1}\n', "b.jsonl:1: temperature is no part"),
        ('{"prompt": "a", "max_tokens": 0}\n', "b.jsonl:1: max_tokens"),
        ('{"prompt": "a", "max_tokens": 1' + "0" * 400 + "}", "b.jsonl:1: max_tokens"),
        ('{"prompt": "a"}\n{"prompt": "\\ud800"}\n', "b.jsonl:2: no JSON: surrogates"),
        ('{"prompt": "a", "max_tokens": NaN}\n', "b.jsonl:1: no JSON: NaN is no number"),
        ('{"prompt": ' + "[" * 100_000, "b.jsonl:1: no JSON: it is nested too deep"),
        ('{"prompt": "a", "temperature": 1e999}', "b.jsonl:1: no JSON: a number is out of range"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_prompts(path)


def test_prompts_that_can_be_read_once_only_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is no file"):
        load_prompts(tmp_path / "pipe")


def test_a_name_that_no_file_can_have_is_one_line() -> None:
    with pytest.raises(ConfigError, match="too long"):
        load_prompts("x" * 300 + ".jsonl")


def test_a_missing_or_binary_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_prompts(tmp_path / "none")
    (tmp_path / "bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_prompts(tmp_path / "bin")


def only_cross(cases: list[Case]) -> Callable[[Pair], list[Case]]:
    """The arms differ in `cases`, and each repeats itself."""
    return lambda pair: cases if pair == "cross" else []


def weighed(*cases: Divergence, mismatches: int = 1, prompts: int = 400) -> Outcome:
    """The outcome of a check in which `cases` differ, where margins up to 0.125 are ties."""
    facts = Facts("demo", k=5)
    arms = (
        Arm("serving", "http://e", "serving", facts),
        Arm("reference", "http://e", "soft", facts, 0),
    )
    totals = Totals(
        prompts=prompts, mismatches=mismatches, reference_pairs=prompts, serving_pairs=prompts,
        calibration=calibrated(1 / 16),
        patterns={"aa.bb.": mismatches, "aa.aa.": prompts - mismatches},
    )  # fmt: skip
    found = [Case(n, "abc", case) for n, case in enumerate(cases, 1)]
    return build_outcome(totals, arms, cases=only_cross(found), threshold=0.015)


def parted(serving: tuple[int, float], reference: tuple[int, float]) -> Divergence:
    """Each arm's token and its margin over the next one."""
    (ours, mine), (theirs, yours) = serving, reference
    found = find_divergence(answer([ours], [mine]), answer([theirs], [yours]))
    assert found is not None
    return found


def test_ties_that_nobody_looked_at_again_are_no_defect_and_no_pass() -> None:
    bounded = parted((50, 0.0625), (1, 0.0625))
    found = weighed(bounded, bounded, mismatches=2)
    assert found.classes.counts["material"] == 2
    assert found.verdict.word == "inconclusive"
    assert "2 material differences were not confirmed by a third request" in found.verdict.reason


def test_margins_shortly_above_the_threshold_are_no_proof_either() -> None:
    assert weighed(parted((2, 0.1875), (1, 0.1875))).verdict.word == "inconclusive"


def test_a_confirmed_defect_fails_beside_others_that_are_not() -> None:
    bounded = parted((50, 0.0625), (1, 0.0625))
    confirmed = replace(bounded, recheck=Recheck(3.0, 2, 3.0))
    found = weighed(confirmed, bounded, mismatches=2)
    assert found.verdict.word == "fail"
    assert found.verdict.reason.startswith("1 material difference:")


@pytest.mark.parametrize("case", [parted((50, 2.0), (1, 2.0)), parted((2, 2.0), (1, 2.0))])
def test_confident_margins_on_both_arms_need_no_third_look(case: Divergence) -> None:
    assert weighed(case).verdict.word == "fail"


def test_an_answer_that_ends_where_the_other_is_sure_to_go_on_needs_no_third_look() -> None:
    case = find_divergence(answer([1]), answer([1, 2], [1.0, 2.0]))
    assert case is not None
    private = Divergence.from_json(hide_answers(case).as_json())
    assert weighed(case).verdict.word == weighed(private).verdict.word == "fail"


def test_too_many_unconfirmed_cases_fail_by_their_rate() -> None:
    bounded = parted((50, 0.0625), (1, 0.0625))
    found = weighed(*[bounded] * 40, mismatches=40)
    assert found.verdict.word == "fail"
    assert "10.00% differ" in found.verdict.reason


def test_the_reports_say_the_same() -> None:
    from specdeck.engine.divergence.report import check_junit, check_lines, check_markdown

    found = find_divergence(answer([1, 50], [1.0, 2.0]), answer([1, 2], [1.0, 2.0]))
    assert found is not None
    facts = Facts("demo", k=5)
    arms = (
        Arm("serving", "http://e", "serving", facts),
        Arm("reference", "http://e", "soft", facts, 0),
    )
    totals = Totals(prompts=200, mismatches=1, reference_pairs=200, serving_pairs=200)
    cases = only_cross([Case(7, "abc", found)])
    data = build_outcome(totals, arms, cases=cases, threshold=0.015).as_json()
    for report in ("\n".join(check_lines(data)), check_markdown(data)):
        assert "fail" in report
        assert "material" in report
    suite = ET.fromstring(check_junit(data))
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert suite.find("testcase[@name='prompt 7 token 1']/failure") is not None


@pytest.mark.parametrize(
    "damage",
    [
        {"prompts": "2"}, {"serving": []}, {"serving": {"names": "x"}}, {"seconds": None},
        {"mismatches": 3}, {"serving_mismatches": 1}, {"reference": {"undrafted": 1}},
        {"alone_mismatches": 1}, {"patterns": {"aa.aa.": 3}}, {"patterns": {"": 1}},
        {"patterns": {"aa.aa": 1}}, {"calibration": {"margins": {"serving": [1]}}},
        {"calibration": {"noise": {"9" * 9: 1}}},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_sums_are_not_gone_on_from(damage: dict[str, Any]) -> None:
    sums = Totals(prompts=2, mismatches=1).as_json()
    assert Totals.from_json(json.loads(json.dumps(sums))).prompts == 2
    with pytest.raises(WrongType):
        Totals.from_json({**sums, **damage})


@pytest.mark.parametrize(
    "damage", [{"index": "1"}, {"serving_top": [[1]]}, {"structure": [3]}, {"recheck": {"gap": []}}]
)
def test_a_damaged_divergence_is_none(damage: dict[str, Any]) -> None:
    with pytest.raises(WrongType):
        Divergence.from_json({**Divergence(1).as_json(), **damage})


def test_a_call_in_pieces_is_joined_by_its_number() -> None:
    parts = [(1, "b", "{"), (0, "a", "{}"), (1, "", "}")]
    pieces = [Piece((1,), calls=((number, Call(*words)),)) for number, *words in parts]
    assert assemble(pieces, 1.0).calls == (Call("a", "{}"), Call("b", "{}"))


@pytest.mark.parametrize(("refused", "word"), [(22, "pass"), (23, "inconclusive")])
def test_what_an_arm_refuses_is_no_pass(refused: int, word: str) -> None:
    assert judge(replace(evidence(0, 200), refused=refused), 0.02).word == word
