"""The divergence check on real engines: honest, in float32, and with a planted defect."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support import planted_defect
from tests.support.command import Command
from tests.support.live_engine import LiveEngine


@pytest.fixture(scope="module")
def float32(specdeck: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    """The same weights in float32, without speculation."""
    folder = tmp_path_factory.mktemp("float32")
    started = LiveEngine.start(
        specdeck, planted_defect.config(folder, dtype="float32", speculative=False)
    )
    yield started
    started.stop()


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prompts of random tokens: nothing that the draft was trained on, so it is often wrong."""
    random = Random(11)
    bodies = ({"prompt": [random.randrange(300, 1900) for _ in range(24)]} for _ in range(200))
    path = tmp_path_factory.mktemp("prompts") / "hard.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return str(path)


def check(specdeck: Command, engine: LiveEngine, *words: str, code: int) -> dict[str, Any]:
    done = specdeck("check", engine.url, *words, "--json", "--fresh", timeout=240)
    assert done.returncode == code, done.stdout[:1500] + done.stdout[-1500:] + done.stderr[-2000:]
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_an_honest_engine_says_what_its_target_says(
    specdeck: Command, serving: LiveEngine, hard: str
) -> None:
    words = ("--prompts", hard, "--limit", "120", "--max-tokens", "24", "--max-mismatch", "3%")
    data = check(specdeck, serving, *words, code=0)
    assert (data["verdict"], data["prompts"], data["mismatches"]) == ("pass", 120, 0)
    floor = data["noise_floor"]
    assert (floor["pairs"], floor["rate"], floor["serving"]["rate"]) == (120, 0.0, 0.0)
    assert data["classes"]["stream_only"] == 0
    assert data["arms"]["serving"]["drafted"] > 0
    assert data["arms"]["reference"]["drafted"] == 0
    assert data["near_tie"]["resolution"] in (1 / 16, 1 / 32, 1 / 64)


@pytest.mark.long
def test_one_stream_says_the_same(specdeck: Command, serving: LiveEngine) -> None:
    data = check(
        specdeck, serving, "--limit", "6", "--streams", "1", "--max-mismatch", "50%", code=0
    )
    assert (data["mismatches"], data["noise_floor"]["mismatches"]) == (0, 0)


def test_tool_calls_are_compared_by_their_arguments(specdeck: Command, serving: LiveEngine) -> None:
    words = ("--prompts", "tools", "--limit", "8", "--max-mismatch", "40%")
    data = check(specdeck, serving, *words, code=0)
    assert data["tool_arguments"]["prompts"] == data["prompts"] == 8
    assert data["tool_arguments"]["mismatches"] == 0


@pytest.mark.long
def test_another_number_format_makes_near_ties_and_nothing_else(
    specdeck: Command, serving: LiveEngine, float32: LiveEngine
) -> None:
    data = check(specdeck, serving, "--reference", float32.url, "--limit", "32", code=1)
    assert data["mismatches"] >= 5
    assert data["classes"]["near_tie"] == data["mismatches"]
    assert data["noise_floor"]["mismatches"] == 0
    assert data["arms"]["reference"]["grade"] == "hard"


