"""Pins: committed, edited, newer, gone."""

import json
from pathlib import Path
from typing import Any

import pytest

from specdeck.engine.errors import UsageError
from specdeck.engine.fingerprint.environment import numeric_variables
from specdeck.engine.fingerprint.pins import checksum, is_name, own_part, read, write


@pytest.fixture
def pin(tmp_path: Path, fingerprints: Any) -> Path:
    path = tmp_path / "pins" / "prod.json"
    write(fingerprints.seen(), path)
    return path


def edited(pin: Path, **changed: Any) -> Path:
    body = json.loads(pin.read_text())
    pin.write_text(json.dumps({**body, **changed}))
    return pin


def test_a_pin_holds_what_was_seen(pin: Path, fingerprints: Any) -> None:
    assert read(pin) == fingerprints.seen()
    assert json.loads(pin.read_text())["written"] == "1970-01-01T00:01:40+00:00"
    assert [one.name for one in pin.parent.iterdir()] == ["prod.json"]


def test_a_newer_pin_is_refused_with_the_reason(pin: Path) -> None:
    with pytest.raises(UsageError, match="is a pin of schema 2, this specdeck knows 1"):
        read(edited(pin, specdeck_pin=2))


def test_a_pin_edited_by_hand_is_noticed(pin: Path) -> None:
    facts = json.loads(pin.read_text())["facts"]
    facts["live"]["k"] = 3
    with pytest.raises(UsageError, match="edited by hand"):
        read(edited(pin, facts=facts))


def test_an_edit_with_a_fitting_checksum_is_noticed_by_the_names(pin: Path) -> None:
    body = json.loads(pin.read_text())
    body["facts"]["live"]["k"] = 3
    body["checksum"] = checksum(body)
    pin.write_text(json.dumps(body))
    with pytest.raises(UsageError, match="edited by hand"):
        read(pin)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"specdeck_pin": 1}', "\0", '{"specdeck_pin": true}']
)
def test_what_is_no_pin_is_said_to_be_none(pin: Path, text: str) -> None:
    pin.write_text(text)
    with pytest.raises(UsageError, match="pin"):
        read(pin)


def test_a_pin_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no pin") as caught:
        read(tmp_path / "none.json")
    assert "fingerprint pin" in str(caught.value.remedy)


def test_a_name_is_told_from_a_file() -> None:
    assert is_name("vllm-0.32.0-09d54272-sd1:p0123456789abcdef")
    assert not is_name("sd1:p0123.json")
    assert own_part("sd1:b0123456789abcdef") == "sd1:b0123456789abcdef"


def test_a_device_without_an_end_is_no_pin(tmp_path: Path) -> None:
    endless = tmp_path / "pin.json"
    endless.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="too large for a pin"):
        read(endless)


def test_a_variable_that_is_no_utf_8_can_be_named_and_pinned(
    tmp_path: Path, fingerprints: Any
) -> None:
    variables = numeric_variables({"VLLM_X": "a\udcff"})
    assert variables == {"VLLM_X": "a\\udcff"}
    seen = fingerprints.seen(environment=variables)
    write(seen, tmp_path / "pin.json")
    assert read(tmp_path / "pin.json").facts == seen.facts
    assert fingerprints.seen(config__x="\udcff").build != fingerprints.seen(config__x="?").build
