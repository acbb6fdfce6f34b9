"""Where a report can be written, as far as it shows beforehand."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
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


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    report.save_file(path, "the last one")
    link = tmp_path / "link.md"
    link.symlink_to(path)
    report.save_file(link, "this one")
    assert link.is_symlink()
    assert path.read_text() == "this one"

    with limited_size(4), pytest.raises(UsageError, match="file too large"):
        report.save_file(path, "one that no disk takes")
    assert path.read_text() == "this one"
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_a_report_goes_into_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    report.save_file(path, "{}")
    assert os.read(reading, 9) == b"{}"
    os.close(reading)


@contextmanager
def limited_size(size: int) -> Iterator[None]:
    """No file becomes larger, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
