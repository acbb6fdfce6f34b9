"""Keys and tokens show themselves in no text."""

import traceback

import pytest

from specdeck.engine.client.secret import (
    Secret,
    hide_echoes,
    hide_secrets,
    is_echoed,
    refuse_no_name,
)
from specdeck.engine.errors import UsageError
from specdeck.engine.protocol.codec import loads


def test_a_secret_is_in_no_text_of_it() -> None:
    secret = Secret("correct-horse")
    for text in (repr(secret), str(secret), f"{secret}", f"{[secret]!r}"):
        assert "horse" not in text
    assert secret.reveal() == "correct-horse"


@pytest.mark.parametrize(
    "text", ["", "sch\xf6n-geheim", "geheim\n", "geheim\x00", "geheim\x7f", "geheim\udcff"]
)
def test_what_no_header_can_carry_is_wrong_usage_and_not_quoted(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        Secret(text, source="the API key in KEY")
    said = "".join(traceback.format_exception(refusal.value))
    assert "the API key in KEY is not printable ASCII" in said
    assert "geheim" not in said


def test_equal_secrets_are_equal_and_nothing_else_is() -> None:
    assert Secret("battery") == Secret("battery")
    assert Secret("battery") != Secret("staple")
    assert Secret("battery") != "battery"
    assert len({Secret("battery"), Secret("battery")}) == 1


def test_every_secret_is_taken_out_of_a_text_the_longest_first() -> None:
    Secret("tr0ub4dor"), Secret("tr0ub4dor&3")
    assert hide_secrets("Bearer tr0ub4dor&3, tr0ub4dor") == "Bearer …, …"


def test_an_echo_is_hidden_however_json_spells_it() -> None:
    Secret("a-key-of-many/letters")
    for spelt in (
        "a-key-of-many/letters",
        "a-key-of-many\\/letters",
        "\\u0061-key-of-many/letters",
    ):
        body = f'{{"x": ["see {spelt}!", 1], "{spelt}": null}}'.encode()
        assert is_echoed(body)
        assert hide_echoes(loads(body)) == {"x": ["see …!", 1], "…": None}


def test_a_key_that_is_a_products_name_changes_no_other_word() -> None:
    Secret("specdeck")
    said = "specdeck-demo vllm/specdeck specdeck:drafts my.specdeck specdeckers"
    assert hide_echoes(said) == said
    assert hide_echoes("key specdeck. 'specdeck', Bearer specdeck") == "key …. '…', Bearer …"


def test_a_short_secret_does_not_eat_words() -> None:
    Secret("k")
    assert hide_secrets("k=3 was asked") == "k=3 was asked"


@pytest.mark.parametrize(
    "key",
    [
        "hf_PLANTabcdefghijk",
        "sk_live_0123",
        "deadbeefdeadbeef",
        "AKIAIOSFODNN7EXAMPLE",
        "PLANT_ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "PLANT-KEY",
        "",
    ],
)
def test_a_key_in_place_of_a_variables_name_is_not_quoted(key: str) -> None:
    with pytest.raises(UsageError) as refusal:
        refuse_no_name(key, {}, option="--api-key-env")
    said = refusal.value.line()
    assert "--api-key-env takes the name of an environment variable" in said
    assert not key or key not in said


@pytest.mark.parametrize(
    ("variable", "environment"),
    [
        ("VLLM_API_KEY", {}),
        ("KEY_OF_GPU_17", {}),
        ("_AUTHENTICATION_TOKEN2", {}),
        ("my_key", {"my_key": "x"}),
        ("AKIAIOSFODNN7EXAMPLE", {"AKIAIOSFODNN7EXAMPLE": ""}),
    ],
)
def test_a_name_is_taken(variable: str, environment: dict[str, str]) -> None:
    refuse_no_name(variable, environment, option="--api-key-env")
