"""A long command's progress on stderr: one line that is written over, or a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from specdeck.engine.divergence.runner import Found, Progress
from specdeck.engine.text import format_duration

_TERMINAL_S, _LOG_S = 0.2, 10.0
"""Between two lines."""


class Ticker:
    """Hears of a check's events; a context manager that leaves the cursor on a new line."""

    def __init__(
        self,
        what: str,
        log: Callable[[str], None],
        *,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._log = log
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._clock = clock
        self._last: float | None = None
        self._open = False

    def __call__(self, event: Progress | Found) -> None:
        """Tells of an event, unless it told something a moment ago."""
        if isinstance(event, Found):
            return
        now, every = self._clock(), _TERMINAL_S if self._terminal else _LOG_S
        if self._last is not None and now - self._last < every and event.done < event.of:
            return
        if self._last is None and event.done:
            self._break()
            self._log(f"specdeck: goes on after {event.done} prompts; --fresh begins anew")
        self._last = now
        self._write(line(self._what, event))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._break()

    def _write(self, text: str) -> None:
        if not self._terminal:
            self._log(text)
            return
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._open = True

    def _break(self) -> None:
        if self._open:
            sys.stderr.write("\n")
            self._open = False


def line(what: str, at: Progress) -> str:
    """One line of progress.

    >>> from specdeck.engine.divergence.runner import Progress
    >>> line("check", Progress(50, 200, 1, 0, 2.5, 60.0))
    'check: 50 of 200 prompts, 1 differs, 2.5 prompts/s, 1 min left'
    """
    differ = "differs" if at.mismatches == 1 else "differ"
    parts = [f"{what}: {at.done} of {at.of} prompts", f"{at.mismatches} {differ}"]
    if at.refused:
        parts.append(f"{at.refused} refused")
    if at.per_second is not None:
        parts.append(f"{at.per_second:.1f} prompts/s")
    if at.seconds_left is not None:
        parts.append(f"{format_duration(at.seconds_left)} left")
    return ", ".join(parts)
