"""The console's key for an incident file; what that takes is imported when it is pressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdeck.console.cli.engines import Access
    from specdeck.console.state.incident_files import IncidentFile, TimeSpan, WriteIncident


def incident_writer(known: Iterable[Access] = ()) -> WriteIncident:
    """What the console's key for an incident does; `known` are engines with keys of their own."""

    async def write(
        url: str, folder: Path, span: TimeSpan, on_progress: Callable[[str], None]
    ) -> IncidentFile:
        # Archives, charts and causes are nothing that a console needs before its first paint.
        from specdeck.console.cli.incident import write_around

        return await write_around(url, folder, span, on_progress, known)

    return write
