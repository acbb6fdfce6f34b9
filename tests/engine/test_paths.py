"""The folders of one user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from specdeck.engine.errors import UsageError
from specdeck.engine.paths import locations, private


def test_whatever_the_umask_a_folder_and_what_it_lies_in_are_its_owners(tmp_path: Path) -> None:
    folder, before = tmp_path / "a" / "b" / "c", os.umask(0)
    try:
        assert private(folder) == private(folder) == folder
    finally:
        os.umask(before)
    for one in (folder, *folder.parents[:2]):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700


def test_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(OSError):  # noqa: PT011  # of several kinds
            private(folder)


def test_a_user_without_a_home_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(path: str) -> str:
        return path

    for name in [one for one in os.environ if one.startswith("XDG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os.path, "expanduser", no_home)
    with pytest.raises(UsageError, match="no home folder"):
        locations({})


def test_the_home_of_nobody_is_one_line() -> None:
    with pytest.raises(UsageError, match="SPECDECK_HOME"):
        locations({"SPECDECK_HOME": "~nobody-of-this-name/deck"})
