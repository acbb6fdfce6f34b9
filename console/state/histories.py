"""The black boxes of a console's engines, each opened when somebody first looks back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.engine.errors import SpecdeckError

# SQLite is imported after the first paint.
if TYPE_CHECKING:
    from specdeck.engine.blackbox.history import History


class BoxHistories:
    """Finds an engine's past by its number, whoever records it."""

    def __init__(self, folder: Path, urls: Sequence[str]) -> None:
        """`folder` has the black boxes of this user."""
        self._folder = folder
        self._urls = tuple(urls)
        self._open: dict[int, History] = {}

    def __call__(self, index: int) -> History | None:
        """The engine's past; None where nothing was recorded. Raises SpecdeckError where that
        cannot be read."""
        from specdeck.engine.blackbox.folder import box_path, is_there

        found = self._open.get(index)
        if found is not None and is_there(found.path) and found.is_current():
            return found
        from specdeck.engine.blackbox.history import History
        from specdeck.engine.blackbox.patience import Patience

        path = box_path(self._folder, self._urls[index])
        if not is_there(path):
            return None
        found = History(path)
        # An engine says what is recorded: hours of its largest states take half a minute to read.
        found.limit_waiting(Patience())
        self._open[index] = found
        return found

    def close(self) -> None:
        """Lets go of the files."""
        for one in self._open.values():
            with suppress(SpecdeckError):
                one.close()
        self._open.clear()
