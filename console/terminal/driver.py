"""Textual's Linux driver, sending only the cells that differ."""

from __future__ import annotations

import os
import signal
from threading import Lock
from types import FrameType
from typing import TYPE_CHECKING

from textual.drivers.linux_driver import LinuxDriver

from specdeck.console.terminal.cell_diff import CellDiff

if TYPE_CHECKING:
    from textual.app import App


class SparingDriver(LinuxDriver):
    """Passes every frame through a `CellDiff`, which forgets all when the terminal is resized."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._diff = CellDiff(0, 0)
        self._stale = True
        # The input thread answers the terminal's own queries.
        self._one_at_a_time = Lock()

    def start_application_mode(self) -> None:
        """As Textual does, and notice resizes before it does."""
        self._stale = True
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's own
        resized = signal.getsignal(signal.SIGWINCH)

        def on_resize(number: int, frame: FrameType | None) -> None:
            self._stale = True
            if callable(resized):
                resized(number, frame)

        signal.signal(signal.SIGWINCH, on_resize)

    def write(self, data: str) -> None:
        """Write what differs."""
        with self._one_at_a_time:
            if self._stale:
                self._stale = False
                self._diff.reset(*self._terminal())
            fewer = self._diff.feed(data)
        if fewer:
            super().write(fewer)

    def _terminal(self) -> tuple[int, int]:
        try:
            return os.get_terminal_size(self.fileno)
        except OSError:
            # Without a terminal nothing is known of its cells, so nothing is left out.
            return 0, 0
