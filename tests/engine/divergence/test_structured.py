"""Answers held against the structure that their prompt requires."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import tracemalloc
from typing import Any

import pytest
from tests.engine.divergence.conftest import Bench
from tests.support.checks import finish_check

from specdeck.engine.divergence import runner
from specdeck.engine.divergence.answers import Answer, Call
from specdeck.engine.divergence.compare import Divergence, PromptAnswers
from specdeck.engine.divergence.prompts import Prompt, parse_prompt
from specdeck.engine.divergence.report import check_lines
from specdeck.engine.divergence.runner import name_violation
from specdeck.engine.divergence.structured import (
    Violation,
    check_json,
    is_constrained,
    judge_validity,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer"},
        "filters": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["limit"],
    "additionalProperties": False,
}


def answer(text: str = "", *calls: Call, finish: str = "stop") -> Answer:
    return Answer((1,), (None,), ((),), text, calls, finish, (9,), None, None, 0.1)


def prompt(**body: Any) -> Prompt:
    return Prompt(1, 1, {"prompt": "a", **body})


def violation(asked: Prompt, *said: Answer) -> Violation | None:
    found = judge_validity(asked, said, [])
    assert found is not None
    return found.serving


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"limit": "x"}', "limit: 'x' is not of type 'integer'"),
        ('{"limit": 1, "filters": ["a", "c"]}', "filters[1]: 'c' is not one of ['a', 'b']"),
        ("{}", "$: 'limit' is a required property"),
        ('{"limit": 1} x', "$: "),
        ('{"limit": 1, ', "$: "),
    ],
)
def test_an_answer_that_breaks_its_schema_names_the_place(text: str, line: str) -> None:
    for constraint in (
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    ):
        found = violation(prompt(**constraint), answer(text))
        assert found is not None
        assert found.line().startswith(line)
        assert violation(prompt(**constraint), answer('{"limit": 3}')) is None


def test_what_was_cut_short_is_judged_as_far_as_it_goes() -> None:
    for text in ("", "{", '{"lim', '{"limit": ', '{"limit": 12', '{"filters": ["a'):
        assert check_json(text, SCHEMA, cut=True) is None
        assert check_json(text, SCHEMA) is not None
    for text in ('{"limit": x', '{"limit" 1', "def f(", '{"limit": 1}}'):
        found = check_json(text, SCHEMA, cut=True)
        assert found is not None
        assert found.rule == "json"


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ({"regex": "[0-9]{3}"}, "123", "12a"),
        ({"choice": ["yes", "no"]}, "no", "maybe"),
        ({"json_object": True}, "{}", "[]"),
    ],
)
def test_other_rules(rule: dict[str, Any], good: str, bad: str) -> None:
    asked = prompt(structured_outputs=rule)
    assert violation(asked, answer(good)) is None
    found = violation(asked, answer(good), answer(bad))
    assert found is not None
    assert found.path == "$"


def test_a_rule_that_cannot_be_judged_by_is_none() -> None:
    unknown: tuple[dict[str, Any], ...] = (
        {},
        {"structured_outputs": {"regex": r"\p{Lu}+("}},
        {"structured_outputs": {"structural_tag": "{}"}},
        {"structured_outputs": {"json": "no schema"}},
        {"response_format": {"type": "text"}},
    )
    for body in unknown:
        assert judge_validity(prompt(**body), [answer("x")], []) is None
    odd = prompt(structured_outputs={"json": {"type": 7}})
    assert violation(odd, answer("{}")) is None
    abroad = prompt(structured_outputs={"json": {"$ref": "http://127.0.0.1:9/schema.json"}})
    assert violation(abroad, answer("{}")) is None


TOOLS = [{"type": "function", "function": {"name": "search", "parameters": SCHEMA}}]


def chat(**body: Any) -> Prompt:
    return Prompt(1, 1, {"messages": [{"role": "user", "content": "a"}], "tools": TOOLS, **body})


def test_calls_of_tools_are_held_against_their_schemas() -> None:
    asked = chat(tool_choice="required")
    assert violation(asked, answer("", Call("search", '{"limit": 1}'))) is None
    for call, path in (
        (Call("search", '{"limit": "x"}'), "limit"),
        (Call("search", '{"limit"'), "$"),
        (Call("seek", "{}"), "name"),
    ):
        found = violation(asked, answer("", call))
        assert found is not None
        assert (found.path, found.enforced) == (path, True)
    two = answer("", Call("search", '{"limit": 1}'), Call("search", '{"limit": 1.5}'))
    found = violation(asked, two)
    assert found is not None
    assert found.path == "calls[1].limit"
    assert violation(asked, answer("no call")) is not None
    cut = answer("", Call("search", '{"limit": '), finish="length")
    assert violation(asked, cut) is None


def test_thousands_of_calls_are_given_up_and_not_judged_one_by_one() -> None:
    good, bad = Call("search", '{"limit": 1}'), Call("search", '{"limit": "x"}')
    assert violation(chat(), answer("", *[good] * 100, bad)) is not None
    assert violation(chat(), answer("", *[good] * 10_000, bad)) is None


def test_all_answers_to_a_prompt_share_what_may_be_spent_on_them() -> None:
    asked = prompt(structured_outputs={"json": {"pattern": BACKTRACKS}})
    began = time.process_time()
    judge_validity(asked, [answer(json.dumps("a" * 80))] * 8, [])
    assert time.process_time() - began < 6.0


async def test_between_two_prompts_whatever_else_waits_has_its_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, turns = 0, []

    async def listen() -> None:
        nonlocal heard
        while True:
            heard += 1
            await asyncio.sleep(0)

    def name(answers: PromptAnswers) -> PromptAnswers:
        turns.append(heard)
        return name_violation(answers)

    monkeypatch.setattr(runner, "name_violation", name)
    listening = asyncio.create_task(listen())
    prompts = bench.written(*({"prompt": f"prompt {n}"} for n in range(1, 9)))
    async with bench.lab(bench.engine(), max_tokens=8) as lab:
        await finish_check(lab, prompts, bench.store)
    listening.cancel()
    assert len(set(turns)) == len(turns) == 8


def test_a_call_that_a_model_may_make_is_no_rule_of_the_engine() -> None:
    found = violation(chat(), answer("", Call("search", "{}")))
    assert found is not None
    assert not found.enforced
    assert violation(chat(), answer("no call")) is None
    assert [is_constrained(one) for one in (chat(), chat(tool_choice="required"))] == [False, True]


def test_a_tie_may_end_in_a_bad_call_but_in_no_broken_grammar() -> None:
    tied = Divergence(1, 2, 3, margin_serving=0.01, margin_reference=0.01)
    free = Violation("limit", "type", "", enforced=False)
    bound = Violation("limit", "type", "")
    kinds = [
        Divergence(1, 2, 3, margin_serving=0.01, margin_reference=0.01, violation=one).kind(0.1)
        for one in (None, free, bound)
    ]
    assert kinds == ["near_tie", "near_tie", "invalid"]
    assert Divergence.from_json(tied.as_json()) == tied
    kept = Divergence(1, violation=bound)
    assert Divergence.from_json(kept.as_json()) == kept


def test_what_both_arms_break_is_no_matter_of_speculation() -> None:
    asked = prompt(structured_outputs={"json": SCHEMA})
    bad, good = answer("x"), answer('{"limit": 1}')
    found = judge_validity(asked, [bad, bad], [good, good])
    assert found is not None
    assert found.broken is not None
    both = judge_validity(asked, [bad, bad], [good, bad])
    assert both is not None
    assert both.broken is None


DEPENDENT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "ü": {"type": "string"}},
    "dependentRequired": {"ü": ["a"]},
}


@pytest.mark.parametrize(
    ("schema", "text", "enforced"),
    [
        (DEPENDENT, '{"ü": "ä"}', False),
        (DEPENDENT, '{"a": "x"}', True),
        (DEPENDENT, '{"ü": 1}', True),
        (DEPENDENT, "x", True),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1, 1]", False),
        ({"not": {"type": "string"}}, '"x"', False),
        ({"type": "string", "pattern": "^a+$", "maxLength": 2}, '"aaa"', False),
        ({"type": "string", "pattern": "^a+$", "maxLength": 2}, '"b"', True),
        ({"type": "integer", "minimum": 5}, " 3 ", True),
    ],
)
def test_what_a_grammar_leaves_out_of_a_schema_is_no_rule_of_the_engine(
    schema: dict[str, Any], text: str, enforced: bool
) -> None:
    found = violation(prompt(structured_outputs={"json": schema}), answer(text))
    assert found is not None
    assert found.enforced == enforced


@pytest.mark.parametrize(
    ("pattern", "text", "enforced"),
    [
        ("Summary: .*", "Summary: a\nb", False),
        ("Summary: .*", "Sum: a", True),
        ("[ab]+", "abc", True),
        ("^[0-9]+$", "12 3", True),
        (r"(?=a)\w+", "b", False),  # no expression of xgrammar's
    ],
)
def test_what_a_grammar_lets_through_an_expression_is_no_rule_of_the_engine(
    pattern: str, text: str, enforced: bool
) -> None:
    found = violation(prompt(structured_outputs={"regex": pattern}), answer(text))
    assert found is not None
    assert found.enforced == enforced


@pytest.mark.parametrize("number", ["3" * 41, "1e400"])
def test_a_number_that_only_specdeck_refuses_is_no_broken_grammar(number: str) -> None:
    asked = prompt(structured_outputs={"json": {"properties": {"n": {"type": "number"}}}})
    assert violation(asked, answer(f'{{"n": {number}}}')) is None
    assert violation(asked, answer(f'{{"n": {number}')) is not None
    for finish in ("stop", "length"):
        assert violation(asked, answer('{"n": NaN, ', finish=finish)) is not None
    assert violation(asked, answer('{"n": NaN}')) is not None


def test_a_number_that_was_cut_short_is_not_held_against_its_schema() -> None:
    asked = prompt(structured_outputs={"json": {"type": "integer", "minimum": 100}})
    assert violation(asked, answer("12", finish="length")) is None
    assert violation(asked, answer("12")) is not None


def test_without_xgrammar_nothing_of_a_schema_is_known_to_be_enforced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    found = violation(prompt(structured_outputs={"json": DEPENDENT}), answer('{"ü": "ä"}'))
    assert found is not None
    assert not found.enforced
    form = violation(prompt(structured_outputs={"json": DEPENDENT}), answer("I am no JSON"))
    assert form is not None
    assert form.enforced


def test_a_reference_that_breaks_what_nobody_enforces_hides_no_broken_grammar() -> None:
    asked = prompt(structured_outputs={"json": DEPENDENT})
    free, bound = answer('{"ü": "ä"}'), answer("I am no JSON")
    found = judge_validity(asked, [free, bound], [free, free])
    assert found is not None
    assert found.broken == found.serving
    assert found.serving is not None
    assert found.serving.rule == "json"
    for serving, reference in ((free, free), (bound, bound), (free, bound)):
        found = judge_validity(asked, [serving], [reference])
        assert found is not None
        assert found.broken is None


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a", "structured_outputs": {"json": SCHEMA}},
        {"prompt": "a", "response_format": {"type": "json_object"}},
        {"messages": [{"role": "user", "content": "a"}], "structured_outputs": {"regex": "a+"}},
    ],
)
def test_a_prompt_may_carry_its_rule(body: dict[str, Any]) -> None:
    assert parse_prompt(json.dumps(body)).body == body


async def test_an_answer_that_only_speculation_breaks_is_a_class_of_its_own(bench: Bench) -> None:
    rule = {"structured_outputs": {"json": SCHEMA}}
    prompts = bench.written(*({"prompt": f"prompt {n}", **rule} for n in range(1, 41)))
    good, bad = '{"limit": 12}', '{"limit": "twelve"}'
    engine = bench.engine(texts=dict.fromkeys((f"prompt {n}" for n in range(1, 41)), (good, good)))
    async with bench.lab(engine, max_tokens=8) as lab:
        data = (await finish_check(lab, prompts, bench.store)).as_json()
    assert data["structured"] == {
        "prompts": 40, "serving_invalid": 0, "reference_invalid": 0, "invalid": 0,
    }  # fmt: skip
    assert data["classes"]["invalid"] == 0
    engine.texts["prompt 7"] = (good, bad)
    async with bench.lab(engine, max_tokens=8, fresh=True) as lab:
        data = (await finish_check(lab, prompts, bench.store)).as_json()
    assert data["verdict"] == "fail"
    assert "invalid where the reference's are valid" in data["reason"]
    assert "limit" in data["reason"]
    assert data["structured"]["invalid"] == data["classes"]["invalid"] == 1
    (case,) = [case for case in data["cases"] if case["class"] == "invalid"]
    assert (case["prompt"], case["violation"]["path"]) == (7, "limit")
    said = "\n".join(check_lines(data))
    assert "1 of 40" in said
    assert "limit: 'twelve' is not of type 'integer'" in said


async def test_a_private_check_keeps_no_word_of_an_invalid_answer(bench: Bench) -> None:
    prompts = bench.written({"prompt": "prompt 1", "structured_outputs": {"json": SCHEMA}})
    engine = bench.engine(texts={"prompt 1": ('{"limit": 1}', '{"limit": "secret"}')})
    async with bench.lab(engine, max_tokens=8, private=True) as lab:
        data = (await finish_check(lab, prompts, bench.store)).as_json()
    assert data["verdict"] == "fail"
    assert "secret" not in json.dumps(data)
    (case,) = data["cases"]
    assert case["violation"] == {"path": "depth 1", "rule": "type", "why": "", "enforced": True}


BRANCHING = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "anyOf": [
        {"type": "object", "required": ["a"], "properties": {"in": {"$ref": "#"}}},
        {"type": "object", "required": ["b"], "properties": {"in": {"$ref": "#"}}},
    ],
}
"""Judged twice at every level: a value of sixty has no end."""
WITHIN = {"items": {"$ref": "#/$defs/one"}, "$defs": {"one": {**BRANCHING, "$id": "http://a/one"}}}
BACKTRACKS = "(a|aa)+b"
RECURSIVE = {
    "anyOf": [
        {"type": "number"},
        {"type": "object", "properties": {"left": {"$ref": "#"}}, "required": ["op"]},
    ]
}
"""Each level's error has all below it in its words."""


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (BRANCHING, json.loads('{"in": ' * 60 + "1" + "}" * 60)),
        (WITHIN, [json.loads('{"in": ' * 50 + "1" + "}" * 50)]),
        ({"pattern": BACKTRACKS}, "a" * 80),
        ({"patternProperties": {BACKTRACKS: {}}}, {"a" * 80: 1}),
        ({"additionalProperties": False, "patternProperties": {BACKTRACKS: {}}}, {"a" * 80: 1}),
        ({"uniqueItems": True}, [{"a": n} for n in range(100_000)]),
        ({"uniqueItems": True}, [[*[1] * 100, n, "x" if n % 2 else 0] for n in [*range(560), 559]]),
        (RECURSIVE, json.loads('{"left": ' * 60 + f'"{"a" * 200_000}"' + "}" * 60)),
        ({"items": {"enum": [*map(str, range(1000))]}}, [*["999"] * 24_000, "none"]),
        ({"items": {"properties": {str(n): {} for n in range(1000)}}}, [*[{}] * 24_000, 1]),
    ],
    ids=[
        "branches", "within", "pattern", "names", "others", "unique", "pairs", "messages", "values",
        "properties",
    ],
)  # fmt: skip
def test_an_answer_that_takes_for_ever_to_judge_is_given_up(schema: Any, value: Any) -> None:
    assert check_json(json.dumps(value), schema) is None


