"""`specdeck replay` without a terminal: samples as JSON, and one line of error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdeck.console.cli.main import outcome
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import reading_as_json
from specdeck.engine.metrics.sample import Sample

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "samples.jsonl"
    readings = (Reading(float(t), "http://a:1", sample=Sample(t=t, at=t)) for t in (1, 2))
    path.write_text("".join(json.dumps(reading_as_json(one)) + "\n" for one in readings))
    return path


def test_in_json_the_samples_come_as_they_were_recorded(recording: Path, capsys: Captured) -> None:
    assert outcome(["replay", str(recording), "--json"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == recording.read_text().splitlines()
    assert said.err == ""


def test_the_console_requires_a_terminal(recording: Path, capsys: Captured) -> None:
    assert outcome(["replay", str(recording)]) == 2
    assert "give `specdeck replay FILE --json` to a pipe" in capsys.readouterr().err


def test_a_file_that_is_no_recording_is_named_with_its_line(
    recording: Path, capsys: Captured
) -> None:
    recording.write_text(recording.read_text() + "{}\n")
    assert outcome(["replay", str(recording), "--json"]) == 2
    said = capsys.readouterr()
    assert f"{recording}:3: not a sample" in said.err
    assert json.loads(said.out)["error"]["exit_code"] == 2
