"""Commands in this process, and what they say."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from specdeck.console.cli.main import outcome
from tests.hostile.judge import SECRETS, assert_harmless


@dataclass(frozen=True, slots=True)
class Said:
    """What a command has said, and its exit code."""

    code: int
    out: str
    err: str


def run(words: Sequence[str], *, is_traced: bool = False) -> Said:
    """Runs a command; it is harmless, whatever it says.

    `is_traced` is whether a traceback was asked for.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = outcome(words)
    said = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        said.append(stream.read())
    assert_harmless(code, *said, is_traced=is_traced)
    return Said(code, *said)


@contextmanager
def home_in(folder: Path) -> Iterator[Path]:
    """A home and a working folder of its own below `folder`, and the planted secrets."""
    home, work = folder / "home", folder / "cwd"
    for each in (home, work):
        each.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        patch.setenv("SPECDECK_HOME", str(home))
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        yield home
