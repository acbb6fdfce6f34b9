"""The world's failures are 2 or 3: full disks, names no file can have, stores of another time."""

from __future__ import annotations

import errno
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command import PATIENCE_S, Command
from tests.support.http_engine import HttpEngine, serve_engine
from tests.support.lying_engine import Asked, LyingEngine, Part, Pause
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.readings import reading

from specdeck.console.cli.main import outcome
from specdeck.engine.metrics.recording import reading_as_json

Captured = pytest.CaptureFixture[str]

LONG = "a" * 5000
DEEP = "/a" * 3000
AWAY = "127.0.0.1:9"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def assert_said(words: list[str], codes: tuple[int, ...], capsys: Captured) -> str:
    """What a failed command said, which is one line of a bearable length."""
    assert outcome(words) in codes
    said = capsys.readouterr().err
    assert "unexpected" not in said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("name", [LONG, DEEP, f"./{LONG}.yaml", f"{DEEP}.json"], ids=len)
@pytest.mark.parametrize(
    "words",
    [
        ["doctor", ""], ["run", "", "--headless"], ["replay", "", "--json"], ["stop", ""],
        ["fingerprint", "diff", "", ""], ["fingerprint", "verify", AWAY, "--expect", ""],
        ["check", AWAY, "--prompts", ""], ["check", AWAY, "--report", ""],
        ["watch", AWAY, "--count", "1", "--pin", ""],
        ["set", AWAY, "k=3", "--admin-token-file", ""],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_path_that_no_file_can_have_is_wrong_usage(
    words: list[str], name: str, capsys: Captured
) -> None:
    assert_said([word or name for word in words], (2, 3), capsys)


@pytest.mark.parametrize("words", [["ps"], ["set", AWAY, "--history"], ["watch", AWAY]], ids=str)
def test_a_home_that_cannot_be_is_wrong_usage(
    words: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_HOME", f"/{LONG}")
    assert len(assert_said(words, (2,), capsys)) < 400


@pytest.mark.parametrize("words", [["ps"], ["watch", AWAY, "--count", "1"], ["set", "x", "k=3"]])
def test_a_folder_that_is_gone_is_wrong_usage(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("SPECDECK_HOME", "home")
    gone.rmdir()
    assert "the current folder is gone" in assert_said(words, (2,), capsys)


def test_what_else_is_not_there_is_not_called_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def lack(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr("specdeck.console.cli.check.load_prompts", lack)
    assert outcome(["check", AWAY]) == 70
    (said,) = capsys.readouterr().err.splitlines()
    assert "the current folder" not in said
    assert "No such file or directory" in said


@pytest.mark.parametrize("digits", ["9" * 18, "9" * 19, "9" * 5000, "٣" * 30], ids=len)
def test_a_moment_beyond_any_store_is_not_there(digits: str, capsys: Captured) -> None:
    said = assert_said(["fingerprint", "diff", f"@{digits}", "@1"], (2,), capsys)
    assert "there is no moment @" in said
    assert len(said) < 200


@pytest.mark.parametrize("option", ["--limit", "--max-tokens", "--calls"])
def test_a_count_beyond_any_is_wrong_usage(option: str, capsys: Captured) -> None:
    said = assert_said(["check", AWAY, option, "9" * 400, "--patience", "0"], (2,), capsys)
    assert "is not in the range 1<=x<=1000000" in said


@pytest.mark.parametrize(
    "url", ["http://١.com:1", "http://１２７.0.0.1:1", "http://xn--:1", f"http://{'ä' * 300}:1"]
)
@pytest.mark.parametrize("command", [["watch"], ["doctor"], ["set", "k=3"], ["load"]], ids=str)
def test_a_host_that_cannot_be_asked_for_is_wrong_usage(
    url: str, command: list[str], capsys: Captured
) -> None:
    said = assert_said([command[0], url, *command[1:]], (2,), capsys)
    assert "is no engine's URL" in said


STORE_READERS = [
    ["set", AWAY, "--history"], ["check", AWAY, "--history"], ["fingerprint", "diff", "@1", "@1"],
    ["fingerprint", "show", AWAY, "--history"],
]  # fmt: skip


@pytest.mark.parametrize("words", STORE_READERS, ids=" ".join)
@pytest.mark.parametrize("kind", ["garbage", "cut", "newer", "no tables", "folder"])
def test_a_store_that_is_none_is_wrong_usage(
    kind: str, words: list[str], home: Path, capsys: Captured
) -> None:
    file = home / "data" / "specdeck.sqlite"
    if kind == "folder":
        file.mkdir(parents=True)
    else:
        outcome(["set", AWAY, "--history"])
        capsys.readouterr()
        with sqlite3.connect(file) as store:
            store.execute("PRAGMA journal_mode = DELETE")
            if kind == "newer":
                store.execute("PRAGMA user_version = 99")
            found = (
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
            for (name,) in store.execute(found).fetchall() if kind == "no tables" else ():
                store.execute(f"DROP TABLE {name}")
        store.close()
        if kind in ("garbage", "cut"):
            whole = file.read_bytes()
            file.write_bytes(b"no store at all" * 999 if kind == "garbage" else whole[:5000])
    assert "specdeck.sqlite" in assert_said(words, (2,), capsys)


def run(words: list[str], home: Path, stdout: str) -> subprocess.CompletedProcess[bytes]:
    """The command with a stdout that is full, closed, or both streams closed."""
    line = [*Command.line(*words)]
    ends = {"full": ">/dev/full", "closed": ">&-", "all closed": "<&- >&- 2>&-"}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {ends[stdout]}', "sh", *line],
        env=Command(home).environment, stderr=subprocess.PIPE, check=False, timeout=60,
    )  # fmt: skip


QUIET = [["ps", "--json"], ["--help"], ["ps", "--help"], [], ["--version"]]


@pytest.mark.parametrize("words", QUIET, ids=str)
@pytest.mark.parametrize(("stdout", "code"), [("full", 2), ("closed", 0), ("all closed", 0)])
def test_output_that_cannot_be_written_is_no_defect(
    words: list[str], stdout: str, code: int, home: Path
) -> None:
    done = run(words, home, stdout)
    assert done.returncode == code, done.stderr
    if stdout == "full":
        expected = b"specdeck: cannot write the output: no space left on device"
        assert done.stderr.splitlines() == [expected + b": check where it goes"]
    else:
        assert b"unexpected" not in done.stderr


@pytest.mark.parametrize(("stdout", "codes"), [("full", (2,)), ("closed", (0,))])
def test_samples_and_changes_without_a_place_to_go(
    stdout: str, codes: tuple[int, ...], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", "the-admin-token")
    with serve_engine(HttpEngine()) as engine:
        for more in (["--json"], []):
            watched = run(["watch", engine.url, "--count", "2", *more], home, stdout)
            assert watched.returncode in codes, watched.stderr
    assert b"unexpected" not in watched.stderr
    assert b"Exception ignored" not in watched.stderr


def test_a_change_whose_outcome_cannot_be_printed_is_told_beside_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", "the-admin-token")
    with serve_engine(HttpEngine()) as engine:
        put = run(["set", engine.url, "k=3", "--json"], home, "full")
        assert len(engine.sent_to("/control")) == 1
    assert put.returncode == 2
    assert f"specdeck: undo       specdeck set {engine.url} k=5" in put.stderr.decode()


def watching(words: list[str], home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=Command(home).environment,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_watch_as_interrupted(number: signal.Signals, home: Path) -> None:
    process = watching(Command.line("watch", AWAY, "--json"), home)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["up"] is False
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("words", [["doctor"], ["fingerprint", "show"]], ids=" ".join)
def test_a_signal_ends_a_question_as_interrupted(
    words: list[str], number: signal.Signals, home: Path
) -> None:
    asked = threading.Event()

    def answer(_: Asked) -> Iterator[Part]:
        asked.set()
        yield Pause()

    with LyingEngine({"*": answer}) as engine:
        process = watching(Command.line(*words, engine.url), home)
        assert asked.wait(60)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")


CUT_SHORT = """
import os, signal
from specdeck.console.cli.output import log_what_libraries_say
from specdeck.console.cli.signals import interrupt_at_signals

async def answer():
    pass

def ask():
    made = answer()
    os.kill(os.getpid(), signal.SIGTERM)

log_what_libraries_say()
interrupt_at_signals()
try:
    ask()
except KeyboardInterrupt:
    print("interrupted")
"""
"""A signal between the making of a coroutine and its first step, where Python warns of it."""


def test_what_a_signal_cuts_short_is_warned_of_by_nobody(home: Path) -> None:
    process = watching([sys.executable, "-c", CUT_SHORT], home)
    assert process.communicate(timeout=60) == ("interrupted\n", "")


IN_A_LOOP = """
import asyncio, os, signal
from specdeck.console.cli.signals import interrupt_at_signals
from specdeck.engine.client import event_loop

class Scope:
    def __enter__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        print("entered")

    def __exit__(self, *error):
        print("left")

async def ask():
    with Scope():
        await asyncio.sleep(60)

interrupt_at_signals()
try:
    event_loop.run(ask())
except KeyboardInterrupt:
    print("interrupted")
"""
"""A signal while a library enters a scope, where an exception would leave half of one behind."""


def test_a_signal_cancels_what_an_event_loop_runs(home: Path) -> None:
    process = watching([sys.executable, "-c", IN_A_LOOP], home)
    assert process.communicate(timeout=60) == ("entered\nleft\ninterrupted\n", "")


IN_A_FINALIZER = """
import os, signal, time
from specdeck.console.cli.signals import interrupt_at_signals

class Held:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGHUP)
        print("not raised")

interrupt_at_signals()
try:
    Held()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
"""A signal where Python can raise nothing, and would show a traceback and go on."""


ON_A_BUSY_MACHINE = """
import time
from threading import Timer
from specdeck.console.cli import signals

def start(timer, start=Timer.start):
    signals._SOON_S = 1.0
    start(timer)
    time.sleep(0.1)

signals._SOON_S = 0.0
Timer.start = start
"""
"""The second signal comes before Python is done with the first."""


@pytest.mark.parametrize("before", ["", ON_A_BUSY_MACHINE], ids=["quiet", "busy"])
def test_a_signal_in_a_finalizer_is_not_lost(before: str, home: Path) -> None:
    process = watching([sys.executable, "-c", before + IN_A_FINALIZER], home)
    assert process.communicate(timeout=60) == ("interrupted\n", "")


EARLY = """
import os, sys
import _signal as signal

_, early, number, *words = sys.argv
sys.argv[1:] = words

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == early:
            exec("os.kill(os.getpid(), getattr(signal, number))")

sys.meta_path.insert(0, Interrupted())
from specdeck.__main__ import main
main()
"""
"""Sends this process a signal at the import of a module, as one in the first second comes."""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize(
    "module",
    ["enum", "typing", "specdeck.console.cli.main", "click", "specdeck.console.cli.watch", "httpx"],
)
def test_a_signal_in_the_midst_of_an_import_ends_as_interrupted(
    module: str, number: str, home: Path
) -> None:
    process = watching([sys.executable, "-c", EARLY, module, number, "watch", AWAY], home)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (130, "", "")


@pytest.mark.parametrize("words", [["attach", AWAY], ["replay", "played.jsonl"], ["demo"]], ids=str)
def test_a_signal_while_the_console_is_imported_ends_it_before_it_draws(
    words: list[str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("played.jsonl").write_text(json.dumps(reading_as_json(reading(0))) + "\n")
    line = [sys.executable, "-c", EARLY, "specdeck.console.app", "SIGINT", *words]
    terminal, seen = PseudoTerminal(line, Command(home).environment), b""
    try:
        while (part := terminal.read(1.0)) or terminal.process.poll() is None:
            seen += part
        said = [line for line in seen.splitlines() if not line.startswith(b"notice: ")]
        assert (terminal.process.wait(60), said) == (130, [])
    finally:
        terminal.close()


LATE = """
import os, sys
import _signal as signal

class Late:
    def __init__(self, number):
        self.kill, self.it = os.kill, (os.getpid(), getattr(signal, number))

    def __del__(self):
        self.kill(*self.it)

late, number = Late(sys.argv.pop(1)), sys.argv.pop(1)
if number == "thread":
    import threading, time
    threading.Thread(target=lambda: (time.sleep(1.0), os.kill(*late.it), time.sleep(600))).start()
from specdeck.__main__ import main
main()
"""
"""Sends this process a signal when Python deletes this module, or while it waits for a thread."""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize(("words", "code"), [(["ps", "--json"], 0), (["doctor", AWAY], 3)], ids=str)
def test_a_signal_after_all_is_said_leaves_the_exit_code(
    words: list[str], code: int, number: str, home: Path
) -> None:
    process = watching([sys.executable, "-c", LATE, number, "end", *words], home)
    process.communicate(timeout=60)
    assert process.returncode == code


def test_a_signal_ends_the_wait_for_a_thread_at_the_end(home: Path) -> None:
    process = watching([sys.executable, "-c", LATE, "SIGTERM", "thread", "ps"], home)
    process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.parametrize("files", [6, 8])
def test_a_limit_of_open_files_is_no_defect(files: int, home: Path) -> None:
    """The loop that a command works in has none left, or the next module."""
    words = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *Command.line("set", AWAY, "k=3")]
    process = watching(words, home)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert "specdeck: too many open files: raise the limit (ulimit -n)" in said


def test_under_nohup_the_end_of_the_terminal_ends_nothing(home: Path) -> None:
    script = "trap '' HUP; exec \"$@\""
    words = ["sh", "-c", script, "sh", *Command.line("watch", AWAY, "--json", "--interval", "0.1")]
    process = watching(words, home)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    assert [json.loads(process.stdout.readline())["up"] for _ in range(3)] == [False] * 3
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130


UNRESOLVED = """
import socket, sys, threading

def look_up(host, *args, **kwargs):
    print("looks up", flush=True)
    threading.Event().wait()

known = socket.getaddrinfo
socket.getaddrinfo = lambda host, *args, **kwargs: (
    look_up if host in ("away", b"away") else known
)(host, *args, **kwargs)
from specdeck.__main__ import main
main()
"""
"""A name server that does not answer, as one behind a line that is down."""


GIVEN_UP = 3
"""Of a command that tells so some seconds later: a signal may be slow to come."""


@pytest.mark.parametrize(
    ("words", "codes"),
    [(["watch"], (130,)), (["record"], (130,)), (["set", "k=3"], (130, GIVEN_UP)),
     (["doctor"], (130, GIVEN_UP)), (["load"], (130, GIVEN_UP))],
    ids=lambda value: str(value[0]),
)  # fmt: skip
def test_a_signal_ends_the_look_up_of_a_name(
    words: list[str], codes: tuple[int, ...], home: Path
) -> None:
    command, *rest = words
    line = [sys.executable, "-c", UNRESOLVED, command, "http://away:8000", *rest]
    process = watching(line, home)
    assert process.stdout is not None
    while process.stdout.readline() != "looks up\n":
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode in codes
    assert "Traceback" not in said


def test_what_has_failed_ends_though_a_name_is_looked_up(home: Path) -> None:
    line = [sys.executable, "-c", UNRESOLVED, "watch", "http://away:8000", "--count", "1"]
    process = watching(line, home)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "http://away:8000 does not accept a connection" in said


KEY = "sk-planted-key-0123456789"


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        ["watch", AWAY, "--count", "1"], ["doctor", AWAY], ["set", AWAY, "k=3"],
        ["fingerprint", "show", AWAY], ["sweep", AWAY],
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("key", [KEY, f"{KEY}é", f"{KEY}\x01x", f"{KEY}\nX-Other: x"], ids=ascii)
def test_no_key_is_in_what_debug_shows(
    key: str, words: list[str], debug: bool, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", key)
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", key)
    code = outcome([*words, "--api-key-env", "PLANTED", *["--debug"] * debug])
    said = capsys.readouterr()
    assert code in (2, 3)
    assert KEY not in said.out + said.err
    assert ("Traceback" in said.err) is debug


def test_debug_shows_no_line_of_a_config_that_is_no_yaml(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "a.yaml"
    config.write_text(f"model: demo\nkv_transfer_config: {{password: {KEY}, x: [1}}\n")
    assert outcome(["watch", str(config), "--debug"]) == 2
    said = capsys.readouterr()
    assert "Traceback" in said.err
    assert "a.yaml:2: not valid YAML" in said.err
    assert KEY not in said.err + said.out


@pytest.mark.parametrize("megabytes", [120, 300])
@pytest.mark.parametrize(
    "words", [["check"], ["gate", "--save", "baseline.json"], ["why"], ["why", "--last", "1m"]],
    ids=" ".join,
)  # fmt: skip
def test_a_check_that_gets_no_memory_is_3(words: list[str], megabytes: int, tmp_path: Path) -> None:
    """OpenBLAS tried for ever to get it, and heard no signal; a little more was a defect."""
    command = Command(tmp_path)
    line = ["sh", "-c", f'ulimit -v {megabytes * 1024}; exec "$@"', "sh"]
    done = subprocess.run(
        [*line, *command.line(*words, AWAY)], env=command.environment, cwd=tmp_path,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"and the limit is {megabytes} MB: raise `ulimit -v`" in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        RuntimeError("cannot join thread before it is started"),
    ],
    ids=str,
)
def test_memory_that_runs_out_is_3(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def run_out(*_: object) -> None:
        raise error

    monkeypatch.setattr("specdeck.console.cli.check.load_prompts", run_out)
    said = assert_said(["check", AWAY], (3,), capsys)
    assert said.startswith("specdeck: out of memory: raise the limit")
