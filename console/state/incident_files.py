"""Incident files that a key writes: one at a time, into the first folder that takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

WriteIncident = Callable[[str, Path, Callable[[str], None]], Awaitable[Path]]
"""Writes an incident file of the engine at a URL into a folder, says how far it is, and where the
file is; raises SpecdeckError, and OSError for a folder that does not take it."""
PROGRESS_S: Final = 2.0
"""Between two words of how far it is."""


class IncidentFiles:
    """Writes them by `write`."""

    def __init__(self, write: WriteIncident) -> None:
        self.is_writing = False
        """Whether one is under way."""
        self._write = write

    async def write(
        self, url: str, folders: Iterable[Path], on_progress: Callable[[str], None]
    ) -> str:
        """Writes one of the engine at `url`, and where it is; raises what the last folder raised.

        `on_progress` is called on this loop, whichever thread tells.
        """
        from specdeck.console.screenshots import abbreviate_home

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
                        return abbreviate_home(await self._write(url, folder, pass_on))
                    except OSError as error:
                        refused = error
        finally:
            self.is_writing = False
        raise refused
