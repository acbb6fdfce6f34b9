"""The admin token: private, shared by one engine's processes, compared whole."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.paths import locations
from specdeck.engine.plugin.admin_token import (
    default_token_file,
    ensure_token_file,
    is_accepted,
    write_token,
)
from specdeck.engine.protocol.messages import TOKEN_FILE_VARIABLE


def test_a_token_file_is_its_owners_only(tmp_path: Path) -> None:
    environment = {"SPECDECK_HOME": str(tmp_path)}
    path = ensure_token_file(8000, environment)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert environment[TOKEN_FILE_VARIABLE] == str(path)


@pytest.mark.parametrize("relative", ["state", "./state", "~/state", " "])
def test_a_relative_state_folder_counts_for_nothing(
    relative: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token would lie in whichever folder the engine was started, and no console find it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", relative)
    monkeypatch.delenv("SPECDECK_HOME", raising=False)
    found = default_token_file(8000, os.environ)
    assert found == tmp_path / "home" / ".local" / "state" / "specdeck" / "tokens" / "port-8000"
    assert found.parent == locations(os.environ).tokens


def test_whatever_the_umask_nobody_else_can_put_another_folder_there(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = ensure_token_file(8000, {"XDG_STATE_HOME": str(tmp_path / "local" / "state")})
    finally:
        os.umask(before)
    made = [one for one in path.parents if one.is_relative_to(tmp_path) and one != tmp_path]
    assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o700] * 4


def test_the_api_servers_of_one_engine_share_a_token(tmp_path: Path) -> None:
    first = ensure_token_file(8000, {"SPECDECK_HOME": str(tmp_path)})
    token = first.read_text()
    second = ensure_token_file(8000, {"SPECDECK_HOME": str(tmp_path)})
    assert (second, second.read_text()) == (first, token)


CHILDREN = """
import multiprocessing, sys
from specdeck.engine.plugin.admin_token import ensure_token_file

def read(home):
    return ensure_token_file(8000, {"SPECDECK_HOME": home}).read_text()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(*pool.map(read, [sys.argv[1]] * 4, chunksize=1), sep="\\n")
"""


def test_an_engines_api_servers_share_a_token_and_the_next_engine_has_another(
    tmp_path: Path,
) -> None:
    program = tmp_path / "engine.py"
    program.write_text(CHILDREN)
    lives = [
        set(
            subprocess.run(
                [sys.executable, str(program), str(tmp_path)],
                capture_output=True, text=True, check=True, timeout=60,
            ).stdout.split()
        )
        for _ in range(2)
    ]  # fmt: skip
    assert [len(tokens) for tokens in lives] == [1, 1]
    assert not lives[0] & lives[1]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_named_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    write_token(path)
    environment = {TOKEN_FILE_VARIABLE: str(path)}
    assert is_accepted(path.read_text(), environment)
    path.chmod(mode)
    with pytest.raises(PermissionError, match="others can read"):
        ensure_token_file(8000, environment)
    assert not is_accepted(path.read_text(), environment)


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_token_that_others_read_or_that_is_empty_is_replaced(tmp_path: Path, mode: int) -> None:
    path = ensure_token_file(8000, {"SPECDECK_HOME": str(tmp_path)})
    path.write_text("leaked" if mode == 0o644 else "")
    path.chmod(mode)
    assert ensure_token_file(8000, {"SPECDECK_HOME": str(tmp_path)}) == path
    assert len(path.read_text()) > 20
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_named_file_is_left_as_it_is(tmp_path: Path) -> None:
    environment = {TOKEN_FILE_VARIABLE: str(tmp_path / "token")}
    assert ensure_token_file(8000, environment) == tmp_path / "token"
    assert not (tmp_path / "token").exists()


def test_a_token_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_token(tmp_path / "token")


def test_where_there_is_no_room_for_a_token_its_file_is_named_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fdopen = os.fdopen

    def open_full(descriptor: int, mode: str) -> Any:
        os.close(descriptor)
        return fdopen(os.open("/dev/full", os.O_WRONLY), mode)

    monkeypatch.setattr(os, "fdopen", open_full)
    with pytest.raises(OSError, match="No space left") as refusal:
        write_token(tmp_path / "token")
    assert refusal.value.filename == str(tmp_path / "token")
    assert not (tmp_path / "token").exists()


def test_only_the_whole_token_is_accepted(tmp_path: Path) -> None:
    write_token(tmp_path / "token")
    token = (tmp_path / "token").read_text()
    environment = {TOKEN_FILE_VARIABLE: str(tmp_path / "token")}
    assert is_accepted(token, environment)
    assert not is_accepted(token[:-1], environment)
    assert not is_accepted("", environment)
    assert not is_accepted(None, environment)
    assert not is_accepted("é", environment)


def test_nothing_is_accepted_without_a_token(tmp_path: Path) -> None:
    assert not is_accepted("x", {})
    assert not is_accepted("x", {TOKEN_FILE_VARIABLE: str(tmp_path / "gone")})
    (tmp_path / "empty").touch()
    assert not is_accepted("x", {TOKEN_FILE_VARIABLE: str(tmp_path / "empty")})
