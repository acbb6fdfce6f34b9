"""The file of `--metrics-file`."""

from __future__ import annotations

from pathlib import Path

from specdeck.console.cli.output import log
from specdeck.engine.errors import UsageError
from specdeck.engine.metrics.exposition import Exposition


class GaugesFile:
    """Where gauges are written round after round: a disk may be full for a moment."""

    def __init__(self, path: Path, *, after: str | None, must_begin: bool = False) -> None:
        """It is written `after` each such round; None where there is one. With `must_begin` a place
        that was never written to is wrong usage."""
        self._path = path
        self._again = "" if after is None else f"; it is tried again after each {after}"
        self._is_unproven = must_begin
        self._said: str | None = None
        """Why it cannot be written, where it could not the last time."""

    def write(self, gauges: Exposition) -> int:
        """Writes them; 0, or the code of the error, which is said until it is another one.

        Says that it can again, too. Raises UsageError for a place that could never be written to.
        """
        try:
            gauges.write(self._path)
        except UsageError as error:
            if self._is_unproven:
                raise
            line = error.line()
            if line != self._said:
                log(f"specdeck: {line}{self._again}")
            self._said = line
            return error.exit_code
        if self._said is not None:
            log(f"specdeck: {self._path} is written again")
        self._is_unproven, self._said = False, None
        return 0
