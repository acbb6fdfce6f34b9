"""Where a report can be written, as far as it shows beforehand."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specdeck.engine import files
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


def test_a_pipe_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "baseline.json")
    for special in (path, Path("/dev/null")):
        with pytest.raises(UsageError, match=f"{special}: not a regular file"):
            report.refuse_place(special, replaced=True)
        report.refuse_place(special)  # what is written into it reaches who reads it


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


@pytest.mark.parametrize("named", ["report.md", "folder/report.md", "chain.md"])
def test_a_link_of_another_user_leads_no_report_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    kept = own / "report.md"
    kept.write_text("the operator's own")
    (tmp_path / "folder").symlink_to(own)
    (tmp_path / "report.md").symlink_to(kept)
    (tmp_path / "chain.md").symlink_to(tmp_path / "report.md")
    somebody = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody)
    for link in ("folder", "report.md", "chain.md"):
        os.chown(tmp_path / link, os.getuid() or 23456, -1, follow_symlinks=False)
    with pytest.raises(UsageError, match="a link of another user"):
        report.save_file(tmp_path / named, "a report")
    assert kept.read_text() == "the operator's own"


def test_links_in_a_circle_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.md").symlink_to(tmp_path / "b.md")
    (tmp_path / "b.md").symlink_to(tmp_path / "a.md")
    with pytest.raises(UsageError, match="too many levels"):
        report.save_file(tmp_path / "a.md", "a report")


def test_a_report_goes_where_links_of_its_writer_lead(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "folder").symlink_to("there")
    (tmp_path / "there" / "link.md").symlink_to("../report.md")
    report.save_file(tmp_path / "folder" / "link.md", "a report")
    assert (tmp_path / "report.md").read_text() == "a report"


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


@pytest.mark.parametrize("is_open", [False, True])
def test_a_pipe_that_nobody_reads_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_open: bool
) -> None:
    monkeypatch.setattr(files, "STREAM_S", 0.2)
    pipe, kept = tmp_path / "report.md", []
    os.mkfifo(pipe)
    if is_open:
        kept.append(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    began = time.monotonic()
    with pytest.raises(UsageError, match="nobody reads it"):
        report.save_file(pipe, "x" * 1_000_000)
    assert time.monotonic() - began < 2
    for one in kept:
        os.close(one)


def test_a_pipe_gets_the_whole_report(tmp_path: Path) -> None:
    read, write = os.pipe()
    found: list[bytes] = []

    def take() -> None:
        with open(read, "rb") as file:
            found.append(file.read())

    reader = threading.Thread(target=take)
    reader.start()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{write}")  # as a shell's >(…) and /dev/stdout
    report.save_file(tmp_path / "link", "x" * 300_000)
    os.close(write)
    reader.join()
    assert found == [b"x" * 300_000]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user")
def test_no_pipe_of_another_user_gets_a_report(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "report.md"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    os.lchown(link, 12345, 12345)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(UsageError, match="another user"):
        report.save_file(link, "secret")
    os.close(reader)
