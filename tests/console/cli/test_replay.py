"""`specdeck replay` without a terminal: samples as JSON, and one line of error."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from specdeck.console.cli import replay
from specdeck.console.cli.common import black_box_folder
from specdeck.console.cli.main import outcome
from specdeck.console.state.recorded import PlayedRecording, RecordedBox
from specdeck.engine.blackbox.box import open_box
from specdeck.engine.blackbox.file import open_for_reading
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.blackbox.patience import never
from specdeck.engine.errors import ConfigError
from specdeck.engine.incident.archive import RECORDING
from specdeck.engine.metrics.reading import Reading
from specdeck.engine.metrics.recording import reading_as_json
from specdeck.engine.metrics.sample import Sample
from specdeck.engine.metrics.window import between

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


@pytest.mark.parametrize("name", ["pipe", "pipe.jsonl"])
def test_a_pipe_is_no_recording_and_nobody_waits_for_it(
    name: str, tmp_path: Path, capsys: Captured
) -> None:
    os.mkfifo(tmp_path / name)
    assert outcome(["replay", str(tmp_path / name), "--json"]) == 2
    assert "not a regular file" in capsys.readouterr().err


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """The black box of an engine that was recorded under this home."""
    path = box_path(black_box_folder(), "http://a:1")
    found = open_box(path, "http://a:1", name="west")
    assert found is not None
    before = None
    for t in (100.0, 101.0, 102.0):
        sample = Sample(t=t, at=t, generated=t * 9.0)
        window = None if before is None else between(before, sample)
        found.append(Reading(t, "http://a:1", sample=sample, window=window))
        before = sample
    found.close()
    return path


@pytest.fixture
def incident(box: Path, tmp_path: Path) -> Path:
    """A zip with that black box as its recording."""
    path = tmp_path / "incident.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(box, RECORDING)
    return path


@pytest.mark.parametrize("wanted", ["west", "http://a:1", "a:1", "file", "incident"])
def test_an_engine_that_was_recorded_is_found_by_what_it_is_called(
    wanted: str, box: Path, incident: Path, capsys: Captured
) -> None:
    wanted = {"file": str(box), "incident": str(incident)}.get(wanted, wanted)
    assert outcome(["replay", wanted, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["t"] for line in lines] == [100, 101, 102]
    assert lines[2]["tokens_per_second"] == 9.0


def test_what_was_not_recorded_is_refused_with_what_was(box: Path, capsys: Captured) -> None:
    assert outcome(["replay", "east", "--json"]) == 2
    said = capsys.readouterr().err
    assert "nothing is recorded of east" in said
    assert "west" in said


def test_a_file_that_is_not_there_is_one_line(capsys: Captured) -> None:
    assert outcome(["replay", "gone.jsonl", "--json"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_console_waits_for_a_record_within_bounds(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may have made the file: it would hold the console up, deaf to keys and signals."""
    seen: list[object] = []

    async def show(engines: Sequence[RecordedBox], at: str | None) -> int:
        history = engines[0].find_history()
        assert isinstance(history, History)
        with history._rows.wait() as is_over:
            seen.append(is_over)
        return 0

    monkeypatch.setattr(replay, "_show", show)
    monkeypatch.setattr(replay, "require_terminal", lambda otherwise: None)
    assert outcome(["replay", str(box)]) == 0
    assert seen
    assert seen != [never]


def test_of_a_long_recording_the_past_is_read_ahead_of_the_console(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    async def show(engines: Sequence[PlayedRecording], at: str | None) -> int:
        seen.append(engines[0]._history is not None)
        return 0

    monkeypatch.setattr(replay, "_show", show)
    monkeypatch.setattr(replay, "require_terminal", lambda otherwise: None)
    assert outcome(["replay", str(recording)]) == 0
    monkeypatch.setattr(replay, "_READ_LATER", 1)
    assert outcome(["replay", str(recording)]) == 0
    assert seen == [False, True]


def test_on_a_terminal_it_tells_how_much_of_a_long_recording_is_read(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    async def show(engines: Sequence[PlayedRecording], at: str | None) -> int:
        return 0

    monkeypatch.setattr(replay, "_show", show)
    monkeypatch.setattr(replay, "require_terminal", lambda otherwise: None)
    monkeypatch.setattr(replay, "_READ_LATER", 1)
    assert outcome(["replay", str(recording)]) == 0
    assert capsys.readouterr().err == ""  # nothing within the first second
    monkeypatch.setattr(replay, "_TOLD_EVERY_S", 0.0)
    assert outcome(["replay", str(recording)]) == 0
    assert capsys.readouterr().err == ""  # nor where it is no terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert outcome(["replay", str(recording)]) == 0
    told = capsys.readouterr().err
    assert f"specdeck: checking {recording.name}: 0%" in told
    assert f"specdeck: going through {recording.name}: " in told
    assert told.endswith(f"\r\x1b[Kspecdeck: {recording.name} is read\n")
    with recording.open("a") as file:
        file.write("nonsense\n")
    assert outcome(["replay", str(recording)]) == 2
    assert "\r\x1b[Kspecdeck: " in capsys.readouterr().err.rpartition("%")[2]


@pytest.mark.parametrize("command", ["export", "replay --json"])
def test_a_file_of_the_kernels_is_no_recording(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is waited for would hang a test; this one ends."""
    (tmp_path / "box.db").symlink_to("/proc/version")
    assert outcome([*command.split(), str(tmp_path / "box.db")]) == 2
    assert "unexpected" not in capsys.readouterr().err


def test_no_black_box_is_read_of_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "box.db").symlink_to("/proc/version")
    with pytest.raises(ConfigError, match="not a regular file"):
        open_for_reading(tmp_path / "box.db")
