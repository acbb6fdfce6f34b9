"""Files that are replaced whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specdeck.engine.files import ABANDONED_S, replace_file


def test_what_killed_writers_left_is_removed_and_what_is_being_written_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "digests.json"
    old, young = tmp_path / ".digests.json.11", tmp_path / ".digests.json.12"
    for left in (old, young):
        left.write_text("half")
    then = old.stat().st_mtime - ABANDONED_S - 60
    os.utime(old, (then, then))
    replace_file(path, "whole")
    assert path.read_text() == "whole"
    assert sorted(p.name for p in tmp_path.iterdir()) == [young.name, path.name]


def test_a_failed_write_leaves_the_old_text_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "pin.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(path, "text")
    assert list(tmp_path.iterdir()) == [path]