@pytest.mark.parametrize("rule", ["regex", "json"])
def test_an_expression_that_backtracks_is_given_up(rule: str) -> None:
    given = BACKTRACKS if rule == "regex" else {"pattern": BACKTRACKS}
    said = "a" * 80
    asked = prompt(structured_outputs={rule: given})
    text = said if rule == "regex" else json.dumps(said)
    found = judge_validity(asked, [answer(text)], [])
    assert found is not None
    assert found.serving is None


DRAFT_4 = "http://json-schema.org/draft-04/schema#"


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": []},
        {"$schema": 5},
        {"$schema": "http://[bad"},
        {"title": "x", "$ref": "#/title"},
        {"title": "x", "$ref": "#/title/x"},
        {"minLength": 3, "$ref": "#/minLength"},
        {"default": None, "$ref": "#/default"},
        {"enum": [1], "$ref": "#/enum"},
        {"allOf": [{}], "$ref": "#/allOf/x"},
        {"a": {"type": "strin"}, "$ref": "#/a"},
        {"a": {"multipleOf": 0}, "$ref": "#/a"},
        {"a": {"pattern": 5}, "$ref": "#/a"},
        {"$schema": DRAFT_4, "$ref": "#/properties", "properties": {"$ref": "#/properties/a"}},
    ],
)
def test_what_is_no_schema_is_nobodys_to_judge(schema: Any) -> None:
    for said in ("{}", "5", '"a"'):
        assert check_json(said, schema) is None


