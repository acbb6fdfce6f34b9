"""All errors of a config at once, with their places as data."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from specdeck.engine.config import loader
from specdeck.engine.config.loader import load
from specdeck.engine.config.yaml_source import Document, read
from specdeck.engine.errors import ConfigError, ConfigErrors

Errors = Callable[[str], tuple[ConfigError, ...]]


@pytest.fixture
def errors(tmp_path: Path) -> Errors:
    """The errors of a text; none for a good one."""

    def of(text: str) -> tuple[ConfigError, ...]:
        path = tmp_path / "a.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            load(path)
        except ConfigError as error:
            return error.errors
        return ()

    return of


def keys(found: tuple[ConfigError, ...]) -> list[tuple[str, ...]]:
    return [error.place.keys for error in found if error.place is not None]


def test_every_error_has_its_line_and_its_keys(errors: Errors, tmp_path: Path) -> None:
    found = errors(
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
    assert [error.place and error.place.line for error in found] == [1, 2, 5, 7, 8, 9]
    assert keys(found) == [
        ("model",),
        ("max_num_seqs",),
        ("speculative_config", "num_speculative_tokens"),
        ("orchestration", "polcy"),
        ("port",),
        ("enforce_eagr",),
    ]
    assert {error.place and error.place.path for error in found} == {tmp_path / "a.yaml"}
    assert found[-1].message == "unknown key `enforce_eagr`"
    assert found[-1].remedy == "did you mean `enforce_eager`?"


def test_a_config_is_read_once_for_all_of_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model: 5\nmax_num_seqs: many\nport: high\n")
    count = 0

    def read_and_count(path: Path) -> Document:
        nonlocal count
        count += 1
        return read(path)

    monkeypatch.setattr(loader, "read", read_and_count)
    with pytest.raises(ConfigErrors) as caught:
        load(path)
    assert len(caught.value.errors) == 3
    assert count == 1


def test_several_errors_read_like_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model: a/b\nport: high\nprot: 1\n")
    with pytest.raises(ConfigErrors) as caught:
        load(path)
    assert caught.value.line() == caught.value.errors[0].line()
    assert caught.value.line().startswith(f"{path}:2: ")


def test_a_good_config_has_none(errors: Errors) -> None:
    assert errors("model: some/model\nmax_num_seqs: 8\n") == ()


@pytest.mark.parametrize("text", ["max_num_seqs: 8\n", "port: 8000\nmodels: x\n"])
def test_an_error_that_belongs_to_no_key_is_said_beside_the_others(
    errors: Errors, text: str
) -> None:
    found = errors(text)
    assert () in keys(found)
    assert len(found) == text.count("\n")


def test_an_unknown_key_hides_no_other_error_of_its_block(errors: Errors) -> None:
    text = "model: a/b\norchestration: {min_draft_length: 9, max_draft_length: 2, bogus: 1}\n"
    assert len(errors(text)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "model: {a: 1, b: 2}\n",
        "model: &a [*a]\n",
        "model: !!python/object:os.system x\n",
        "attach: {url: 5}\n",
        "attach: {url: nowhere}\n",
        "model: a/b\nmodel: a/c\n",
        "model: a/b\norchestration: {min_draft_length: 5, max_draft_length: 2}\n",
        "model: a/b\nspeculative_config: 5\n",
        "model: a/b\nexact_models: ['', ' ']\n",
        "model: a/b\nspeculative_config: {num_speculative_tokens: 5, model: a/c}\n"
        "num_speculative_tokens: 4\n",
    ],
)
def test_one_mistake_is_one_error(errors: Errors, text: str) -> None:
    assert len(errors(text)) == 1


def test_what_the_file_itself_holds_wrongly_is_said_beside_the_rest(errors: Errors) -> None:
    found = errors("model: a/b\nmodel: a/c\non: 1\nseed: !!set {a}\nport: high\n")
    assert [error.place and error.place.line for error in found] == [2, 3, 4, 5]
    assert keys(found) == [("model",), (), ("seed",), ("port",)]


@pytest.mark.parametrize("name", ["pipe", "folder", "zero", "large"])
def test_what_is_no_config_at_all_is_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b" " * (1 << 20) + b"x")
    with pytest.raises(ConfigError, match=r"is a folder|not a regular file|larger than a config"):
        load(tmp_path / name)


def test_a_file_that_is_not_there_has_no_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yaml")
    assert caught.value.place is not None
    assert (caught.value.place.path, caught.value.place.line) == (tmp_path / "none.yaml", None)


@pytest.mark.parametrize(
    "text",
    [
        "alerts: {webhook: [https://hooks/hush]}",
        "api_key: {a: hush}",
        "environment: {HF_TOKEN: [hush]}",
        "environment: {REDIS_PW: hush}",
        "seed: u:hush@cache",
        "max_num_seqs: [{name: REDIS_PW, value: hush}]",
        "max_num_seqs: {password: hush}",
        "seed: redis://me:hush@cache",
    ],
)
def test_what_may_be_a_secret_is_not_repeated(errors: Errors, text: str) -> None:
    found = errors(f"model: a/b\n{text}\n")
    assert found
    assert not any("hush" in str(error) for error in found)
