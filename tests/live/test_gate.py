"""The upgrade gate on a real engine: as good as its own baseline, and with a planted defect."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.command import Command
from tests.support.live_engine import LiveEngine

LIMITS = ("--max-mismatch", "30%", "--max-slowdown", "90%", "--max-acceptance-loss", "30%")
"""Wide: a busy machine's speed says nothing, and few prompts are asked."""


@pytest.fixture(scope="module")
def saved(specdeck: Command, serving: LiveEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline of the engine as it is."""
    path = tmp_path_factory.mktemp("gate") / "base.json"
    words = ("--limit", "24", "--max-tokens", "24", *LIMITS)
    done = specdeck("gate", "--save", str(path), serving.url, *words, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def gate(specdeck: Command, saved: Path, *words: str, code: int) -> dict[str, Any]:
    done = specdeck("gate", str(saved), *words, *LIMITS, "--json", timeout=400)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-2000:]
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_an_engine_is_as_good_as_itself(
    specdeck: Command, serving: LiveEngine, saved: Path, tmp_path: Path
) -> None:
    page = tmp_path / "gate.md"
    data = gate(specdeck, saved, serving.url, "--page", str(page), code=0)
    lines = {line["name"]: line for line in data["lines"]}
    assert {line["word"] for line in lines.values()} == {"pass"}
    assert lines["acceptance"]["before"] == pytest.approx(lines["acceptance"]["after"], rel=0.05)
    assert lines["answers"]["after"] == 0.0
    assert data["changed"] == []
    assert page.read_text().startswith("# specdeck gate: pass\n")


def test_a_defect_closes_the_gate(
    specdeck: Command, serving: LiveEngine, fault: Path, saved: Path
) -> None:
    fault.write_text("greedy 0.5")
    try:
        data = gate(specdeck, saved, serving.url, code=1)
    finally:
        fault.unlink()
    words = {line["name"]: line["word"] for line in data["lines"]}
    assert words["divergence"] == "fail"
    assert words["fingerprint"] == "pass"
