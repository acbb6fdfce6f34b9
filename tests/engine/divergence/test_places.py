"""Where a report can be written, as far as it shows beforehand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specdeck.engine.divergence import report
from specdeck.engine.errors import UsageError


def test_a_file_that_is_replaced_wants_its_folders_leave_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "specdeck.prom"
    path.touch()
    monkeypatch.setattr(os, "access", lambda asked, _: asked != path)  # root may write anywhere
    report.refuse_place(path, replaced=True)
    with pytest.raises(UsageError, match="permission denied"):
        report.refuse_place(path)
