"""Digests of files: remembered while they stay, read anew when they change."""

import hashlib
import os
from pathlib import Path

import pytest

from specdeck.engine.fingerprint.digest import Digests, FileChanged, Signature, sha256

LATER = 4e9
"""Unix time long after the test: every file has settled."""


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"w" * 3_000_000)
    return path


def digests(tmp_path: Path, now: float = LATER) -> Digests:
    return Digests(tmp_path / "cache" / "digests.json", wall=lambda: now)


def reads(digests: Digests, path: Path) -> bool:
    """Whether the file has to be read."""
    return digests.find(Signature.of(path)) is None


def test_the_digest_is_the_contents(weights: Path) -> None:
    counts: list[int] = []
    assert sha256(weights, counts.append) == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert sum(counts) == 3_000_000
    assert len(counts) == 3


def test_a_file_is_read_once(tmp_path: Path, weights: Path) -> None:
    first = digests(tmp_path)
    found = first.of(weights)
    first.save()
    second = digests(tmp_path)
    assert not reads(second, weights)
    assert second.of(weights) == found


def test_a_swap_in_place_is_noticed_even_with_the_old_time_and_size(
    tmp_path: Path, weights: Path
) -> None:
    first = digests(tmp_path)
    before = first.of(weights)
    first.save()
    old = weights.stat()
    with weights.open("r+b") as file:
        file.seek(1000)
        file.write(b"x")
    os.utime(weights, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert weights.stat().st_mtime_ns == old.st_mtime_ns
    second = digests(tmp_path)
    assert reads(second, weights)
    assert second.of(weights) != before


def test_a_file_that_may_still_change_is_not_remembered(tmp_path: Path, weights: Path) -> None:
    first = digests(tmp_path, now=weights.stat().st_mtime + 1)
    first.of(weights)
    first.save()
    assert reads(digests(tmp_path), weights)


def test_a_file_written_while_it_is_read_has_no_digest(tmp_path: Path, weights: Path) -> None:
    def touch(_: int) -> None:
        os.utime(weights, (1, 1))

    with pytest.raises(FileChanged, match="while it was read"):
        digests(tmp_path).of(weights, touch)


def test_a_broken_cache_is_done_without(tmp_path: Path, weights: Path) -> None:
    cache = tmp_path / "cache" / "digests.json"
    cache.parent.mkdir()
    cache.write_text('{"a": 1, "b": [], broken')
    found = digests(tmp_path)
    found.of(weights)
    found.save()
    assert not reads(digests(tmp_path), weights)


def test_two_engines_keep_each_others_digests(tmp_path: Path, weights: Path) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"o")
    first, second = digests(tmp_path), digests(tmp_path)
    first.of(weights)
    second.of(other)
    first.save()
    second.save()
    third = digests(tmp_path)
    assert not reads(third, weights)
    assert not reads(third, other)
