"""All errors of a config at once."""

from pathlib import Path

import pytest

from specdeck.engine.config.arguments import shipped
from specdeck.engine.config.document import parsed
from specdeck.engine.launch.config_errors import config_errors

PATH = Path("a.yaml")


def said(text: str) -> list[str]:
    return [str(error) for error in config_errors(parsed(text, PATH), shipped())]


def test_every_error_is_named_by_line() -> None:
    found = said(
        "model: 5\n"
        "max_num_seqs: many\n"
        "speculative_config:\n"
        "  method: ngram\n"
        "  num_speculative_tokens: 0\n"
        "orchestration:\n"
        "  polcy: fixed\n"
        "port: high\n"
        "enforce_eagr: true\n"
    )
    assert [line.split(":")[1] for line in found] == ["1", "2", "5", "7", "8", "9"]
    assert "unknown key `enforce_eagr`" in found[-1]


def test_a_good_config_has_none() -> None:
    assert said("model: some/model\nmax_num_seqs: 8\n") == []


@pytest.mark.parametrize("text", ["max_num_seqs: 8\n", "port: 8000\nmodels: x\n"])
def test_an_error_that_belongs_to_no_key_ends_the_search(text: str) -> None:
    found = said(text)
    assert any("no `model` to serve" in line for line in found)
    assert len(found) == text.count("\n")


def test_one_mistake_is_one_error() -> None:
    assert len(said("model: {a: 1, b: 2}\n")) == 1
