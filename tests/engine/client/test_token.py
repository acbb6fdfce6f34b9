from __future__ import annotations

import os
from pathlib import Path

import pytest

from specdeck.engine.client.secret import Secret
from specdeck.engine.client.token import admin_token, refuse_unfit
from specdeck.engine.errors import UsageError


def test_the_environment_comes_before_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert admin_token({"SPECDECK_ADMIN_TOKEN": "from-env"}, file)() == Secret("from-env")
    assert admin_token({"SPECDECK_ADMIN_TOKEN": ""}, None, file)() == Secret("from-file")


def test_a_token_that_comes_later_is_found(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = admin_token({}, file)
    assert token() is None
    file.write_text("here")
    assert token() == Secret("here")


def test_a_file_that_holds_no_token_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "good").write_text("good")
    files = (tmp_path / name for name in ("binary", "empty", "good"))
    assert admin_token({}, *files)() == Secret("good")


@pytest.mark.parametrize("held", [b"", b"\n \n", b"\xff\x00secret"])
def test_a_named_file_without_a_token_is_refused_and_not_quoted(
    held: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_bytes(held)
    file.chmod(0o600)
    with pytest.raises(UsageError) as refusal:
        refuse_unfit(file)
    assert str(file) in refusal.value.line()
    assert "secret" not in refusal.value.line()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_named_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(mode)
    with pytest.raises(UsageError, match="others can read") as refusal:
        refuse_unfit(file)
    assert refusal.value.remedy == f"chmod 600 {file}"
    file.chmod(0o400)
    refuse_unfit(file)


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    """Nobody writes into it: opening it would block for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file") as refusal:
        refuse_unfit(pipe)
    assert refusal.value.remedy == "name a file, or put the token in SPECDECK_ADMIN_TOKEN"
    assert admin_token({}, pipe)() is None


def test_a_device_without_an_end_holds_no_token() -> None:
    """It was read until the memory was full."""
    assert admin_token({}, Path("/dev/zero"))() is None
