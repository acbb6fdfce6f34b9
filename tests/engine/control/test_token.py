from __future__ import annotations

from pathlib import Path

from specdeck.engine.control.token import admin_token


def test_the_environment_comes_before_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert admin_token({"SPECDECK_ADMIN_TOKEN": "from-env"}, file)() == "from-env"
    assert admin_token({"SPECDECK_ADMIN_TOKEN": ""}, None, file)() == "from-file"


def test_a_token_that_comes_later_is_found(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = admin_token({}, file)
    assert token() is None
    file.write_text("here")
    assert token() == "here"


def test_a_file_that_holds_no_token_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "good").write_text("good")
    files = (tmp_path / name for name in ("binary", "empty", "good"))
    assert admin_token({}, *files)() == "good"
