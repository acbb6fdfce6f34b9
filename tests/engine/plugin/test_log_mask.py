"""What an engine with a secret among its arguments logs."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from uvicorn.logging import AccessFormatter

from specdeck.engine.plugin.log_mask import mask_logs
from specdeck.engine.plugin.secret_values import format_values
from specdeck.engine.protocol.messages import MASK_VARIABLE

ASKED = {"SPECDECK_MASK_LOGS": "1"}


@pytest.fixture(autouse=True)
def factory(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Python's own again after the test, and the streams as they were."""
    before = logging.getLogRecordFactory()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    yield before
    logging.setLogRecordFactory(before)


ENGINE = """
import logging, multiprocessing, sys
from specdeck.engine.plugin.log_mask import mask_logs

ARGS = {"extra": {"store_password": "hush", "seed": 1}}

def fail():
    mask_logs()
    print("worker", ARGS)
    raise ValueError(f"cannot use {ARGS}")

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    mask_logs()
    try:
        raise KeyError(str(ARGS))
    except KeyError:
        logging.exception("the engine core failed")
    child = multiprocessing.get_context("spawn").Process(target=fail)
    child.start()
    child.join()
    fail()
"""


@pytest.mark.parametrize(("environment", "masked"), [(ASKED, True), ({}, False)])
def test_a_traceback_and_what_is_printed_hold_no_credential(
    environment: dict[str, str], masked: bool, tmp_path: Path
) -> None:
    """Of the engine core's processes, of logging's own tracebacks and of one that ends Python."""
    program = tmp_path / "engine.py"
    program.write_text(ENGINE)
    done = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert ("hush" not in said) is masked
    assert said.count("'seed': 1") == 5
    assert said.count("Traceback (most recent call last):") == 3


def test_no_credential_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    mask_logs(ASKED)
    mask_logs(ASKED)
    args = {"extra": {"store_password": "hush"}, "seed": 1}
    logging.getLogger("vllm").warning("non-default args: %s", args)
    assert "hush" not in caplog.text
    assert "'seed': 1" in caplog.text


