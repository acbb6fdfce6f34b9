"""The divergence check on real engines: honest, in float32, and with a planted defect."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from benchmarks import check_planted


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that switches the defect on while it is there."""
    return check_planted.plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def serving(deck: Any, fault: Path) -> Iterator[Any]:
    """An engine in bfloat16 with speculation, whose verification can be made to fail."""
    folder = fault.parent
    config = check_planted.config(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANTED", str(fault))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        started = deck.start(config)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def float32(deck: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The same weights in float32, without speculation."""
    folder = tmp_path_factory.mktemp("float32")
    started = deck.start(check_planted.config(folder, dtype="float32", speculative=False))
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


def check(deck: Any, engine: Any, *words: str, code: int) -> dict[str, Any]:
    done = deck("check", engine.url, *words, "--json", "--fresh", timeout=240)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_an_honest_engine_says_what_its_target_says(deck: Any, serving: Any, hard: str) -> None:
    words = ("--prompts", hard, "--max-tokens", "24", "--streams", "16")
    data = check(deck, serving, *words, code=0)
    assert (data["verdict"], data["prompts"], data["mismatches"]) == ("pass", 200, 0)
    floor = data["noise_floor"]
    assert (floor["pairs"], floor["rate"], floor["serving"]["rate"]) == (200, 0.0, 0.0)
    assert data["classes"]["stream_only"] == 0
    assert data["arms"]["serving"]["drafted"] > 0
    assert data["arms"]["reference"]["drafted"] == 0
    assert data["near_tie"]["resolution"] in (1 / 16, 1 / 32, 1 / 64)


def test_one_stream_says_the_same(deck: Any, serving: Any) -> None:
    data = check(deck, serving, "--limit", "4", "--streams", "1", "--max-mismatch", "50%", code=0)
    assert (data["mismatches"], data["noise_floor"]["mismatches"]) == (0, 0)


def test_tool_calls_are_compared_by_their_arguments(deck: Any, serving: Any) -> None:
    words = ("--prompts", "tools", "--limit", "8", "--max-mismatch", "40%")
    data = check(deck, serving, *words, code=0)
    assert data["tool_arguments"]["prompts"] == data["prompts"] == 8
    assert data["tool_arguments"]["mismatches"] == 0


def test_another_number_format_makes_near_ties_and_nothing_else(
    deck: Any, serving: Any, float32: Any
) -> None:
    data = check(deck, serving, "--reference", float32.url, "--limit", "32", code=1)
    assert data["mismatches"] >= 5
    assert data["classes"]["near_tie"] == data["mismatches"]
    assert data["noise_floor"]["mismatches"] == 0
    assert data["arms"]["reference"]["grade"] == "hard"


def test_unchecked_drafts_are_material_and_confirmed(
    deck: Any, serving: Any, fault: Path, hard: str
) -> None:
    fault.write_text("greedy 0.05")
    words = ("--prompts", hard, "--limit", "60", "--max-tokens", "48")
    try:
        data = check(deck, serving, *words, code=1)
    finally:
        fault.unlink()
    assert data["verdict"] == "fail"
    assert data["classes"]["material"] >= 5
    material = [case for case in data["cases"] if case["class"] == "material"]
    assert all(case["recheck"]["confirmed"] for case in material)
    assert data["noise_floor"]["mismatches"] == 0
    assert data["noise_floor"]["serving"]["rate"] > 0


def test_sampling_from_an_honest_engine_is_not_accused(deck: Any, serving: Any, hard: str) -> None:
    data = check(deck, serving, "--sampled", "--prompts", hard, "--limit", "8", code=0)
    assert data["verdict"] == "pass"
    assert data["control"]["p_lowest"] > data["alpha"]


def test_sampling_that_accepts_too_much_is_seen(
    deck: Any, serving: Any, fault: Path, hard: str
) -> None:
    fault.write_text("sampled 0.3")
    try:
        data = check(deck, serving, "--sampled", "--prompts", hard, "--limit", "8", code=1)
    finally:
        fault.unlink()
    assert data["verdict"] == "fail"
    assert data["p_lowest"] < data["alpha"] < data["control"]["p_lowest"]
