"""Writers that are killed at random moments: nothing committed is lost, and the file opens."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.killed_writer import kill_writers


def test_nothing_committed_is_lost(tmp_path: Path) -> None:
    assert sum(kill_writers(tmp_path / "a.db", 10, random.Random(15))) > 10
