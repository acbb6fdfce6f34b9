"""The divergence check on a real engine that differs from itself, honest and with a defect."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support import planted_defect
from tests.support.command import Command
from tests.support.live_engine import LiveEngine
from tests.support.planted_noise import Plan, install_plugin, is_wrong

pytestmark = pytest.mark.long

SIZE = 0.03
"""In the logit: of outputs of twelve tokens, four in ten are others when asked again."""
SHARE = 0.5
_random = Random(11)
PROMPTS = [[_random.randrange(300, 1900) for _ in range(24)] for _ in range(48)]
WORDS = ("--max-tokens", "12", "--streams", "16", "--max-mismatch", "40%")


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that turns the noise of `noisy` on while it is there."""
    return install_plugin(tmp_path_factory.mktemp("noise"))


@pytest.fixture(scope="module")
def noisy(specdeck: Command, noise: Path) -> Iterator[LiveEngine]:
    """An engine in bfloat16 with speculation, whose logits can be made noisy."""
    folder = noise.parent
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    config = planted_defect.config(folder)
    started = LiveEngine.start(specdeck, config, NOISE=str(noise), PYTHONPATH=path)
    yield started
    started.clear_away()


def check(
    specdeck: Command, engine: LiveEngine, noise: Path, plan: Plan, code: int
) -> dict[str, Any]:
    prompts = noise.parent / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in PROMPTS))
    noise.write_text(plan.line())
    try:
        done = specdeck(
            "check", engine.url, "--prompts", str(prompts), *WORDS, "--json", "--fresh", timeout=300
        )
    finally:
        noise.unlink()
    assert done.returncode == code, done.stdout[:1500] + done.stderr[-2000:]
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_an_honest_engine_that_differs_from_itself_passes(
    specdeck: Command, noisy: LiveEngine, noise: Path
) -> None:
    data = check(specdeck, noisy, noise, Plan("repeat", SIZE), code=0)
    assert (data["verdict"], data["prompts"]) == ("pass", len(PROMPTS))
    floor = data["noise_floor"]
    assert data["mismatches"] + floor["mismatches"] > 0
    assert data["classes"]["material"] == floor["material"] == 0
    assert data["arms"]["serving"]["drafted"] > 0


def test_tokens_that_are_replaced_beside_the_noise_are_a_fail(
    specdeck: Command, noisy: LiveEngine, noise: Path
) -> None:
    wrong = sum(is_wrong(one, SHARE) for one in PROMPTS)
    data = check(specdeck, noisy, noise, Plan("repeat", SIZE, SHARE), code=1)
    assert data["verdict"] == "fail"
    assert 3 <= data["classes"]["material"] <= wrong
    assert data["noise_floor"]["material"] == 0
    assert data["noise_floor"]["mismatches"] > 0
