"""A baseline on disk: what was saved is read, for its owner alone; nonsense is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.simulated_traffic import Traffic

from specdeck.engine.errors import ConfigError, UsageError
from specdeck.engine.why.baseline_file import load_baseline, save_baseline
from specdeck.engine.why.step_profile import profile_steps


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "well.json"
    save_baseline(path, Traffic(1).run(20).evidence())
    return path


def test_what_is_read_is_what_was_saved(saved: Path) -> None:
    evidence, found = Traffic(1).run(20).evidence(), load_baseline(saved)
    assert found.span == evidence.span
    assert found.spread == evidence.spread
    assert found.steps == profile_steps(evidence.steps)
    assert found.source == "file"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 2), ("cells", {}), ("k_max", 9), ("k_max", -1), ("start", "x"),
        ("times", [{"requests": 1}]), ("end", 1e300), ("tokens_per_trial", 0.0),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_with_its_place(
    saved: Path, name: str, value: object
) -> None:
    document: dict[str, Any] = json.loads(saved.read_text())
    document[name] = value
    saved.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"well\.json"):
        load_baseline(saved)


def test_counts_below_zero_or_of_another_length_are_refused(saved: Path) -> None:
    document: dict[str, Any] = json.loads(saved.read_text())
    document["cells"][0]["counts"]["drafts"] = -1
    saved.write_text(json.dumps(document))
    with pytest.raises(ConfigError):
        load_baseline(saved)
    document["cells"][0]["counts"]["drafts"] = 1
    document["cells"][0]["counts"]["accepted_per_position"] = [1]
    saved.write_text(json.dumps(document))
    with pytest.raises(ConfigError):
        load_baseline(saved)


@given(st.binary(max_size=200))
def test_bytes_are_refused_and_nothing_else_is_raised(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("baseline") / "any"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        load_baseline(path)


def test_a_place_that_cannot_be_written_or_read_is_a_line(tmp_path: Path) -> None:
    evidence = Traffic(1).run(5, pieces=2).evidence()
    with pytest.raises(UsageError):
        save_baseline(tmp_path / "none" / "well.json", evidence)
    with pytest.raises(ConfigError):
        load_baseline(tmp_path / "none.json")
