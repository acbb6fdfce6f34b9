"""`specdeck export`: a table of what was recorded."""

from __future__ import annotations

import csv
import io
import itertools
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.incident_engine import SECONDS, record_collapse
from tests.support.readings import START, URL

from specdeck.console.cli.main import outcome
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.paths import locations

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(time, "time", lambda: START + SECONDS + 30.0)
    monkeypatch.chdir(tmp_path)
    places = locations({"SPECDECK_HOME": str(tmp_path / "home")})
    path = box_path(places.black_boxes, URL)
    record_collapse(path)
    return path


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_each_reading_is_a_row(box: Path, capsys: Captured) -> None:
    assert outcome(["export", URL]) == 0
    found = rows(capsys.readouterr().out)
    with closing(History(box)) as history:
        readings = list(history.readings(0, float("inf")))
    assert len(found) == len(readings) == SECONDS + 20
    for row, reading in zip(found, readings, strict=True):
        assert float(row["t_unix_s"]) == pytest.approx(reading.t)
        assert row["up"] == str(int(reading.up))
        window = reading.window
        assert (row["tokens_per_s"] == "") == (window is None)
        if window is not None and window.acceptance_rate is not None:
            assert float(row["acceptance_ratio"]) == pytest.approx(window.acceptance_rate)
    assert found[0]["time_utc"] == "2026-11-21T04:40:00.000Z"
    assert found[-1]["error"] == "Unreachable"
    assert found[-1]["generated_tokens_total"] == ""


def test_rows_of_a_minute_add_up_to_the_counters(capsys: Captured) -> None:
    assert outcome(["export", "demo", "--every", "1m"]) == 0
    found = rows(capsys.readouterr().out)
    up = [row for row in found if row["up"] == "1"]
    assert len(up) == 10
    for before, row in itertools.pairwise(up):
        risen = float(row["accepted_tokens_total"]) - float(before["accepted_tokens_total"])
        drafted = float(row["drafted_tokens_total"]) - float(before["drafted_tokens_total"])
        assert float(row["acceptance_ratio"]) == pytest.approx(risen / drafted)
        assert float(row["window_s"]) == pytest.approx(60.0)


def test_a_part_goes_to_a_file_that_stays(tmp_path: Path, capsys: Captured) -> None:
    words = ["export", URL, "--from", "-2m", "--to", "-1m", "-o", "a.csv"]
    assert outcome(words) == 0
    assert len(rows(Path("a.csv").read_text())) == 61
    assert stat.S_IMODE(Path("a.csv").stat().st_mode) == 0o600
    assert outcome(words) == 2
    assert "--force" in capsys.readouterr().err
    assert outcome([*words, "--force"]) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.csv", "home"]


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_a_dash_is_stdout(option: str, tmp_path: Path, capsys: Captured) -> None:
    assert outcome(["export", URL, option, "-", "--force"]) == 0
    assert len(rows(capsys.readouterr().out)) == SECONDS + 20
    assert not (tmp_path / "-").exists()
    assert outcome(["export", URL, option, "./-"]) == 0
    assert capsys.readouterr().out == ""
    assert len(rows((tmp_path / "-").read_text())) == SECONDS + 20


def test_an_incident_file_is_a_recording_as_well(capsys: Captured) -> None:
    assert outcome(["incident", URL, "--last", "20m", "-o", "a.zip"]) == 0
    capsys.readouterr()
    assert outcome(["export", "a.zip", "--last", "1m"]) == 0
    assert len(rows(capsys.readouterr().out)) == 61


def test_what_is_not_recorded_is_named(capsys: Captured) -> None:
    assert outcome(["export", "http://127.0.0.1:9"]) == 2
    assert "nothing is recorded of" in capsys.readouterr().err
    assert outcome(["export", URL, "--every", "x"]) == 2
    assert "--every" in capsys.readouterr().err
