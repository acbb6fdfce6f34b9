"""What the console draws on its way to the terminal: it may stall, and it may be gone."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from threading import Condition, Event, Thread

BEHIND = 8
"""Pieces that wait when a terminal counts as stalled; a console draws a few a second."""
_WATCH_S = 1.0
_PATIENCE_S = 2.0
"""How long a terminal may take to read what restores it."""


class TerminalOutput(Thread):
    """Writes to the terminal in a thread of its own, and never holds up whoever writes to it.

    Textual's own writer takes 30 pieces and then stops the whole console, also for signals,
    until the terminal reads on; where it never does, the console would be there for ever.
    """

    def __init__(
        self, fileno: int, *, on_hangup: Callable[[], None], on_catch_up: Callable[[], None]
    ) -> None:
        """Both are called in this thread: once when the terminal is gone, and whenever one that
        was behind has everything."""
        super().__init__(daemon=True, name="terminal-output")
        self._fileno = fileno
        self._on_hangup = on_hangup
        self._on_catch_up = on_catch_up
        self._pieces: deque[str | Event | None] = deque()
        self._comes = Condition()
        self._was_behind = False
        self._is_gone = False

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has stalled: a frame more would only wait."""
        if len(self._pieces) < BEHIND:
            return False
        self._was_behind = True
        return True

    def write(self, text: str) -> None:
        """Has `text` written as soon as the terminal takes it; for nobody once that is gone."""
        if not self._is_gone:
            self._put(text)

    def flush(self) -> None:
        """Waits until all is written, or until the terminal has had its time to take it."""
        if self.is_alive():
            written = Event()
            self._put(written)
            written.wait(_PATIENCE_S)

    def stop(self) -> None:
        """Ends the thread when all is written, or when the terminal does not take it.

        Whatever the process says after that goes nowhere: it would wait for the terminal, too.
        """
        self._put(None)
        if self.ident is not None:  # where there was no memory for the thread, it has not begun
            self.join(_PATIENCE_S)
        if self.is_alive():
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                if os.isatty(stream):
                    os.dup2(nowhere, stream)
            os.close(nowhere)

    def run(self) -> None:
        """Writes until it is stopped."""
        while (piece := self._take()) is not None:
            if isinstance(piece, Event):
                piece.set()
            elif not self._is_gone:
                self._write(piece)
            if self._was_behind and not self._pieces and not self._is_gone:
                self._was_behind = False
                self._on_catch_up()

    def _put(self, piece: str | Event | None) -> None:
        with self._comes:
            self._pieces.append(piece)
            self._comes.notify()

    def _take(self) -> str | Event | None:
        with self._comes:
            while not self._comes.wait_for(lambda: self._pieces, _WATCH_S):
                self._look_for_hangup()
            return self._pieces.popleft()

    def _write(self, piece: str) -> None:
        left = memoryview(piece.encode("utf-8", "replace"))
        while left:
            try:
                left = left[os.write(self._fileno, left) :]
            except BlockingIOError:  # whoever shares the terminal has made it so
                select.select((), (self._fileno,), ())
            except OSError:
                self._hang_up()
                return

    def _look_for_hangup(self) -> None:
        """Notices that the terminal has gone while there is nothing to write to it."""
        poll = select.poll()
        poll.register(self._fileno, 0)
        if poll.poll(0):  # asked for nothing, so it tells of the end alone
            self._hang_up()

    def _hang_up(self) -> None:
        if not self._is_gone:
            self._is_gone = True
            self._on_hangup()
