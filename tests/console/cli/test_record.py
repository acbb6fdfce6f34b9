"""`specdeck record`, from a process of its own."""

from __future__ import annotations

import json
import signal
import time
from configparser import ConfigParser
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.command import Command
from tests.support.engine_state import engine_state
from tests.support.http_engine import HttpEngine, serve_engine

from specdeck.console.cli.main import outcome
from specdeck.console.cli.record import command
from specdeck.console.state.engine_state import Event
from specdeck.engine.blackbox.folder import list_boxes, open_history
from specdeck.engine.protocol.messages import PREFIX

PROMPT, KEY, TOKEN = "planted-prompt-7", "planted-key-7", "planted-token-7"
UNITS = Path(__file__).parents[3] / "sample_configs" / "systemd"


def wait_for(path: Path, readings: int) -> None:
    """Until so many readings lie in the only black box in `path`."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        for box in list_boxes(path):
            with closing(open_history(path, str(box.path))) as history:
                if sum(1 for _ in history.readings(0, 1e11)) >= readings:
                    return
        time.sleep(0.2)
    raise TimeoutError(f"no {readings} readings in {path}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_records_until_a_signal_and_keeps_no_secret(
    tmp_path: Path, number: signal.Signals
) -> None:
    secrets = {"ENGINE_KEY": KEY, "SPECDECK_ADMIN_TOKEN": TOKEN}
    run = Command(tmp_path, secrets)
    engine = HttpEngine()
    state = engine_state().as_json() | {"prompt": PROMPT, "token": TOKEN}
    engine.answers[f"{PREFIX}/state"] = (200, state)
    with serve_engine(engine):
        words = ("record", engine.url, "--interval", "0.1", "--api-key-env", "ENGINE_KEY")
        with run.running(*words, "--json") as process:
            folder = tmp_path / "data" / "blackbox"
            wait_for(folder, 5)
            engine.answers[f"{PREFIX}/state"] = (
                200, engine_state(version=1, breaker="open", policy_reason="too slow").as_json()
            )  # fmt: skip
            wait_for(folder, 15)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
    assert process.returncode in (130, -number)
    (line,) = map(json.loads, out.splitlines())
    assert (line["kind"], line["text"]) == ("breaker", "breaker open: too slow")
    assert err.splitlines()[0] == f"specdeck: recording {engine.url[7:]} in {folder}"
    with closing(open_history(folder, engine.url)) as history:
        found = list(history.readings(0, 1e11))
        assert [one.window is None for one in found[:2]] == [True, False]
        (event,) = history.events(0, 1e11)
        assert (event.kind, event.label) == ("breaker", "breaker open")
        said = f"{found} {event}"
    for path in folder.iterdir():
        said += path.read_bytes().decode("latin-1")
    for secret in (PROMPT, KEY, TOKEN):
        assert secret not in said + out + err


def test_what_is_no_engine_is_said_at_once(tmp_path: Path) -> None:
    with serve_engine(HttpEngine({})) as engine:
        done = Command(tmp_path)("record", engine.url)
    assert done.returncode == 3
    assert "has no vLLM at this path" in done.stderr


def test_a_config_names_its_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "none.yaml"
    config.write_text("attach: {engines: []}\n")
    assert outcome(["record", str(config)]) == 2
    assert str(config) in capsys.readouterr().err


def test_the_unit_calls_record_with_options_it_has() -> None:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.read(UNITS / "specdeck-record.service")
    program, *words = unit["Service"]["ExecStart"].split()
    assert program.endswith("/specdeck")
    assert words.pop(0) == "record"
    context = command.make_context("record", words)
    assert context.params["quiet"]
    assert unit["Service"]["SuccessExitStatus"] == "130"


def test_an_event_has_a_kind_without_being_told() -> None:
    assert Event(0.0, "something").kind == "other"
