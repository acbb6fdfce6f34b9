"""Textual's Linux driver, sending only the cells that differ, to a terminal that may stall."""

from __future__ import annotations

import os
import selectors
import signal
import sys
from threading import Lock
from types import FrameType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from textual.drivers.linux_driver import LinuxDriver

from specdeck.console.terminal.cell_diff import CellDiff
from specdeck.console.terminal.input import TerminalInput
from specdeck.console.terminal.output import TerminalOutput

if TYPE_CHECKING:
    from textual.app import App


_TICK_S = 0.1
_MOST_BYTES = 4096

SHORT = 64
"""Characters of what sets a mode, at most; what is longer draws."""


@runtime_checkable
class HasAltKeys(Protocol):
    """An app whose keymap may name keys with alt."""

    @property
    def alt_keys(self) -> frozenset[str]:
        """Such as `alt+x`."""


class SparingDriver(LinuxDriver):
    """Passes every frame through a `CellDiff`, which forgets all when the terminal is resized.

    A frame that a stalled terminal has no time for is left out; once it reads on, all is drawn
    anew. A terminal that is gone without a signal counts as one that hung up with SIGHUP.
    """

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
        self._output = TerminalOutput(
            sys.__stderr__.fileno() if sys.__stderr__ else 2,  # where Textual draws
            on_hangup=lambda: os.kill(os.getpid(), signal.SIGHUP),
            on_catch_up=self._request_redraw,
        )

    def start_application_mode(self) -> None:
        """As Textual does, and notice resizes before it does.

        Nothing is written before the terminal echoes no keys any more: they would be drawn over.
        """
        self._stale = True
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's own
        finally:
            if not self._output.is_alive():
                self._output.start()
        resized = signal.getsignal(signal.SIGWINCH)

        def on_resize(number: int, frame: FrameType | None) -> None:
            self._stale = True
            if callable(resized):
                resized(number, frame)

        signal.signal(signal.SIGWINCH, on_resize)

    def run_input_thread(self) -> None:
        """As Textual does, and pass over what no keyboard sends."""
        arriving = TerminalInput(self.alt_keys())
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_TICK_S):
                    data = self._read()
                    if not data:
                        return
                    for message in arriving.feed(data):
                        self.process_message(message)
                for message in arriving.tick():
                    self.process_message(message)

    def alt_keys(self) -> frozenset[str]:
        """The keys with alt that mean something to the app."""
        if not isinstance(self._app, HasAltKeys):
            return frozenset()
        return self._app.alt_keys

    def _read(self) -> bytes:
        """Nothing from a terminal that is gone, which the output tells of."""
        try:
            return os.read(self.fileno, _MOST_BYTES)
        except OSError:
            return b""

    def write(self, data: str) -> None:
        """Write what differs."""
        if len(data) > SHORT and self._output.is_behind:
            return
        with self._one_at_a_time:
            if self._stale:
                self._stale = False
                self._diff.reset(*self._terminal())
            fewer = self._diff.feed(data)
        if fewer:
            self._output.write(fewer)

    def close(self) -> None:
        """As Textual does, and end what writes."""
        super().close()
        self._output.stop()

    def _request_redraw(self) -> None:
        self._app.call_later(self._redraw)  # for another thread, this is a message

    def _redraw(self) -> None:
        self._stale = True
        self._app.screen.refresh(repaint=True, layout=True)

    def _terminal(self) -> tuple[int, int]:
        try:
            return os.get_terminal_size(self.fileno)
        except OSError:
            # Without a terminal nothing is known of its cells, so nothing is left out.
            return 0, 0
