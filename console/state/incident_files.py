"""Incident files that a key writes: one at a time, into the first folder that takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TimeSpan = tuple[float, float | None]
"""Unix seconds; the end is None for now."""


@dataclass(frozen=True, slots=True)
class IncidentFile:
    """A file that was written."""

    path: Path
    left_out: str | None = None
    """What is not in it and why, in one line; None where all is."""


WriteIncident = Callable[[str, Path, TimeSpan, Callable[[str], None]], Awaitable[IncidentFile]]
"""Writes an incident file of the engine at a URL into a folder, of so much of its time, says how
far it is, and what came of it; raises SpecdeckError, and OSError for a folder that does not take
it."""
LAST_S: Final = 1800.0
"""What is taken of an engine as it is."""
AROUND_S: Final = 900.0
"""What is taken before and after a moment of the past."""
PROGRESS_S: Final = 2.0
"""Between two words of how far it is."""


def choose_span(moment: float | None, now: float) -> TimeSpan:
    """What is written of an engine that is looked at as it was at a moment; None is as it is.

    >>> choose_span(None, 10_000.0), choose_span(5_000.0, 10_000.0), choose_span(9_500.0, 10_000.0)
    ((8200.0, None), (4100.0, 5900.0), (8600.0, None))
    """
    if moment is None:
        return now - LAST_S, None
    end = moment + AROUND_S
    return moment - AROUND_S, end if end < now else None


class IncidentFiles:
    """Writes them by `write`."""

    def __init__(self, write: WriteIncident) -> None:
        self.is_writing = False
        """Whether one is under way."""
        self._write = write

    async def write(
        self, url: str, folders: Iterable[Path], span: TimeSpan, on_progress: Callable[[str], None]
    ) -> IncidentFile:
        """Writes one of the engine at `url`; raises what the last folder raised.

        `on_progress` is called on this loop, whichever thread tells.
        """
        loop, told = asyncio.get_running_loop(), 0.0

        def tell(what: str) -> None:
            nonlocal told
            if loop.time() - told >= PROGRESS_S:
                told = loop.time()
                on_progress(what)

        def pass_on(what: str) -> None:
            loop.call_soon_threadsafe(tell, what)

        refused: OSError = FileNotFoundError("no folder to keep it in")
        self.is_writing = True
        try:
            for folder in folders:
                if folder.is_dir():
                    try:
                        return await self._write(url, folder, span, pass_on)
                    except OSError as error:
                        refused = error
        finally:
            self.is_writing = False
        raise refused
