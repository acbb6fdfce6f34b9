"""Every command on an engine that lies, one lie after the other."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specdeck.console.cli import set as set_command
from specdeck.console.cli.main import outcome
from specdeck.engine.operations.change import make_change
from tests.hostile.busy_engine import BusyEngine
from tests.hostile.judge import KEY_VARIABLE, SECRETS, assert_harmless, files_under
from tests.hostile.lies import (
    COMPLETIONS,
    CONTROL,
    FACTS,
    METRICS,
    MODELS,
    STATE,
    STEPS,
    TUNING,
    VERSION,
    Case,
    cases,
)
from tests.support.lying_engine import LyingEngine, head

COMMANDS = {
    "watch": ["watch", "URL", "--count", "2", "--interval", "0.05"],
    "watch --json": ["watch", "URL", "--count", "2", "--interval", "0.05", "--json"],
    "set": ["set", "URL", "k=3"],
    "set --json": ["set", "URL", "k=3", "--json"],
    "check": ["check", "URL", "--limit", "2", "--max-tokens", "4", "--patience", "0"],
    "sweep": ["sweep", "URL", "--seconds", "1", "--rounds", "2", "--k", "0-1"],
    "fingerprint": ["fingerprint", "show", "URL"],
    "fingerprint --json": ["fingerprint", "show", "URL", "--json", "--behaviour"],
    "doctor": ["doctor", "URL"],
    "gate": ["gate", "--save", "b.json", "URL", "--limit", "2", "--max-tokens", "4",
             "--patience", "0"],
    "incident": ["incident", "URL", "--last", "1m", "--output", "i.zip", "--force"],
}  # fmt: skip
ASKS = {
    METRICS: ("watch", "watch --json", "set", "doctor"),
    STATE: ("watch", "watch --json", "set", "set --json", "sweep", "doctor"),
    CONTROL: ("set", "set --json", "sweep"),
    FACTS: ("fingerprint", "fingerprint --json", "check", "sweep", "incident"),
    STEPS: ("sweep",),
    TUNING: ("doctor", "set"),
    VERSION: ("watch", "doctor", "check"),
    MODELS: ("check", "doctor"),
    COMPLETIONS: ("check", "fingerprint --json", "gate"),
    "*": ("watch --json", "set", "set --json", "check", "sweep", "fingerprint", "doctor",
          "incident"),
}  # fmt: skip
"""The commands that a path matters to."""
SWIFT = [case for case in cases() if not case.waits]


PROOF_S = 1.5
"""How long `set` looks for a change that no counter shows; 20 s for an operator."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder of the test's own, and the planted secrets."""
    monkeypatch.setattr(set_command, "make_change", partial(make_change, timeout_s=PROOF_S))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def line(name: str, url: str) -> list[str]:
    """The words of a command on the engine at `url`."""
    words = [url if word == "URL" else word for word in COMMANDS[name]]
    return [*words, "--api-key-env", KEY_VARIABLE]


@pytest.mark.parametrize("case", SWIFT, ids=lambda case: case.name)
def test_a_lie_does_no_harm(case: Case, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = dict.fromkeys(name for path in case.lies for name in ASKS[path])
    for name in names:
        with LyingEngine(case.lies, honest=BusyEngine().answer) as engine:
            code = outcome(line(name, engine.url))
        said = capsys.readouterr()
        assert_harmless(code, said.out, said.err, files=files_under(home))


def test_every_command_works_where_nobody_lies(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the lies above would be told to commands that end before they hear them."""
    for name in COMMANDS.keys() - {"fingerprint --json"}:
        with LyingEngine({}, honest=BusyEngine().answer) as engine:
            assert outcome(line(name, engine.url)) in (0, 1), (name, capsys.readouterr().err)
            assert engine.asked
        capsys.readouterr()


@pytest.mark.parametrize(
    "odd",
    [{"requests": -5000}, {"requests": 0}, {"committed": -8}, {"seconds": -0.2},
     {"seconds": 1e18}, {"accepted": -1}, {"drafted": 2**53 + 1}],
    ids=str,
)  # fmt: skip
def test_a_step_that_none_is_ends_a_sweep_with_a_line(
    odd: dict[str, Any], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = BusyEngine()
    busy.odd = odd
    with LyingEngine({}, honest=busy.answer) as engine:
        code = outcome(line("sweep", engine.url))
    said = capsys.readouterr()
    assert_harmless(code, said.out, said.err, files=files_under(home))
    assert (code, busy.k) == (3, 5), said.err
    assert "something unexpected" in said.err


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_nobody_to_a_stranger(
    status: int, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LyingEngine() as stranger:
        moved = head(("Location", f"{stranger.url}/metrics"), status=status)
        for name in ASKS["*"]:
            with LyingEngine({"*": moved}) as engine:
                assert outcome(line(name, engine.url)) in (2, 3), name
        assert stranger.asked == []
    capsys.readouterr()
