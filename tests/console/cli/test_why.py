"""`specdeck why` against a server whose traffic is simulated: causes, exit codes, baselines."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.escapes import PLANTED, assert_harmless
from tests.support.http_engine import serve_engine
from tests.support.readings import START
from tests.support.recorded_engine import busy_readings, record
from tests.support.simulated_traffic import Request, Traffic, usual
from tests.support.suffering_engine import SufferingEngine

from specdeck.console.cli import why
from specdeck.console.cli.common import black_box_folder, until_signal
from specdeck.console.cli.engines import access
from specdeck.console.cli.main import outcome
from specdeck.console.cli.why import Wanted, diagnosis_lines, explain
from specdeck.engine.blackbox.folder import box_path
from specdeck.engine.blackbox.history import History
from specdeck.engine.protocol.messages import PREFIX
from specdeck.engine.why.evidence import Evidence
from specdeck.engine.why.ranking import diagnose

Captured = pytest.CaptureFixture[str]
KEYS = {"engine", "looked", "moved", "causes", "ruled_out", "untold", "missing"}
CAUSE_KEYS = {
    "cause", "cohort", "figure", "effect", "cost", "share", "movement", "since", "certain",
    "throttled",
    "issue", "command",
}  # fmt: skip


def suffer(request: Request, t: float) -> float:
    return 0.3 if request.structured == "json" else 0.72


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def engine() -> Iterator[SufferingEngine]:
    with serve_engine(SufferingEngine(Traffic(1, rate=10.0, accept=suffer))) as engine:
        engine.traffic.run(60)
        yield engine


def test_a_cause_is_exit_code_1_and_has_every_key(
    engine: SufferingEngine, capsys: Captured
) -> None:
    assert outcome(["why", engine.url, "--for", "0s", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == KEYS
    first = found["causes"][0]
    assert first.keys() == CAUSE_KEYS
    assert first["cause"] == "structured_output"
    assert first["cohort"] == {"by": "structured", "words": ["json"]}
    assert first["command"].startswith(f"specdeck set {engine.url} ")
    assert first["share"] == 1.0


def test_the_suggested_command_can_be_pasted(
    engine: SufferingEngine,
    capsys: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def suggest() -> list[str]:
        assert outcome(["why", engine.url, "--for", "0s", "--json"]) == 1
        said = capsys.readouterr()
        assert "planted-token" not in said.out + said.err
        return shlex.split(json.loads(said.out)["causes"][0]["command"])

    assert suggest()[2:5] == [engine.url, "--admin-token-file", "TOKEN_FILE"]
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", "planted-token")
    words = suggest()
    assert "--admin-token-file" not in words
    # Taken as it is: nothing of it is wrong usage, but this engine cannot be controlled.
    assert outcome(words[1:]) not in (0, 2)


def test_nothing_found_is_exit_code_0(capsys: Captured) -> None:
    with serve_engine(SufferingEngine(Traffic(3))) as engine:
        engine.traffic.run(60)
        assert outcome(["why", engine.url, "--for", "0s"]) == 0
        text = capsys.readouterr().out
        assert "no cause found" in text
        assert "ruled out" in text
        assert all(len(line) <= 80 for line in text.splitlines())


def test_what_was_saved_is_what_it_is_compared_with(
    tmp_path: Path, engine: SufferingEngine, capsys: Captured
) -> None:
    path = tmp_path / "well.json"
    with serve_engine(SufferingEngine(Traffic(1, rate=10.0))) as well:
        well.traffic.run(60)
        assert outcome(["why", well.url, "--for", "0s", "--save", str(path)]) == 0
    capsys.readouterr()
    words = ["why", engine.url, "--for", "0s", "--json", "--against", str(path)]
    assert outcome(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["looked"]["baseline"] == "file"
    assert found["causes"][0]["movement"] == "fell"
    assert found["moved"]["cohorts"] < 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["why", "127.0.0.1:9"], 3),
        (["why", "127.0.0.1:9", "--for", "soon"], 2),
        (["why", "127.0.0.1:9", "--for", "9d"], 2),
        (["why", "127.0.0.1:9", "--against", "none.json"], 2),
        (["why"], 2),
        (["why", "127.0.0.1:9", "--until", "-1m"], 2),
        (["why", "127.0.0.1:9", "--since", "-1m", "--until", "-5m"], 2),
    ],
)
def test_wrong_usage_is_2_and_an_engine_that_is_away_3(
    words: list[str], code: int, capsys: Captured
) -> None:
    assert outcome(words) == code
    assert "unexpected" not in capsys.readouterr().err


def test_an_engine_without_the_plugin_is_3_and_says_why(
    engine: SufferingEngine, capsys: Captured
) -> None:
    del engine.answers[f"{PREFIX}/cohorts"]
    assert outcome(["why", engine.url, "--for", "0s"]) == 3
    assert "plugin" in capsys.readouterr().err


def test_an_adapters_name_reaches_no_terminal(capsys: Captured) -> None:
    def draw(random: object) -> Request:
        request = usual(random)  # type: ignore[arg-type]
        name = PLANTED if request.adapter == "sql" else "none"
        return Request(request.prompt, adapter=name)

    traffic = Traffic(1, draw=draw, rate=10.0,
                      accept=lambda r, t: 0.2 if r.adapter != "none" else 0.7).run(40)  # fmt: skip
    assert_harmless("\n".join(diagnosis_lines(diagnose(traffic.evidence()))))


def test_a_signal_ends_the_reading_of_a_large_record(
    engine: SufferingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of large states was read on the event loop: signals were heard 12 seconds later."""
    record(box_path(black_box_folder(), engine.url), busy_readings(20)).close()
    began = threading.Event()

    def read_for_long(evidence: Evidence, history: History) -> Evidence:
        ends = time.monotonic() + 20.0
        began.set()
        while time.monotonic() < ends:
            list(history.readings(START, START + 20))
        return evidence

    def send_signal() -> None:
        if began.wait(10.0):
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(why, "compare_with_past", read_for_long)
    sender, sent = threading.Thread(target=send_signal), list[float]()
    sender.start()
    explaining = explain(access(engine.url), Wanted(0.0), as_json=True)
    assert asyncio.run(until_signal(explaining)) == 130
    sender.join()
    assert time.monotonic() - sent[0] < 5.0
