"""The command line without an engine: codes, one-line errors, what is imported for them."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import SchemaValidator, core_schema

from specdeck.console.cli.main import COMMANDS, outcome
from specdeck.console.cli.processes import StopReporter
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.launch import process
from specdeck.engine.launch.registry import Record, Registry
from specdeck.engine.launch.stop import Stopping
from specdeck.engine.paths import HOME_VARIABLE

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def one_line(capsys: Captured) -> str:
    """What was said on stderr, when it was one line and nothing was on stdout."""
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("specdeck: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["fly"], 2, "No such command"),
        (["ps", "--bogus"], 2, "No such option"),
        (["watch"], 2, "Missing argument"),
        (["watch", "http://127.0.0.1:9", "--interval", "0"], 2, "--interval"),
        (["watch", "127.0.0.1:9", "--interval", "nan"], 2, "nan is no finite number"),
        (["attach", "127.0.0.1:9", "--interval", "inf"], 2, "inf is no finite number"),
        (["demo", "--headless", "--seconds", "nan"], 2, "nan is no finite number"),
        (["set", "127.0.0.1:9", "k=3", "--trial", "nan"], 2, "nan is no finite number"),
        (["set", "127.0.0.1:9", "k=3", "--trial", "inf"], 2, "inf is no finite number"),
        (["watch", "notaname"], 2, "no engine called notaname: see `specdeck ps`"),
        (["set", "notaname", "k=3"], 2, "no engine called notaname"),
        (["doctor", "notaname"], 2, "no engine called notaname"),
        (["watch", "not a url"], 2, "is no engine's URL"),
        (["watch", "http://u:p@h:1"], 2, "credentials"),
        (["watch", "127.0.0.1:9", "--api-key-env", "SPECDECK_NO_SUCH"], 2, "is not set"),
        (["set", "127.0.0.1:9", "k=three"], 2, "not a number"),
        (["set", "127.0.0.1:9", "k=-1"], 2, "not a number"),
        (["set", "127.0.0.1:9", "k=" + "9" * 5000], 2, "not a number"),
        (["set", "127.0.0.1:9", "goodput.margin=1e999"], 2, "is not a value"),
        (["set", "127.0.0.1:9", "trial.seconds=" + "9" * 5000], 2, "is not a value"),
        (["set", "127.0.0.1:9", "k"], 2, "cannot be set"),
        (["set", "127.0.0.1:9", "speed=3"], 2, "cannot be set"),
        (["set", "127.0.0.1:9", "k=3", "k=4"], 2, "twice"),
        (["set", "127.0.0.1:9", "mode=target"], 2, "did you mean mode=target-only?"),
        (["set", "127.0.0.1:9", "k=3"], 3, "refuses connections"),
        (["set", "127.0.0.1:9", "k=3", "--trial", "0"], 2, "--trial"),
        (["doctor", "http://127.0.0.1:9"], 3, "refuses connections"),
        (["doctor", "missing.yaml"], 2, "missing.yaml"),
        (["run", "missing.yaml", "--headless"], 2, "missing.yaml"),
        (["run", "missing.yaml", "--headless", "--port", "many"], 2, "--port"),
        (["attach", "127.0.0.1:9"], 2, "terminal"),
        (["demo", "--seconds", "5"], 2, "--headless"),
        (["stop", "demo"], 2, "no engine demo"),
    ],
)
def test_an_error_is_one_line_with_its_code(
    words: list[str], code: int, expected: str, capsys: Captured
) -> None:
    assert outcome(words) == code
    assert expected in one_line(capsys)


def test_a_config_with_a_misspelt_key_names_its_line(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("model: /nowhere\nspeculative_confg: {}\n")
    assert outcome(["run", str(config), "--headless"]) == 2
    said = one_line(capsys)
    assert f"{config}:2" in said
    assert "speculative_config" in said


def test_doctor_names_every_error_of_a_config(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("model: /nowhere\nspeculative_confg: {}\nmax_num_seqs: many\n")
    assert outcome(["doctor", str(config), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [one["level"] for one in found] == ["error", "error"]
    assert [one["message"].split(": ")[0] for one in found] == [f"{config}:2", f"{config}:3"]


def test_doctor_warns_of_folders_that_nothing_can_be_kept_in(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "deck"))
    assert outcome(["doctor", "--json"]) == 0
    (found,) = (one for one in json.loads(capsys.readouterr().out) if one["name"] == "files")
    assert (found["level"], (tmp_path / "deck").exists()) == ("ok", False)
    (tmp_path / "deck").mkdir()
    (tmp_path / "deck" / "state").symlink_to("/nowhere")
    (tmp_path / "deck" / "data").write_text("")
    assert outcome(["doctor", "--json"]) == 0
    found = [one for one in json.loads(capsys.readouterr().out) if one["name"] == "files"]
    assert [one["level"] for one in found] == ["warning", "warning"]
    assert "state cannot be written: no engine can be started" in found[0]["message"]
    assert HOME_VARIABLE in found[0]["remedy"]


@pytest.mark.parametrize("words", [["doctor"], ["run", "--headless"]])
def test_an_engine_that_would_speak_tls_is_refused_before_it_is_started(
    words: list[str], tmp_path: Path, capsys: Captured
) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("model: /nowhere\nssl_certfile: tls.crt\nssl_keyfile: tls.key\n")
    assert outcome([words[0], str(config), *words[1:]]) == 2
    said = "".join(capsys.readouterr())
    for name in ("ssl_certfile", "ssl_keyfile"):
        assert f"`{name}` is not for a config" in said
    assert "end TLS in front of it" in said


def test_run_names_every_error_of_a_config(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("model: /nowhere\nspeculative_confg: {}\nmax_num_seqs: many\n")
    assert outcome(["run", str(config), "--headless"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[1] for line in said] == [f"{config}:2:", f"{config}:3:"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["stop", "nosuch"], 2),
        (["set", "nosuch", "k=3"], 2),
        (["set", "127.0.0.1:9", "k=3"], 3),
        (["doctor", "127.0.0.1:9"], 3),
        (["watch", "127.0.0.1:9", "--interval", "0"], 2),
        (["sweep", "127.0.0.1:9"], 3),
        (["fingerprint", "show", "127.0.0.1:9"], 3),
    ],
)
def test_with_json_an_error_is_an_object_on_stdout_and_a_line_on_stderr(
    words: list[str], code: int, capsys: Captured
) -> None:
    assert outcome([*words, "--json"]) == code
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert set(error) == {"message", "remedy", "exit_code"}
    assert error["exit_code"] == code
    assert said.err.startswith("specdeck: " + error["message"].split("\n")[0])


def test_with_json_a_config_error_has_the_place_of_every_error(
    tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "none.yaml"
    assert outcome(["doctor", str(file), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == f"{file}: does not exist"
    assert error["errors"] == [
        {
            "path": str(file),
            "line": None,
            "keys": [],
            "message": "does not exist",
            "remedy": "check the path",
        }
    ]


def test_an_error_after_data_leaves_stdout_to_the_data(capsys: Captured) -> None:
    assert outcome(["watch", "127.0.0.1:9", "--json", "--count", "1"]) == 3
    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    assert json.loads(line)["up"] is False
    assert "refuses connections" in said.err


def test_a_defect_is_an_object_too(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def broken(self: Registry, text: str) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(Registry, "find", broken)
    assert outcome(["stop", "demo", "--json"]) == 70
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["message"], error["exit_code"]) == ("unexpected ZeroDivisionError: by zero", 70)


def test_a_config_that_only_attaches_is_not_started(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("attach:\n  url: http://127.0.0.1:9\n")
    assert outcome(["run", str(config), "--headless"]) == 2
    assert "specdeck attach" in one_line(capsys)


def test_a_traceback_comes_only_when_it_is_asked_for(capsys: Captured) -> None:
    assert outcome(["stop", "demo", "--debug"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.splitlines()[-1].startswith("specdeck: no engine demo")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: Captured) -> None:
    assert outcome([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: specdeck {name}")


def test_help_lists_every_command(capsys: Captured) -> None:
    assert outcome(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name}" in said for name in COMMANDS)


def test_the_version_is_told(capsys: Captured) -> None:
    assert outcome(["--version"]) == 0
    assert capsys.readouterr().out.startswith("specdeck ")


def test_no_engine_is_an_empty_list(capsys: Captured, home: Path) -> None:
    assert outcome(["ps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert not home.exists()


@pytest.fixture
def registered(home: Path) -> Callable[..., Record]:
    """Puts a record of this very process into the registry."""

    def add(name: str = "demo", ready: float | None = 2.0, **given: Any) -> Record:
        me = process.find_leader(os.getpid())
        assert me is not None
        record = Record(
            name=name,
            url="http://127.0.0.1:9",
            pid=me.pid,
            born=me.born,
            boot=me.boot,
            started=1.0,
            log="/nowhere/log",
            token_file="/nowhere/token",
            model="m",
            ready=ready,
        )
        return Registry(home / "state" / "engines").add(replace(record, **given))

    return add


def test_ps_shows_engines_and_files_it_cannot_read(
    registered: Callable[..., Record], home: Path, capsys: Captured
) -> None:
    registered()
    registered("later", ready=None)
    (home / "state/engines/broken.json").write_text("{")
    assert outcome(["ps", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    states = {name: entry["state"] for name, entry in listed.items()}
    assert states == {"demo": "running", "later": "starting", "broken": "unreadable"}
    assert listed["demo"]["url"] == "http://127.0.0.1:9"
    assert outcome(["ps"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split()[:2] == ["demo", "running"]
    assert "broken.json" in said.err


def test_another_hosts_engine_is_listed_as_elsewhere_and_not_stopped(
    registered: Callable[..., Record], capsys: Captured, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    pid = registered(host="gpu-2", boot="its boot", token_file=str(token)).pid
    for _ in range(2):
        assert outcome(["ps", "--json"]) == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert (listed["state"], listed["host"], listed["processes"]) == ("elsewhere", "gpu-2", [])
        assert not {"boot", "born", "machine", "namespace"} & set(listed)
        assert outcome(["stop", "demo"]) == 3
        assert one_line(capsys) == "specdeck: demo runs on gpu-2, not here: go there\n"
    assert outcome(["ps"]) == 0
    assert f"{pid} on gpu-2" in capsys.readouterr().out
    assert token.exists()


def test_an_engine_is_named_as_ps_names_it(
    registered: Callable[..., Record], capsys: Captured
) -> None:
    registered()
    assert outcome(["set", "demo", "k=3"]) == 3
    assert "http://127.0.0.1:9 refuses connections" in one_line(capsys)


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_https_where_the_record_has_http_is_refused_and_not_asked_in_the_clear(
    scheme: str, registered: Callable[..., Record], capsys: Captured
) -> None:
    registered()
    assert outcome(["watch", f"{scheme}://127.0.0.1:9", "--count", "1"]) == 2
    said = "specdeck: `specdeck ps` has demo with http, not https: give http://127.0.0.1:9\n"
    assert one_line(capsys) == said


def test_an_engine_that_has_ended_says_nothing_of_who_has_its_port(
    registered: Callable[..., Record], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered()
    monkeypatch.setattr(Record, "life", lambda self: "gone")
    assert outcome(["watch", "https://127.0.0.1:9", "--count", "1"]) == 3
    assert "https://127.0.0.1:9" in capsys.readouterr().err


def test_a_token_file_without_a_token_is_refused_though_there_is_another_token(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECK_ADMIN_TOKEN", "another")
    file = tmp_path / "token"
    file.write_text("\n")
    file.chmod(0o600)
    assert outcome(["set", "127.0.0.1:9", "k=3", "--admin-token-file", str(file)]) == 2
    assert f"{file} holds no admin token" in one_line(capsys)


@pytest.mark.parametrize("words", [["watch"], ["doctor"], ["set", "k=3"], ["sweep"], ["check"]])
@pytest.mark.parametrize("name", ["SPECDECK_ADMIN_TOKEN", "MY_KEY"])
@pytest.mark.parametrize("held", [b"geheim-sch\xc3\xb6n", b"geheim\xff", b"ge\nheim"])
def test_a_secret_that_no_request_can_carry_is_wrong_usage_and_not_quoted(
    words: list[str],
    name: str,
    held: bytes,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    registered: Callable[..., Record],
) -> None:
    registered()
    monkeypatch.setenv("MY_KEY", "good")
    monkeypatch.setenv(name, os.fsdecode(held))
    command, *rest = words
    assert outcome([command, "127.0.0.1:9", *rest, "--api-key-env", "MY_KEY", "--debug"]) == 2
    said = capsys.readouterr().err
    assert f"in {name} is not printable ASCII" in said.splitlines()[-1]
    assert "heim" not in said


def test_an_inherited_key_that_no_request_can_carry_is_wrong_usage(
    registered: Callable[..., Record], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered()
    monkeypatch.setenv("VLLM_API_KEY", "geheim-schön")
    assert outcome(["watch", "demo"]) == 2
    assert "the API key in VLLM_API_KEY is not printable ASCII" in one_line(capsys)


def test_a_closed_pipe_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "specdeck", "ps", "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=30,
    )
    os.close(writing)
    assert done.returncode == 0
    assert done.stderr == b""


def test_an_interrupt_is_130_and_silent() -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "specdeck", "watch", "127.0.0.1:9", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["up"] is False
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=30)
    assert (watching.returncode, said) == (130, "")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from specdeck.console.cli.main import outcome; outcome(['--help']); "
        "heavy = {'textual', 'httpx', 'pydantic', 'yaml', 'psutil', 'asyncio', 'sqlite3'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stderr.strip() == "[]"


def test_waiting_for_an_end_is_told_now_and_then(capsys: Captured) -> None:
    tell = StopReporter("demo")
    for tenth in range(100):
        tell(Stopping(tenth / 10, 1 if tenth > 50 else 2, killed=tenth > 15))
    assert capsys.readouterr().err.splitlines() == [
        "demo: waiting for 2 processes, 1 s",
        "demo: killing 1 process, 6 s",
    ]


def test_a_defect_is_one_line_and_no_failed_check(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def broken(self: Registry, text: str) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(Registry, "find", broken)
    assert outcome(["stop", "demo"]) == 70
    said = one_line(capsys)
    assert "unexpected ZeroDivisionError: by zero: --debug shows where" in said
    assert outcome(["stop", "demo", "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_full_disk_is_no_failed_check(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def full(self: Registry, text: str) -> None:
        raise SpecdeckError("the disk is full")

    monkeypatch.setattr(Registry, "find", full)
    assert outcome(["stop", "demo"]) == 70
    assert one_line(capsys) == "specdeck: the disk is full\n"


def test_a_preflight_error_names_its_config_once(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "a.yaml"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config.write_text(f"model: /nowhere/at/all\nport: {port}\n")
    assert outcome(["run", str(config), "--headless"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.count(str(config)) == 1
    assert f"{config}:1" in said


def test_a_store_of_a_newer_specdeck_is_refused_with_the_reason(
    home: Path, capsys: Captured
) -> None:
    home.joinpath("data").mkdir(parents=True)
    newer = sqlite3.connect(home / "data" / "specdeck.sqlite")
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    assert outcome(["check", "http://127.0.0.1:9", "--history"]) == 2
    said = one_line(capsys)
    assert "was written by a newer specdeck (schema 99, this one " in said
    assert "update specdeck" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("doctr",), "No such command 'doctr', did you mean 'doctor'"),
        (("export", "nofile.db"), "nofile.db: no such file"),
        (("export", "nofile.zip"), "nofile.zip: no such file"),
        (("demo", "--port", "80x"), "'80x' is no port: a number up to 65535, or auto"),
        (("run", "a.yaml", "--port", "65536"), "'65536' is no port: a number up to 65535, or auto"),
    ],
)
def test_what_was_mistyped_is_told_as_it_was_typed(
    line: tuple[str, ...], said: str, capsys: Captured
) -> None:
    assert outcome(line) == 2
    assert said in one_line(capsys)


def test_what_is_no_black_box_is_left_where_it_is(tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "README.md"
    page.write_text("A page of text, and nothing of SQLite's. " * 9)
    assert outcome(("export", str(page))) == 2
    said = one_line(capsys)
    assert "not a database" in said
    assert "move it" not in said


def test_no_load_is_put_where_nothing_listens(capsys: Captured) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert outcome(("load", f"127.0.0.1:{port}")) == 3
    assert "refuses connections" in one_line(capsys)


def test_debug_quotes_nothing_of_a_config_with_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text('kv_transfer_config: {password: hunter2-hunter2, a: "b\nalerts: {}\n')
    assert outcome(["watch", str(config), "--debug"]) == 2
    said = capsys.readouterr()
    assert "not valid YAML" in said.err
    assert "hunter2" not in said.err + said.out


class Interrupted:
    """A signal comes as it is described."""

    def __repr__(self) -> str:
        raise KeyboardInterrupt


class InterruptedField:
    """The same as the class that it is part of is made."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


def build_schema() -> None:
    SchemaValidator(core_schema.with_default_schema(core_schema.literal_schema([Interrupted()])))


def build_class() -> None:
    type("Built", (), {"field": InterruptedField()})


@pytest.mark.parametrize("build", [build_schema, build_class])
def test_a_signal_of_which_a_library_makes_another_error_has_interrupted(
    build: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(Registry, "find", lambda self, text: build())
    assert outcome(["stop", "demo"]) == 130
    assert capsys.readouterr() == ("", "")