class Wordless:
    """What has no words, and says a secret as it fails."""

    def __str__(self) -> str:
        raise RuntimeError("store_password=hush")


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        ("password=%s of %s", ("hush", Wordless())),
        ("password=%s of %d", ("hush", "x")),
        ("password=%s", ("hush", "hush")),
        ("%(password)s of %(nothing)s", ({"password": "hush"},)),
        (Wordless(), ()),
    ],
)
def test_what_cannot_be_put_in_words_neither_raises_nor_shows_a_credential(
    form: object, arguments: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    mask_logs(ASKED)
    log, written = logging.Logger("engine"), io.StringIO()
    log.addHandler(logging.StreamHandler(written))
    log.warning(form, *arguments)
    said = written.getvalue() + capsys.readouterr().err
    assert "hush" not in said
    assert "no words came of its arguments" in said


def test_a_value_without_its_name_is_neither_logged_nor_printed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, out = tmp_path / "token.yaml", io.StringIO()
    file.write_text(format_values(["PLANTpw12345"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        mask_logs({MASK_VARIABLE: str(file)})
        print("password", "PLANTpw12345")
        print("{'kv_connector': 'Offload...sword': 'PLANTpw12345'}}", "'...w12345'")
    logging.getLogger("vllm").warning("refused: %s", "PLANTpw12345")
    assert caplog.messages == ["refused: ***"]
    assert "12345" not in out.getvalue()


def test_a_record_that_is_taken_apart_later_keeps_its_arguments() -> None:
    mask_logs(ASKED)
    line = ("1.2.3.4:5", "GET", "/v1/models?api_key=hushhushhush", "1.1", 200)
    make = logging.getLogRecordFactory()
    record = make("uvicorn.access", logging.INFO, "", 1, '%s - "%s %s HTTP/%s" %d', line, None)
    assert isinstance(record.args, tuple)
    client, method, path, *others = record.args
    assert (client, method, others) == ("1.2.3.4:5", "GET", ["1.1", 200])
    assert "hush" not in f"{path}{record.getMessage()}"


def test_a_long_path_is_shortened_in_the_access_log(capsys: pytest.CaptureFixture[str]) -> None:
    mask_logs(ASKED)
    log, written = logging.Logger("uvicorn.access"), io.StringIO()
    log.addHandler(logging.StreamHandler(written))
    words = '%(client_addr)s - "%(request_line)s" %(status_code)s'
    log.handlers[0].setFormatter(AccessFormatter(words, use_colors=False))
    path, began = f"/v1/models?</{'env=key=' * 8_000}", time.process_time()
    log.info('%s - "%s %s HTTP/%s" %d', "1.2.3.4:5", "GET", path, "1.1", 401)
    assert time.process_time() - began < 0.5
    said = written.getvalue()
    assert said.endswith(' more characters) HTTP/1.1" 401 Unauthorized\n')
    assert len(said) < 2_200
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("client", "path"),
    [("1.2.3.4:5", "/x?password="), ("1.2.3.4:5", "/x?secret={"), ("9" * 3_000, "/y" * 1_500)],
)
def test_no_request_takes_the_access_log_its_arguments(client: str, path: str) -> None:
    mask_logs(ASKED)
    make = logging.getLogRecordFactory()
    line = (client, "GET", path, "1.1", 200)
    record = make("uvicorn.access", logging.INFO, "", 1, '%s - "%s %s HTTP/%s" %d', line, None)
    assert isinstance(record.args, tuple)
    assert (len(record.args), record.args[1], record.args[4]) == (5, "GET", 200)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [("GET /x?password=hushhushhush", ()), ("GET /x?password=hushhushhush %s", ("200",))],
)
def test_another_line_of_the_access_log_is_masked_as_any_is(
    words: str, arguments: tuple[object, ...]
) -> None:
    mask_logs(ASKED)
    make = logging.getLogRecordFactory()
    record = make("uvicorn.access", logging.INFO, "", 1, words, arguments, None)
    assert "hush" not in f"{record.msg}{record.args}{record.getMessage()}"


@pytest.mark.parametrize("words", ["%s", "x"])
def test_a_name_masks_up_to_the_place_where_a_message_is_cut(
    caplog: pytest.LogCaptureFixture, words: str
) -> None:
    mask_logs(ASKED)
    said, longest = "('password', b'hushhushhush'", 2_048 if words == "%s" else 4_096
    text = ("x " * longest)[: longest - len(said)] + said + " tail" * 2_000
    logging.getLogger("vllm").warning(*((words, text) if words == "%s" else (text,)))
    assert "x … (" not in caplog.messages[-1]
    assert "hush" not in caplog.messages[-1]


@pytest.mark.parametrize("words", ["%s", "x"])
def test_no_part_of_a_value_is_shown_where_a_message_is_shortened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    file, secret = tmp_path / "engine.yaml", "PLANTED-correct-horse-battery"
    file.write_text(format_values([secret]))
    mask_logs({MASK_VARIABLE: str(file)})
    file.unlink()
    longest = 2_048 if words == "%s" else 4_096
    for before in range(longest - 40, longest + 80):
        text = f"{secret} {'x ' * before}"[:before] + secret + "y " * 5_000
        logging.getLogger("vllm").warning(*((words, text) if words == "%s" else (text,)))
        assert "PLANT" not in caplog.messages[-1]
        assert "more characters)" in caplog.messages[-1]


def test_what_an_engine_is_started_with_is_logged_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(format_values(["PLANTpw12345"]))
    mask_logs({MASK_VARIABLE: str(file)})
    config = f"{'x=1, ' * 4_000}end"
    for words in (("config: %s", config), (f"config: {config}",)):
        logging.getLogger("vllm").warning(*words)
        assert caplog.messages[-1] == f"config: {config}"
    file.unlink()
    logging.getLogger("vllm").warning(f"config: {config}")
    assert caplog.messages[-1].endswith(f"… ({len(config) + 8 - 4_096} more characters)")


@pytest.mark.parametrize(
    ("unit", "end"),
    [*((unit, " more characters), api_key=***") for unit in (" ", "password: #", "x")),
     ("password: [", "***")],
)  # fmt: skip
def test_what_a_client_has_logged_holds_nobody_up(
    caplog: pytest.LogCaptureFixture, unit: str, end: str
) -> None:
    mask_logs(ASKED)
    asked, began = unit * (1_000_000 // len(unit)), time.process_time()
    logging.getLogger("vllm").warning("no model password=%s, api_key=sk-planted", asked)
    print("no model password=", asked, "api_key=sk-planted")
    assert time.process_time() - began < 10.0
    said = caplog.messages[-1]
    assert said.startswith("no model password=")
    assert "planted" not in said
    assert len(said) < 3_000
    assert said.endswith(end)


def test_without_a_secret_nothing_is_looked_through(factory: object) -> None:
    mask_logs({})
    assert logging.getLogRecordFactory() is factory
