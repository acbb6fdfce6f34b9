"""Which files changed since an engine began to start, by what their file system keeps of them."""

import os
import shutil
import time
from pathlib import Path

import pytest

from specdeck.engine.fingerprint.start_changes import StartChanges

TICK_S = 0.02
"""Longer than one tick of a file system's clock."""


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "models" / "target" / "model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"honest")
    return path


def begin() -> StartChanges:
    time.sleep(TICK_S)
    began = time.time()
    time.sleep(TICK_S)
    return StartChanges(began)


def test_what_was_there_before_has_not_changed(weights: Path) -> None:
    link = weights.parent.parent / "current"
    link.symlink_to("target")
    changes = begin()
    (weights.parent.parent / "another model").mkdir()  # beside it, as downloads come
    weights.read_bytes()
    assert changes.describe(weights) is None
    assert changes.describe(link / weights.name) is None
    assert changes.describe(weights.parent, entries=True) is None


def test_a_change_is_told_with_its_time(weights: Path) -> None:
    changes = begin()
    weights.write_bytes(b"altered")
    said = changes.describe(weights)
    assert said is not None
    assert said.startswith("changed at ")
    assert said.endswith(", after the engine began to start")
    assert time.strftime("%Y-%m-%dT%H:", time.gmtime(weights.stat().st_mtime)) in said


def test_a_file_of_an_old_age_that_is_moved_into_place_has_changed(weights: Path) -> None:
    shutil.copy2(weights, aside := weights.with_suffix(".aside"))
    os.utime(aside, (1_000_000_000, 1_000_000_000))
    changes = begin()
    aside.rename(weights)
    assert weights.stat().st_mtime == 1_000_000_000
    assert changes.describe(weights)


def test_a_folder_that_is_moved_into_place_has_changed(weights: Path) -> None:
    folder = weights.parent
    shutil.copytree(folder, altered := folder.with_name("altered"))
    changes = begin()
    folder.rename(folder.with_name("old"))
    altered.rename(folder)
    assert changes.describe(weights) is None  # the file itself has stayed as it was
    assert changes.describe(folder, entries=True)


def test_a_file_that_was_taken_away_has_changed_its_folder(weights: Path) -> None:
    (more := weights.with_name("model-2.safetensors")).write_bytes(b"two")
    changes = begin()
    more.unlink()
    assert changes.describe(weights.parent, entries=True)
    assert changes.describe(weights) is None


@pytest.mark.parametrize(
    ("kind", "is_told"),
    [("fuse.rclone remote: rw", False), ("fuseblk /dev/sdb rw", False), ("ext4 /dev/sda rw", True)],
)
def test_the_age_of_a_folder_says_nothing_on_fuse(weights: Path, kind: str, is_told: bool) -> None:
    device = weights.stat().st_dev
    place = f"{os.major(device)}:{os.minor(device)}"
    mounts = f"\n1 2\n30 1 999:9 / / rw - fuse x rw\n36 30 {place} / /m rw shared:1 - {kind}\n"
    changes = StartChanges(0.0, lambda path: mounts if "mountinfo" in path else None)
    assert bool(changes.describe(weights.parent, entries=True)) is is_told
    assert changes.describe(weights)
    assert StartChanges(0.0, lambda path: None).describe(weights.parent, entries=True)


@pytest.mark.parametrize("way", ["current", "by-name"])
def test_a_link_on_the_way_that_leads_elsewhere_has_changed(weights: Path, way: str) -> None:
    models = weights.parent.parent
    shutil.copytree(weights.parent, models / "next")
    (models / "current").symlink_to("target")
    (models / "by-name").symlink_to("current")  # a link to a link
    changes = begin()
    (models / "swap").symlink_to("next")
    (models / "swap").rename(models / "current")
    assert changes.describe(models / way / weights.name)
    assert changes.describe(models / way, entries=True)
    assert changes.describe(weights) is None


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    changes = begin()
    assert changes.describe(tmp_path / "a" / "model.safetensors") is None


@pytest.mark.parametrize("name", ["absent", "x" * 5_000, "a\0b"])
def test_what_is_not_there_has_not_changed(tmp_path: Path, name: str) -> None:
    assert StartChanges(0.0).describe(tmp_path / name) is None


def test_without_a_begin_nothing_has_changed(weights: Path) -> None:
    assert StartChanges(None).describe(weights) is None
    assert StartChanges(0.0).describe(weights)


def test_the_first_of_several_is_told(weights: Path) -> None:
    changes = begin()
    assert changes.describe_any([weights]) is None
    (late := weights.with_name("late.json")).write_text("{}")
    assert changes.describe_any([weights, late]) == changes.describe(late)