def test_a_schema_that_takes_for_ever_to_be_read_is_given_up() -> None:
    wide = {"properties": {f"p{n}": {"type": "string"} for n in range(8_000)}, "required": ["b"]}
    assert check_json("{}", wide) is None
    apart = [{"a": n} for n in range(100_000)]  # compared by pairs, they take days
    assert check_json("{}", {"$schema": DRAFT_4, "enum": apart}) is None
    for schema in ({"enum": apart[:500]}, {"$schema": DRAFT_4, "enum": apart[:500]}):
        assert check_json("{}", schema) is not None


@pytest.mark.parametrize(
    "expression", ["(?:a{1000}){1000}", "a{20000}", "(?x)(a{1000}) {20}", "(a{1000})(?#b){20}"]
)
def test_an_expression_that_is_huge_once_it_is_written_out_is_not_compiled(expression: str) -> None:
    pytest.importorskip("regex")
    for rule in ({"regex": expression}, {"json": {"pattern": expression}}):
        found = judge_validity(prompt(structured_outputs=rule), [answer('"b"')], [])
        assert found is None or found.serving is None
    for fit in (r"[a-f0-9]{64}", r"(\(\d{3}\)|\d{3}-)\d{3}-\d{4}", r"\(?x{1,100000}"):
        assert violation(prompt(structured_outputs={"regex": fit}), answer("b")) is not None


