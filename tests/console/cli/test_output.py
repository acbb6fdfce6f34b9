"""What engines, models and files say reaches the terminal as text, whatever command shows it."""

from __future__ import annotations

import ast
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command import Command
from tests.support.engine_state import engine_state
from tests.support.escapes import ESCAPES, PLANTED, assert_harmless
from tests.support.facts_engine import FactsEngine
from tests.support.http_engine import HttpEngine, serve_engine

import specdeck.console.cli
from specdeck.console.cli.main import outcome
from specdeck.console.cli.output import LogLines, draw_lines, draw_over, log, print_lines
from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record, Registry
from specdeck.engine.protocol.messages import PREFIX, Capability
from specdeck.engine.store.audit import Action, AuditLog
from specdeck.engine.store.database import Store

Captured = pytest.CaptureFixture[str]

SOURCES = sorted(Path(specdeck.console.cli.__path__[0]).glob("*.py"))
_WRITERS = {
    "print",
    "pprint",
    "echo",
    "secho",
    "echo_via_pager",
    "progressbar",
    "confirm",
    "prompt",
}
_ASKED_OF_STREAMS = {"isatty", "encoding", "fileno", "flush"}
"""What other modules ask of stdin, stdout and stderr; none of it is text."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", "the-admin-token")
    return tmp_path / "home"


@pytest.fixture
def engine() -> Iterator[HttpEngine]:
    with serve_engine(HttpEngine()) as engine:
        yield engine


def put(engine: HttpEngine, path: str, body: object, status: int = 200) -> None:
    """The answer at `path`, in ASCII: JSON has a spelling for half of a surrogate pair."""
    engine.answers[path] = (status, json.dumps(body))


def shown(capsys: Captured, words: list[str], codes: tuple[int, ...] = (0,)) -> str:
    """What a command showed on both streams; harmless, and no failure of its own."""
    code = outcome(words)
    said = capsys.readouterr()
    assert_harmless(said.out)
    assert_harmless(said.err)
    assert code in codes, said.err
    return said.out + said.err


@pytest.mark.parametrize(
    "source", [s for s in SOURCES if s.name != "output.py"], ids=lambda s: s.stem
)
def test_only_one_module_of_the_command_line_prints(source: Path) -> None:
    tree = ast.parse(source.read_text())
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        where = f"{source.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            assert name not in _WRITERS, f"{where} prints"
            assert not name.startswith("print_exc"), f"{where} prints"
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            names = [module, *(one.name for one in node.names)]
            assert not any(one.split(".")[0] == "rich" for one in names), f"{where} imports rich"
            imported = {one.name for one in node.names}
            assert module != "click" or not imported & _WRITERS, f"{where} prints"
            assert module != "sys" or not imported & {"stdout", "stderr"}, f"{where} prints"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            assert "\x1b" not in node.value, f"{where} steers the terminal"
    assert_streams_are_not_written(source)


def assert_streams_are_not_written(source: Path) -> None:
    """Fails where stdout or stderr is used for more than a question about it."""
    asked: set[ast.expr] = set()
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _ASKED_OF_STREAMS:
            asked.add(node.value)
        if isinstance(node, ast.comprehension):  # all(stream.isatty() for stream in (…))
            asked |= set(node.iter.elts) if isinstance(node.iter, ast.Tuple) else set()
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            used = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            asked |= set(node.iter.elts) if used <= {"stdout", "stderr", "flush"} else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.strip("_") in ("stdout", "stderr"):
            assert node in asked, f"{source.name}:{node.lineno} uses {node.attr}"


@pytest.mark.parametrize("text", [*ESCAPES, PLANTED], ids=ascii)
def test_a_line_is_one_line_and_moves_nothing(text: str, capsys: Captured) -> None:
    print_lines("one", text)
    log(text)
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err.count("\n")) == (2, 1)
    assert_harmless(said.out)
    assert_harmless(said.err)


def test_a_line_ends_however_long_a_text_is(engine: HttpEngine, capsys: Captured) -> None:
    put(engine, "/version", {"version": "9" * 100_000})
    put(engine, "/v1/models", {"data": [{"id": f"{'m' * 1000}-{n}"} for n in range(1000)]})
    put(engine, f"{PREFIX}/state", engine_state(plugin="p" * 5_000).as_json())
    lines = shown(capsys, ["doctor", engine.url]).splitlines()
    assert max(map(len, lines)) <= 4_000
    assert lines[1].endswith("…")
    with serve_engine(FactsEngine({"model": {"name": "n" * 100_000, "k" * 90_000: 1}})) as liar:
        lines = shown(capsys, ["fingerprint", "show", liar.url]).splitlines()
    assert max(map(len, lines)) <= 4_000


def test_what_is_drawn_over_keeps_our_own_steering_and_no_other(capsys: Captured) -> None:
    draw_over(PLANTED)
    draw_lines(["k 3", PLANTED], above=2, width=40)
    log(PLANTED, over=True)
    said = capsys.readouterr().err
    assert said.startswith("\r\x1b[K")
    for own in ("\x1b[2A\r", "\x1b[K\n", "\x1b[J", "\r\x1b[K"):
        assert own in said
        said = said.replace(own, "")
    assert_harmless(said)


def test_what_an_encoding_has_no_spelling_for_is_a_question_mark() -> None:
    script = "from specdeck.console.cli.output import print_lines; print_lines('k 5 → 3 · –')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert done.stdout == "k 5 ? 3 · ?\n".encode("latin-1")


def test_watch_shows_what_an_engine_says_of_itself(engine: HttpEngine, capsys: Captured) -> None:
    put(engine, f"{PREFIX}/state", engine_state(mode=PLANTED, breaker=PLANTED).as_json())
    shown(capsys, ["watch", engine.url, "--count", "1"])


def test_watch_in_json_is_ascii(engine: HttpEngine, capsys: Captured) -> None:
    state = engine_state(system_fingerprint=PLANTED, method=PLANTED, fingerprint="é")
    put(engine, f"{PREFIX}/state", state.as_json())
    assert shown(capsys, ["watch", engine.url, "--count", "1", "--json"]).isascii()


def test_doctor_shows_versions_models_and_reasons(engine: HttpEngine, capsys: Captured) -> None:
    able = (Capability(PLANTED, False, PLANTED, PLANTED), Capability("live_k", True))
    state = engine_state(plugin=PLANTED, runner=PLANTED, capabilities=able)
    put(engine, f"{PREFIX}/state", state.as_json())
    put(engine, "/version", {"version": PLANTED})
    put(engine, "/v1/models", {"data": [{"id": PLANTED}]})
    assert "forged" in shown(capsys, ["doctor", engine.url], (0, 3))
    shown(capsys, ["doctor", engine.url, "--json"], (0, 3))


@pytest.mark.parametrize("name", ["before", "applied", "notices"])
def test_set_shows_what_an_engine_made_of_a_change(
    name: str, engine: HttpEngine, capsys: Captured
) -> None:
    planted = [PLANTED] if name == "notices" else {"mode": PLANTED, PLANTED: "é"}
    reply = {"before": {"k": 5}, "applied": {"k": 3}, "version": 1, "step": 100, name: planted}
    put(engine, f"{PREFIX}/control", reply)
    put(engine, f"{PREFIX}/state", engine_state(running=0).as_json())
    shown(capsys, ["set", engine.url, "k=3"], (0, 3))
    shown(capsys, ["set", engine.url, "k=3", "--json"], (0, 3))


def test_a_refusal_is_one_harmless_line(engine: HttpEngine, capsys: Captured) -> None:
    error = {"code": "conflict", "message": PLANTED, "remedy": PLANTED}
    put(engine, f"{PREFIX}/control", {"error": error}, 409)
    shown(capsys, ["set", engine.url, "k=3", "--json"], (3,))


def test_the_audit_log_shows_who_and_why(home: Path, capsys: Captured) -> None:
    url, planted = "http://127.0.0.1:9", PLANTED.replace("\ud800", "")
    knobs: dict[str, Any] = {planted: planted}
    action = Action(time.time(), planted, url, planted, knobs, knobs, planted, reason=planted)
    with Store(home / "data" / "specdeck.sqlite") as store:
        AuditLog(store).add(action)
    assert "forged" in shown(capsys, ["set", url, "--history"])
    assert shown(capsys, ["set", url, "--history", "--json"]).isascii()


def test_fingerprints_show_facts_of_any_name(capsys: Captured) -> None:
    planted = PLANTED.replace("\ud800", "")
    facts: dict[str, Any] = {"engine": {"vllm": planted, planted: "x"}, "model": {"é": planted}}
    with serve_engine(FactsEngine(facts)) as engine:
        engine.partial = [{"fact": planted, "reason": planted}]
        engine.system_fingerprint = planted
        assert "forged" in shown(capsys, ["fingerprint", "show", engine.url])
        for words in (["pin"], ["show", "--json"], ["show", "--history"]):
            shown(capsys, ["fingerprint", words[0], engine.url, *words[1:]])
        engine.facts = {"engine": {"vllm": "1", planted: "y"}, "model": {"è": planted}}
        assert "forged" in shown(capsys, ["fingerprint", "diff", engine.url], (1,))
        for words in (["verify"], ["diff", "--json"]):
            shown(capsys, ["fingerprint", words[0], engine.url, *words[1:]], (1,))


@pytest.fixture
def started(home: Path) -> Callable[[str], Record]:
    """Puts a record of this very process into the registry."""

    def add(text: str) -> Record:
        me = process.find_leader(os.getpid())
        assert me is not None
        record = Record("demo", f"http://127.0.0.1:9/{text}", me.pid, me.born, me.boot, 1.0,
                        "/log", "/token", model=text, config=text, ready=2.0)  # fmt: skip
        return Registry(home / "state" / "engines").add(record)

    return add


def test_ps_shows_records_and_what_it_cannot_read(
    started: Callable[[str], Record], home: Path, capsys: Captured
) -> None:
    started(PLANTED)
    (home / "state/engines/\x1b]0;owned\x07.json").write_text("{")
    assert "forged" in shown(capsys, ["ps"])
    assert shown(capsys, ["ps", "--json"]).isascii()


def test_replay_in_json_is_ascii(tmp_path: Path, capsys: Captured) -> None:
    line = {"t": 1.0, "engine": f"http://e/{PLANTED}", "up": True, "tokens_per_second": 1.0,
            "k_max": 5, "mode": "speculate", "restarted": False, "model": "é"}  # fmt: skip
    file = tmp_path / "recording.jsonl"
    file.write_text(json.dumps(line) + "\n")
    assert shown(capsys, ["replay", str(file), "--json"]).isascii()


def test_a_config_is_named_harmlessly(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "\x1b]0;owned\x07\u202e"
    folder.mkdir()
    config = folder / "a.yaml"
    config.write_text('model: "/\\e]0;owned\\a"\nspeculative_config: {method: "\\u202e"}\n')
    shown(capsys, ["doctor", str(config)], (0, 2))
    shown(capsys, ["run", str(config), "--headless"], (2,))
    shown(capsys, ["watch", str(config)], (2,))


@pytest.mark.parametrize("command", [["stop"], ["watch"], ["doctor"], ["attach"], ["check"]])
def test_a_word_of_the_command_line_is_repeated_harmlessly(
    command: list[str], capsys: Captured
) -> None:
    shown(capsys, [*command, PLANTED], (2,))


def test_the_report_of_a_defect_is_harmless(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def broken(self: Registry, text: str) -> None:
        raise ZeroDivisionError(PLANTED)

    monkeypatch.setattr(Registry, "find", broken)
    for more in ([], ["--debug"], ["--json"]):
        shown(capsys, ["stop", "demo", *more], (70,))


def test_what_libraries_warn_of_is_one_line(tmp_path: Path) -> None:
    script = (
        "import logging, warnings; from specdeck.console.cli import main;"
        "main.outcome = lambda words: (warnings.warn('\\x1b]0;a\\x07\\nb'),"
        " logging.getLogger('asyncio').error('\\x1b]0;a\\x07\\nb'), 0)[-1]; main.main([])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60,
        env=Command(tmp_path).environment,
    )  # fmt: skip
    assert_harmless(done.stderr)
    assert [line.startswith("specdeck: ") for line in done.stderr.splitlines()] == [True, True]


def test_a_line_reaches_a_stderr_that_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's stand-in has no encoding, and says that its file is -1."""

    class StandIn:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            """As any stream has."""

        def fileno(self) -> int:
            return -1

    monkeypatch.setattr(sys, "stderr", seen := StandIn())
    log("k 3 → 5")
    LogLines().emit(logging.LogRecord("asyncio", logging.ERROR, "", 1, "never %s", ("read",), None))
    assert seen.text == "k 3 → 5\nspecdeck: never read\n"
