"""The file of an incident: written whole, and opened without trusting it."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from specdeck.engine.errors import ConfigError, UsageError
from specdeck.engine.incident import archive
from specdeck.engine.incident.archive import extract_recording, is_archive, write_archive

MEMBERS: dict[str, bytes | Path] = {"recording.db": b"db" * 100, "incident.md": b"# page"}


def test_it_is_for_its_owner_in_order_and_the_same_each_time(tmp_path: Path) -> None:
    one, other = tmp_path / "a.zip", tmp_path / "b.zip"
    size = write_archive(one, MEMBERS)
    write_archive(other, dict(reversed(MEMBERS.items())))
    assert one.read_bytes() == other.read_bytes()
    assert size == one.stat().st_size
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    with zipfile.ZipFile(one) as found:
        assert found.namelist() == ["incident.md", "recording.db"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "b.zip"]
    assert is_archive(one)


def test_nothing_is_written_over_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        write_archive(path, MEMBERS)
    assert path.read_text() == "mine"
    write_archive(path, MEMBERS, force=True)
    assert is_archive(path)
    link = tmp_path / "link.zip"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        write_archive(link, MEMBERS)


def test_a_file_that_cannot_be_written_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_archive(tmp_path / "a.zip", {"recording.db": tmp_path / "gone"})
    assert list(tmp_path.iterdir()) == []


def test_the_recording_comes_back(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.zip", MEMBERS)
    with extract_recording(tmp_path / "a.zip") as found:
        assert found.read_bytes() == b"db" * 100
        assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert not found.exists()


def test_only_the_recording_is_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("../../outside", "x")
        made.writestr("/tmp/outside", "x")
        made.writestr("recording.db", "fine")
    with extract_recording(path) as found:
        assert [one.name for one in found.parent.iterdir()] == ["recording.db"]
    assert not (tmp_path / "outside").exists()


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST_RECORDING", 100_000)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("recording.db", bytes(5_000_000))
    with pytest.raises(ConfigError, match="beyond all bounds"), extract_recording(path):
        pass
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 24, 10)  # a header that says it is small
    path.write_bytes(data)
    with pytest.raises(ConfigError), extract_recording(path):
        pass


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_of_another_kind_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    def unpack(*values: object, **more: object) -> None:
        raise AssertionError("asked to unpack it, which has no bound")

    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", kind) as made:
        made.writestr("recording.db", bytes(100_000))
    monkeypatch.setattr(zipfile, "_get_decompressor", unpack)
    with pytest.raises(ConfigError, match="compressed"), extract_recording(path):
        pass


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"no zip at all", b"PK\x05\x06" + bytes(18), b"PK\x05\x06" * 9],
)
def test_what_is_no_incident_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as raised, extract_recording(path):
        pass
    assert "\n" not in raised.value.line()


def test_a_long_list_of_members_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as made:
        for n in range(6_000):
            made.writestr(f"{n}", b"")
    with pytest.raises(ConfigError, match="too many members"), extract_recording(path):
        pass


def test_two_recordings_and_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("recording.db", "a")
        with pytest.warns(UserWarning, match="Duplicate"):
            made.writestr("recording.db", "b")
    with pytest.raises(ConfigError), extract_recording(path):
        pass
    write_archive(tmp_path / "b.zip", {"incident.md": b""})
    with (
        pytest.raises(ConfigError, match="nothing was recorded"),
        extract_recording(tmp_path / "b.zip"),
    ):
        pass


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    write_archive(path, MEMBERS)
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02", data.find(b"PK\x01\x02") + 1)
    data[at + 8] |= 1
    first = data.find(b"PK\x03\x04", 4)
    data[first + 6] |= 1
    path.write_bytes(data)
    with pytest.raises(ConfigError), extract_recording(path):
        pass


def test_a_folder_is_refused(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "a.zip")
    with pytest.raises(ConfigError), extract_recording(tmp_path / "a.zip"):
        pass