SUMS = 'root ::= e\ne ::= e "+" e | "1"'
"""xgrammar takes longer for each character than for the last."""


def test_a_grammar_that_branches_is_given_up() -> None:
    pytest.importorskip("xgrammar")
    asked = prompt(structured_outputs={"grammar": SUMS})
    assert violation(asked, answer("1+" * 4_000)) is None
    found = violation(asked, answer("1+" * 40))
    assert found is not None
    assert "ends too early" in found.why


def test_a_grammar_that_takes_for_ever_to_be_compiled_is_nobodys_to_judge() -> None:
    pytest.importorskip("xgrammar")
    words = " | ".join(f'"a{n}"' for n in range(10_000))
    asked = prompt(structured_outputs={"grammar": f"root ::= {words}"})
    assert judge_validity(asked, [answer("b")], []) is None


@pytest.mark.parametrize("tools", [5, True, 0.5, {"f": 1}, "f"])
def test_tools_that_are_no_list_are_no_rule(tools: Any) -> None:
    asked = prompt(tools=tools, tool_choice="required")
    assert judge_validity(asked, [answer("a")], []) is None


def test_a_grammar_is_held_against_the_pieces_as_against_the_whole() -> None:
    pytest.importorskip("xgrammar")
    asked = prompt(structured_outputs={"grammar": 'root ::= [a-z]+ "é" "."'})
    for length in (1, 14, 15, 16, 17, 31, 32, 100):
        text = "a" * length + "é."
        assert violation(asked, answer(text)) is None
        assert violation(asked, answer(text[:-1], finish="length")) is None
        for bad, why in ((text[:-1], "too early"), (f"{text}.", "not of"), (f"A{text}", "not of")):
            found = violation(asked, answer(bad))
            assert found is not None
            assert why in found.why
    assert violation(asked, answer("")) is not None


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True, "1", "true", [1], {"a": 1}, None, 0, False, 0.5], True),
        (["1,2", ["1", "2"], ["1,2"], [["1"], "2"]], True),
        ([{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": True, "b": 2}], True),
        ([2**53 + 1, float(2**53)], True),
        ([*range(9_000)], True),
        ([1, 1.0], False),
        ([0, -0.0], False),
        ([10**22, 1e22], False),
        ([{"a": [1, {"b": 2}], "c": "x"}, {"c": "x", "a": [1.0, {"b": 2}]}], False),
        ([*range(9_000), 0], False),
    ],
)
def test_items_are_compared_as_json_schema_does(items: list[Any], unique: bool) -> None:
    assert (check_json(json.dumps(items), {"uniqueItems": True}) is None) == unique
    assert check_json(json.dumps(items), {"uniqueItems": False}) is None


@pytest.mark.parametrize("character", ["a", r"\n"])
def test_half_a_text_is_recognized_without_memory_for_each_character(character: str) -> None:
    text = '"' + character * 200_000
    check_json('"', {}, cut=True)
    tracemalloc.start()
    try:
        assert check_json(text, {}, cut=True) is None
        assert check_json(f"{text}\\", {}, cut=True) is None
        assert check_json(f"{text}\t.", {}, cut=True) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(text)


def test_what_is_bounded_is_judged_as_it_was() -> None:
    schema = {
        "properties": {"a": {"type": "string", "pattern": "^x+$"}},
        "patternProperties": {"^n_": {"type": "integer"}},
        "additionalProperties": False,
    }
    for value, rule in (
        ({"a": "xx", "n_1": 3}, None), ({"a": "y"}, "pattern"), ({"n_1": "3"}, "type"),
        ({"b": 1}, "additionalProperties"),
    ):  # fmt: skip
        found = check_json(json.dumps(value), schema)
        assert (found and found.rule) == rule
    typed = {"additionalProperties": {"type": "integer"}, "uniqueItems": True}
    assert check_json('{"b": "x"}', typed) is not None
    assert check_json("[1, 1]", typed) is not None
    assert check_json('{"a": 1, "in": {"c": 1}}', BRANCHING) is not None
    long = '{"left": ' * 10 + json.dumps("a" * 20_000) + "}" * 10
    assert check_json(long, RECURSIVE) is not None


def test_a_place_is_a_short_line_whatever_an_answer_calls_it() -> None:
    name = "\x1b]0;owned\x07\n" + "n" * 10_000
    found = check_json(json.dumps({name: "x"}), {"additionalProperties": {"type": "integer"}})
    assert found is not None
    assert len(found.path) <= 200
    assert found.path.isprintable()