def test_unchecked_drafts_are_material_and_confirmed(
    specdeck: Command, serving: LiveEngine, fault: Path, hard: str
) -> None:
    fault.write_text("greedy 0.05")
    words = ("--prompts", hard, "--limit", "60", "--max-tokens", "48")
    try:
        data = check(specdeck, serving, *words, code=1)
    finally:
        fault.unlink()
    assert data["verdict"] == "fail"
    assert data["classes"]["material"] >= 5
    material = [case for case in data["cases"] if case["class"] == "material"]
    assert all(case["recheck"]["confirmed"] for case in material)
    assert data["noise_floor"]["mismatches"] == 0
    assert data["noise_floor"]["serving"]["rate"] > 0


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "limit": {"type": "integer", "minimum": 0, "maximum": 99},
        "deep": {"type": "boolean"},
    },
    "required": ["name", "limit", "deep"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def structured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prompts whose answers must be of a schema, of an expression, or of a grammar."""
    rules: tuple[dict[str, Any], ...] = (
        {"structured_outputs": {"json": SCHEMA}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": SCHEMA},
            }
        },
        {"structured_outputs": {"regex": "[a-f]{4}-[0-9]{4}"}},
        {"structured_outputs": {"grammar": 'root ::= "[" [0-9]+ ("," [0-9]+)* "]"'}},
    )
    openings = ("def parse(text):\n    return ", "import json\n\nA = ", "class Option:\n    ")
    path = tmp_path_factory.mktemp("prompts") / "structured.jsonl"
    bodies = (
        {"prompt": f"{text}{n}", **rule} for n in range(3) for text in openings for rule in rules
    )
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return str(path)


def test_structured_answers_are_valid_on_both_arms(
    specdeck: Command, serving: LiveEngine, structured: str
) -> None:
    words = ("--prompts", structured, "--max-tokens", "48", "--max-mismatch", "20%")
    data = check(specdeck, serving, *words, code=0)
    assert data["structured"]["prompts"] == data["prompts"] == 36
    assert data["structured"]["serving_invalid"] == data["structured"]["reference_invalid"] == 0
    assert data["arms"]["serving"]["drafted"] > 0


def test_a_grammar_that_is_left_out_for_drafts_is_found_and_named(
    specdeck: Command, serving: LiveEngine, fault: Path, structured: str
) -> None:
    fault.write_text("grammar 1")
    words = ("--prompts", structured, "--max-tokens", "48", "--max-mismatch", "20%")
    try:
        data = check(specdeck, serving, *words, code=1)
    finally:
        fault.unlink()
    assert data["verdict"] == "fail"
    assert data["structured"]["reference_invalid"] == 0
    assert data["classes"]["invalid"] == data["structured"]["invalid"] > 10
    broken = [case["violation"] for case in data["cases"] if case["class"] == "invalid"]
    assert all(one["path"] for one in broken)
    assert "invalid where the reference's are valid" in data["reason"]


SAMPLED = ("--sampled", "--limit", "6", "--samples", "32")
"""Two thirds of a minute on two cores; a check at the defaults draws and scores seven times it."""


def sample(specdeck: Command, engine: LiveEngine, prompts: str, verdict: str) -> dict[str, Any]:
    """What a check of distributions finds.

    One honest engine in a hundred is accused by chance, and one control in a hundred is low: where
    either is so it is drawn again, once.
    """
    words = ("check", engine.url, *SAMPLED, "--prompts", prompts, "--json", "--fresh")
    for _ in range(2):
        done = specdeck(*words, timeout=240)
        data: dict[str, Any] = json.loads(done.stdout)
        is_low = data["control"]["p_lowest"] <= data["alpha"]
        if not is_low and (data["verdict"] == "pass" or verdict == "fail"):
            break
    assert (data["verdict"], done.returncode) == (verdict, int(verdict == "fail")), done.stderr
    return data


@pytest.mark.long
def test_a_temperature_that_is_off_is_seen(
    specdeck: Command, serving: LiveEngine, fault: Path, hard: str
) -> None:
    fault.write_text("cold 0.15")
    try:
        data = sample(specdeck, serving, hard, "fail")
    finally:
        fault.unlink()
    assert data["likelihood"]["scores"]["likelihood"]["z"] > 3
    assert data["control"]["p_lowest"] > data["alpha"]


@pytest.mark.long
def test_sampling_from_an_honest_engine_is_not_accused(
    specdeck: Command, serving: LiveEngine, hard: str
) -> None:
    data = sample(specdeck, serving, hard, "pass")
    assert data["control"]["p_lowest"] > data["alpha"]


@pytest.mark.long
def test_sampling_that_accepts_too_much_is_seen(
    specdeck: Command, serving: LiveEngine, fault: Path, hard: str
) -> None:
    fault.write_text("sampled 0.3")
    try:
        data = sample(specdeck, serving, hard, "fail")
    finally:
        fault.unlink()
    assert data["p_lowest"] < data["alpha"] < data["control"]["p_lowest"]
