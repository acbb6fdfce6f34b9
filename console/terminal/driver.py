"""Textual's Linux driver, sending only the cells that differ, to a terminal that may stall."""

from __future__ import annotations

import os
import re
import selectors
import signal
import sys
from collections.abc import Callable
from threading import Lock
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.message import Message

from specdeck.console.terminal.cell_diff import CellDiff
from specdeck.console.terminal.input import TerminalInput
from specdeck.console.terminal.output import TerminalOutput

if TYPE_CHECKING:
    from textual.app import App

    from specdeck.console.terminal.backlog import Backlog


_TICK_S = 0.1
_MOST_BYTES = 4096
_MOST_AHEAD = 16 * _MOST_BYTES
"""Bytes that are looked through for Ctrl-C before they are handled."""
_CTRL_C: Final = re.compile(rb"\x03|\x1b\[99;5u")
_PASTE_BEGINS: Final = b"200~"
"""Without what introduces it, which may have been read before."""

_JOB_CONTROL = (signal.SIGTSTP, signal.SIGCONT)

LEAST: Final = (20, 4)
"""Columns and rows that the console is told of at least: some text cannot be wrapped at none."""
MOST: Final = (1000, 300)
"""And at most: a screen takes memory for each of its cells, and a wall of screens has fewer."""

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

    At SIGTSTP the terminal is given back before the process stops. At SIGCONT, also after a
    SIGSTOP that nobody can handle, everything is taken anew: a shell may have had the terminal.

    Whatever size the terminal says it has, the app is told of one between `LEAST` and `MOST`. Of a
    larger terminal the rest is left alone; on a smaller one what lies beyond it is not written.
    """

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        handlers = {number: signal.getsignal(number) for number in _JOB_CONTROL}
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        if self._size is None:  # the app looks for itself otherwise
            self._size = self._get_terminal_size()
        self._is_out_of_bounds = False
        self._backlog: Backlog | None = None
        self._handlers_before = handlers
        # Textual's own act within the handler, wherever it comes: while a frame is written, too.
        self._handle(signal.SIGTSTP, self._suspend)
        self._handle(signal.SIGCONT, self._begin_anew)
        self._is_started = False
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
        while not self._is_in_foreground():
            self._stop_process()
        self._stale = True
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's own
        finally:
            if not self._output.is_alive():
                self._output.start()
        self._is_started = True
        resized = signal.getsignal(signal.SIGWINCH)

        def on_resize(number: int, frame: FrameType | None) -> None:
            self._stale = True
            if callable(resized):
                resized(number, frame)
            was, self._is_out_of_bounds = self._is_out_of_bounds, self._find_out_of_bounds()
            if was or self._is_out_of_bounds:  # the app may know of no other size than before
                self._loop.call_soon_threadsafe(self._request_redraw)

        self._is_out_of_bounds = self._find_out_of_bounds()
        signal.signal(signal.SIGWINCH, on_resize)

    def stop_application_mode(self) -> None:
        """As Textual does."""
        self._is_started = False
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        """Give the terminal back, with all that restores it written."""
        self.stop_application_mode()
        super().close()  # Textual's own writer: each start makes another
        self._output.flush()

    def run_input_thread(self) -> None:
        """As Textual does, pass over what no keyboard sends, and read no more than is handled.

        Ctrl-C drops the keys before it, as it does for a program that leaves it to the terminal.
        """
        arriving, ahead = TerminalInput(self.alt_keys()), b""
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if ahead or selector.select(_TICK_S):
                    data, ahead = ahead or self._read(), b""
                    if not data:
                        # Of a terminal that is gone, which ends the console; or a program that
                        # had turned it to lines for a while, and Ctrl-D.
                        self.exit_event.wait(_TICK_S)
                    if not arriving.may_be_pasting:
                        data = data[_find_ctrl_c(data) or 0 :]
                    for message in arriving.feed(data):
                        self._send(message)
                        if self.exit_event.is_set():
                            return
                        if len(ahead) < _MOST_AHEAD and selector.select(0):
                            ahead += self._read()
                        at = None if arriving.may_be_pasting else _find_ctrl_c(data + ahead)
                        if at is not None and at >= len(data):
                            ahead = ahead[at - len(data) :]
                            break
                else:  # with nothing to be read: what is may be the rest of what came
                    for message in arriving.tick():
                        self._send(message)

    def _send(self, message: Message) -> None:
        """Waits until there is room for the next one."""
        self.process_message(message)
        if self._backlog is None:
            from specdeck.console.terminal.backlog import Backlog  # after the first frame

            self._backlog = Backlog(self._app, self._loop, self.exit_event.is_set)
        self._backlog.wait_for_room()

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

    def process_message(self, message: Message) -> None:
        """As Textual does; a size that the terminal tells of itself gets its bounds, too."""
        if isinstance(message, Resize):
            message = Resize.from_dimensions(_bound(message.size), message.pixel_size)
        super().process_message(message)

    def write(self, data: str) -> None:
        """Write what differs."""
        if len(data) > SHORT and self._output.is_behind:
            return
        with self._one_at_a_time:
            if self._stale:
                self._stale = False
                size = self._terminal()
                cuts = all(size) and any(
                    one < least for one, least in zip(size, LEAST, strict=True)
                )
                self._diff.reset(*size, cuts=cuts)
            fewer = self._diff.feed(data)
        if fewer:
            self._output.write(fewer)

    def close(self) -> None:
        """As Textual does, and end what writes."""
        super().close()
        self._output.stop()
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)

    def _handle(self, number: signal.Signals, act: Callable[[], None]) -> None:
        """Has the event loop `act` at a signal. What the caller ignores stays ignored."""
        before = self._handlers_before[number]
        if before == signal.SIG_IGN:
            signal.signal(number, before)
        else:
            signal.signal(number, lambda *_: self._loop.call_soon_threadsafe(act))

    def _suspend(self) -> None:
        """Stop as a job of the shell, and go on from there."""
        if not self._is_started:
            self._stop_process()
            return
        self.suspend_application_mode()
        self._stop_process()
        self.resume_application_mode()
        self._request_redraw()

    def _begin_anew(self) -> None:
        """Take the terminal as if for the first time: somebody else has stopped the process."""
        if not self._is_started:
            return
        while not self._is_in_foreground():  # as in a shell's `bg`: the terminal is the shell's
            self._stop_process()
        self.suspend_application_mode()
        self.resume_application_mode()
        self._request_redraw()

    @staticmethod
    def _stop_process() -> None:
        """Returns when the process goes on, which is nobody else's stop then."""
        handler = signal.signal(signal.SIGCONT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGSTOP)
        signal.signal(signal.SIGCONT, handler)

    def _is_in_foreground(self) -> bool:
        """Whether the terminal is this process's to use, as far as that can be told."""
        try:
            return os.tcgetpgrp(self.fileno) in (0, os.getpgrp())
        except OSError:  # not the terminal that controls the process
            return True

    def _request_redraw(self) -> None:
        self._app.call_later(self._redraw)  # for another thread, this is a message

    def _redraw(self) -> None:
        self._stale = True
        if self._app.screen_stack:  # empty while the app begins, and when it has ended
            self._app.screen.refresh(repaint=True, layout=True)

    def _get_terminal_size(self) -> tuple[int, int]:
        return _bound(super()._get_terminal_size())

    def _find_out_of_bounds(self) -> bool:
        size = super()._get_terminal_size()
        return _bound(size) != size

    def _terminal(self) -> tuple[int, int]:
        try:
            return os.get_terminal_size(self.fileno)
        except OSError:
            # Without a terminal nothing is known of its cells, so nothing is left out.
            return 0, 0


def _find_ctrl_c(data: bytes) -> int | None:
    """Where the last Ctrl-C is in what was read; None without any, and where it may be pasted.

    >>> _find_ctrl_c(b"++\\x03+"), _find_ctrl_c(b"++"), _find_ctrl_c(b"\\x1b[200~\\x03")
    (2, None, None)
    """
    if _PASTE_BEGINS in data:
        return None
    return max((found.start() for found in _CTRL_C.finditer(data)), default=None)


def _bound(size: tuple[int, int]) -> tuple[int, int]:
    """The size that the app is told of.

    >>> _bound((1, 5)), _bound((80, 24)), _bound((60_000, 60_000))
    ((20, 5), (80, 24), (1000, 300))
    """
    columns, rows = (
        min(max(one, least), most) for one, least, most in zip(size, LEAST, MOST, strict=True)
    )
    return columns, rows
