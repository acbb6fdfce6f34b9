"""Where pins lie, and when one is read again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.pins import write
from specdeck.engine.fingerprint.places import APART_S, PinFile, Places, file_name

URL = "http://127.0.0.1:8000"
NAMES = st.text(max_size=30) | st.sampled_from(
    ["demo", "demo-2", "..", ".", "../../etc/passwd", "/etc/passwd", ".hidden", "a/b", "a-b", "",
     "http-127.0.0.1-8000", "https-h", "\x00", "n" * 300]
)  # fmt: skip


@given(NAMES, NAMES)
def test_a_name_becomes_a_file_in_the_folder_and_no_two_share_one(one: str, other: str) -> None:
    files = [Places(Path("/pins"), URL, name).home for name in (one, other)]
    assert all(file.parent == Path("/pins") and not file.name.startswith(".") for file in files)
    assert all(len(file.name) < 120 and "\x00" not in file.name for file in files)
    assert (files[0] == files[1]) == (one == other)
    assert files[0] != Places(Path("/pins"), URL).home


@pytest.mark.parametrize("name", ["demo", "demo-2", "llama-3.1-8b", "qwen_2"])
def test_the_names_of_engines_stay_as_they_are(name: str) -> None:
    assert file_name(name) == name


def test_a_pin_under_the_url_holds_until_there_is_one_under_the_name(
    tmp_path: Path, fingerprints: Any
) -> None:
    named, by_url = Places(tmp_path, URL, "demo"), Places(tmp_path, URL)
    assert named.found() == named.home
    write(fingerprints.seen(), by_url.home)
    assert (named.found(), named.home) == (by_url.home, tmp_path / "demo.json")
    write(fingerprints.seen(), named.home)
    assert named.found() == named.home


def test_a_pin_is_read_again_only_when_its_file_is_another_one(
    tmp_path: Path, fingerprints: Any
) -> None:
    place, first = tmp_path / "demo.json", fingerprints.seen()
    pins = PinFile(lambda: place)
    assert [found and found.seen for found in (pins.again(), pins.again())] == [None, None]
    write(first, place)
    found = pins.again()
    assert found is not None
    assert found.seen == first
    assert pins.again() is None
    write(fingerprints.seen(live__k=4), place)
    assert pins.again() is not None
    write(replace(first, t=200.0), place)
    pins.wrote(place)
    assert pins.again() is None
    place.unlink()
    gone = pins.again()
    assert gone is not None
    assert gone.seen is None


def test_a_file_that_is_no_pin_is_told_once(tmp_path: Path) -> None:
    place = tmp_path / "demo.json"
    place.write_text("{}")
    pins = PinFile(lambda: place)
    with pytest.raises(UsageError, match="is no pin"):
        pins.again()
    assert pins.again() is None


def test_a_pin_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no pin"):
        PinFile(lambda: tmp_path / "demo.json", required=True).again()


def test_a_file_is_looked_at_every_few_seconds_also_when_the_clock_is_set_back() -> None:
    pins = PinFile(lambda: Path("/nowhere"))
    begun = [t for t in range(1000, 1010) if pins.due(t)]
    assert begun == list(range(1000, 1010, int(APART_S)))
    assert pins.due(10.0)
