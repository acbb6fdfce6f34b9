"""Values of secret arguments, found in a text without the name that tells them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdeck.engine.plugin.secret_values import delete_read, format_values, make_mask, read_values

LONG = "PLANT-0123456789-abcdefghij-KLMNOPQRSTUVW"
ODD = """it's a "b" \\ \u00e9/+"""
VALUES = [LONG, ODD, "hush", "true", "None", "8000", "pw", "987654"]


@pytest.fixture
def found(tmp_path: Path) -> tuple[str, ...]:
    """The values, by way of a file."""
    file = tmp_path / "token.yaml"
    file.write_text(format_values(VALUES) + "\nseed: 1\n")
    return read_values(file)


def test_a_file_gives_the_values_back(found: tuple[str, ...]) -> None:
    assert list(found) == VALUES


@pytest.mark.parametrize("text", ["", "seed: 1\n", "# secrets: [\n", "# secrets: [5]\n", None])
def test_a_file_without_values_gives_none(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "token.yaml"
    if text is not None:
        file.write_text(text)
    assert read_values(file) == ()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"cannot log in with {LONG}", "cannot log in with ***"),
        (f"x{LONG}y", "x***y"),
        (repr(ODD), "'***'"),
        (json.dumps({"a": ODD}), '{"a": "***"}'),
        ("hush, 'hush' and hushed", "***, '***' and hushed"),
        ("got 987654", "got ***"),
        # As pydantic, reprlib and textwrap shorten: the name is gone, and a part of the value.
        (f"{{'a': 'Offload...{LONG[-21:]}'}}", "{'a': 'Offload...***'}"),
        (f"'{LONG[:12]}...{LONG[-13:]}'", "'***...***'"),
        (f"{LONG[:9]}… or …{LONG[-5:]}", "***… or …***"),
        ("input_value={'kv': 'O...45'}}, input_type=dict]", "input_value=***, input_type=dict]"),
        ("[type=x, input_value={'kv': 'O...45'}]\nnext", "[type=x, input_value=***]\nnext"),
    ],
)
def test_a_value_is_masked_wherever_it_stands(
    found: tuple[str, ...], text: str, masked: str
) -> None:
    assert make_mask(found)(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "true, None, port 8000, a pwd",
        "loading weights... 8000 of 9876540",
        "input_value='abc', input_type=str]",
        "",
    ],
)
def test_nothing_else_is(found: tuple[str, ...], text: str) -> None:
    assert make_mask(found)(text) == text


def test_a_shortened_value_is_masked_also_where_none_is_known() -> None:
    said = "input_value={'a': 'b...sword': 'x'}, input_type=dict]"
    assert make_mask(())(said) == "input_value=***, input_type=dict]"


def test_an_engine_that_is_ready_deletes_its_own_file_and_no_other(tmp_path: Path) -> None:
    own, other = tmp_path / "token.yaml", tmp_path / "other.yaml"
    own.write_text(format_values(VALUES))
    other.write_text("seed: 1\n")
    for told in ({}, *({"SPECDECK_MASK_LOGS": str(f)} for f in (own, own, other, "1", tmp_path))):
        delete_read(told)
    assert [file.name for file in tmp_path.iterdir()] == ["other.yaml"]
