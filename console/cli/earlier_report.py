"""Reports of an earlier run, where a command is to write its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specdeck.console.cli.first_and_last import INTERRUPTED
from specdeck.console.cli.output import log
from specdeck.engine.divergence.report import is_report
from specdeck.engine.errors import SpecdeckError


@contextmanager
def withdraw_on_error(paths: Iterable[Path]) -> Iterator[Callable[[int], int]]:
    """Leaves no report of an earlier run where this one cannot be done, or is ended by a signal.

    Whoever collects it whatever the exit code is would take a green one for this run's. Gives what
    takes the exit code, and returns it.
    """
    before = {path: _look(path) for path in paths}

    def withdraw_unwritten() -> None:
        """What this run has written so far stays."""
        withdraw(path for path, seen in before.items() if seen and seen == _look(path))

    def end(code: int) -> int:
        if code == INTERRUPTED:
            withdraw_unwritten()
        return code

    try:
        yield end
    except SpecdeckError:
        withdraw(before)
        raise
    except KeyboardInterrupt:  # before there is a loop of events, which takes signals
        withdraw_unwritten()
        raise


def _look(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one that is written in its place; None without any."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def withdraw(paths: Iterable[Path]) -> None:
    """Removes those of `paths` that hold a report, and says so; whatever else is there stays."""
    for path in paths:
        if not is_report(path):
            continue
        try:
            path.unlink()
        except OSError as error:
            why = (error.strerror or "it cannot be removed").lower()
            log(f"specdeck: {path} is of an earlier run: {why}")
        else:
            log(f"specdeck: {path} was of an earlier run and is removed")
