"""`-` is no file's name: a command that has its own words for stdout refuses it unasked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from specdeck.console.cli.file_options import NamedFile, OutputFile
from specdeck.console.cli.main import COMMANDS, group, outcome

READ = {"config", "against", "pin", "token_file"}
"""Parameters with a file to read."""


Parameters = Iterator[tuple[list[str], click.Parameter]]


def all_options() -> Parameters:
    """Every parameter of every command, with the words before it."""
    context = click.Context(group)

    def walk(words: list[str], command: click.Command) -> Parameters:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from walk([*words, name], inner)
        yield from ((words, one) for one in command.params)

    for name in COMMANDS:
        found = group.get_command(context, name)
        assert found is not None
        yield from walk([name], found)


PATHS = [one for one in all_options() if isinstance(one[1].type, click.Path)]
NAMED = [(words, one) for words, one in PATHS if isinstance(one.type, NamedFile)]
WRITTEN = [
    (words, option) for words, one in PATHS
    if isinstance(one.type, OutputFile) for option in one.opts
    if (words, option) not in ((["export"], "-o"), (["export"], "--output"))
]  # fmt: skip


def test_each_file_that_an_option_names_is_known_to_be_read_or_written() -> None:
    assert {one.name for _, one in PATHS if type(one.type) in (click.Path, NamedFile)} <= READ


@pytest.mark.parametrize(("words", "option"), WRITTEN, ids=str)
def test_a_dash_is_refused_where_stdout_has_other_words(
    words: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECDECK_HOME", str(tmp_path / "home"))
    assert outcome([*words, "127.0.0.1:9", option, "-"]) == 2
    assert "stdout has the command's own words: give a file, such as ./-" in capsys.readouterr().err
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("words", "option"), [(words, option) for words, one in NAMED for option in one.opts], ids=str
)
def test_an_empty_name_is_refused(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome([*words, "127.0.0.1:9", option, ""]) == 2
    assert "no file is named" in capsys.readouterr().err
