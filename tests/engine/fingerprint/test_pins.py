"""Pins: committed, edited, newer, gone; where they lie, and when one is read again."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.digest import checksum
from specdeck.engine.fingerprint.name import is_name, own_part
from specdeck.engine.fingerprint.pins import (
    APART_S,
    LARGEST,
    Pin,
    PinFile,
    PinPlaces,
    file_name,
    read_pin,
    write_pin,
)
from specdeck.engine.fingerprint.sources import numeric_variables

URL = "http://127.0.0.1:8000"
NAMES = st.text(max_size=30) | st.sampled_from(
    ["demo", "demo-2", "..", ".", "../../etc/passwd", "/etc/passwd", ".hidden", "a/b", "a-b", "",
     "http-127.0.0.1-8000", "https-h", "\x00", "n" * 300]
)  # fmt: skip


@pytest.fixture
def pin(tmp_path: Path, fingerprints: Any) -> Path:
    path = tmp_path / "pins" / "prod.json"
    write_pin(fingerprints.seen(), path)
    return path


def edited(pin: Path, **changed: Any) -> Path:
    body = json.loads(pin.read_text())
    pin.write_text(json.dumps({**body, **changed}))
    return pin


def test_a_pin_holds_what_was_seen(pin: Path, fingerprints: Any) -> None:
    assert read_pin(pin) == fingerprints.seen()
    assert json.loads(pin.read_text())["written"] == "1970-01-01T00:01:40+00:00"
    assert [one.name for one in pin.parent.iterdir()] == ["prod.json"]


def test_a_newer_pin_is_refused_with_the_reason(pin: Path) -> None:
    with pytest.raises(UsageError, match="is a pin of schema 2, this specdeck knows 1"):
        read_pin(edited(pin, specdeck_pin=2))


def test_a_pin_edited_by_hand_is_noticed(pin: Path) -> None:
    facts = json.loads(pin.read_text())["facts"]
    facts["live"]["k"] = 3
    with pytest.raises(UsageError, match="edited by hand"):
        read_pin(edited(pin, facts=facts))


def test_an_edit_with_a_fitting_checksum_is_noticed_by_the_names(pin: Path) -> None:
    body = json.loads(pin.read_text())
    body["facts"]["live"]["k"] = 3
    body["checksum"] = checksum(body)
    pin.write_text(json.dumps(body))
    with pytest.raises(UsageError, match="edited by hand"):
        read_pin(pin)


def test_a_name_that_does_not_follow_from_the_facts_is_not_pinned(
    fingerprints: Any, tmp_path: Path
) -> None:
    seen = fingerprints.seen()
    hidden = replace(seen, facts={**seen.facts, "engine": {"vllm": "…"}})
    with pytest.raises(UsageError, match="do not follow from its facts"):
        write_pin(hidden, tmp_path / "pin.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"specdeck_pin": 1}', "\0", '{"specdeck_pin": true}',
        '{"specdeck_pin": 1, "facts": ' + '{"a":' * 500 + "1" + "}" * 501,
        "[" * 100_000, '{"specdeck_pin": NaN}', "9" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_pin_is_said_to_be_none(pin: Path, text: str) -> None:
    pin.write_text(text)
    with pytest.raises(UsageError, match="pin"):
        read_pin(pin)


def test_a_pin_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is not a pin") as caught:
        read_pin(tmp_path / "none.json")
    assert "fingerprint pin" in str(caught.value.remedy)


def test_a_name_is_told_from_a_file() -> None:
    assert is_name("vllm-0.32.0-09d54272-sd1:p0123456789abcdef")
    assert not is_name("sd1:p0123.json")
    assert own_part("sd1:b0123456789abcdef") == "sd1:b0123456789abcdef"


def test_what_never_ends_is_no_pin(tmp_path: Path) -> None:
    endless, pipe, large = (tmp_path / name for name in ("endless", "pipe", "large"))
    endless.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    for path in (endless, pipe):
        with pytest.raises(UsageError, match="not a regular file"):
            read_pin(path)
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(UsageError, match="too large for a pin"):
        read_pin(large)


def test_a_variable_that_is_no_utf_8_can_be_named_and_pinned(
    tmp_path: Path, fingerprints: Any
) -> None:
    variables = numeric_variables({"VLLM_X": "a\udcff"})
    assert variables == {"VLLM_X": "a\\udcff"}
    seen = fingerprints.seen(environment=variables)
    write_pin(seen, tmp_path / "pin.json")
    assert read_pin(tmp_path / "pin.json").facts == seen.facts
    assert fingerprints.seen(config__x="\udcff").build != fingerprints.seen(config__x="?").build


@given(NAMES, NAMES)
def test_a_name_becomes_a_file_in_the_folder_and_no_two_share_one(one: str, other: str) -> None:
    files = [PinPlaces(Path("/pins"), URL, name).home for name in (one, other)]
    assert all(file.parent == Path("/pins") and not file.name.startswith(".") for file in files)
    assert all(len(file.name) < 120 and "\x00" not in file.name for file in files)
    assert (files[0] == files[1]) == (one == other)
    assert files[0] != PinPlaces(Path("/pins"), URL).home


@pytest.mark.parametrize("name", ["demo", "demo-2", "llama-3.1-8b", "qwen_2"])
def test_the_names_of_engines_stay_as_they_are(name: str) -> None:
    assert file_name(name) == name


def test_a_pin_under_the_url_holds_until_there_is_one_under_the_name(
    tmp_path: Path, fingerprints: Any
) -> None:
    named, by_url = PinPlaces(tmp_path, URL, "demo"), PinPlaces(tmp_path, URL)
    assert named.find() == named.home
    write_pin(fingerprints.seen(), by_url.home)
    assert (named.find(), named.home) == (by_url.home, tmp_path / "demo.json")
    write_pin(fingerprints.seen(), named.home)
    assert named.find() == named.home


def test_a_pin_is_read_again_only_when_its_file_is_another_one(
    tmp_path: Path, fingerprints: Any
) -> None:
    place, first = tmp_path / "demo.json", fingerprints.seen()
    pins = PinFile(lambda: place)
    assert pins.read_if_changed() == Pin(place, None)
    assert pins.read_if_changed() is None
    write_pin(first, place)
    found = pins.read_if_changed()
    assert found is not None
    assert found.fingerprint == first
    assert pins.read_if_changed() is None
    write_pin(fingerprints.seen(live__k=4), place)
    assert pins.read_if_changed() is not None
    write_pin(replace(first, t=200.0), place)
    pins.mark_known(place)
    assert pins.read_if_changed() is None
    place.unlink()
    gone = pins.read_if_changed()
    assert gone is not None
    assert gone.fingerprint is None


def test_an_address_keeps_its_pin_when_an_engine_of_another_name_without_one_takes_it(
    tmp_path: Path, fingerprints: Any
) -> None:
    first, other = tmp_path / "first.json", tmp_path / "other.json"
    place = first
    pins = PinFile(lambda: place)
    write_pin(fingerprints.seen(), first)
    assert pins.read_if_changed() == Pin(first, read_pin(first))
    place = other
    assert pins.read_if_changed() is None
    write_pin(fingerprints.seen(live__k=4), first)
    assert pins.read_if_changed() == Pin(first, read_pin(first))
    write_pin(fingerprints.seen(live__k=3), other)
    assert pins.read_if_changed() == Pin(other, read_pin(other))
    first.unlink()
    assert pins.read_if_changed() is None
    other.unlink()
    assert pins.read_if_changed() == Pin(other, None)


def test_a_file_that_is_no_pin_is_told_once(tmp_path: Path) -> None:
    place = tmp_path / "demo.json"
    place.write_text("{}")
    pins = PinFile(lambda: place)
    with pytest.raises(UsageError, match="is not a pin"):
        pins.read_if_changed()
    assert pins.read_if_changed() is None


def test_a_pin_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is not a pin"):
        PinFile(lambda: tmp_path / "demo.json", required=True).read_if_changed()


def test_a_file_is_looked_at_every_few_seconds_also_when_the_clock_is_set_back() -> None:
    pins = PinFile(lambda: Path("/nowhere"))
    begun = [t for t in range(1000, 1010) if pins.is_due(t)]
    assert begun == list(range(1000, 1010, int(APART_S)))
    assert pins.is_due(10.0)


def test_a_pin_under_a_long_url_has_a_name_that_a_file_can_have(
    tmp_path: Path, fingerprints: Any
) -> None:
    one, other = (PinPlaces(tmp_path, f"{URL}/{'n' * 300}{end}") for end in "ab")
    assert one.home != other.home
    write_pin(fingerprints.seen(), one.home)
    assert one.find() == one.home
