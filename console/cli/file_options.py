"""The types of options that name files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class NamedFile(click.Path):
    """A file that has a name: an empty text, as a variable without a value leaves it, fails as
    click's own types do, since it would be the folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path."""
        if not value:
            self.fail("no file is named", param, ctx)
        return super().convert(value, param, ctx)


class OutputFile(NamedFile):
    """A file to write. `-` is none: by custom it is stdout, where a command has its own words.

    With `is_stdout` it is, and the option has None then, as where it is not given.
    """

    def __init__(self, *, is_stdout: bool = False) -> None:
        super().__init__()
        self._is_stdout = is_stdout

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path; fails as click's own types do."""
        if value != "-":
            return super().convert(value, param, ctx)
        if not self._is_stdout:
            self.fail("stdout has the command's own words: give a file, such as ./-", param, ctx)
        return None
