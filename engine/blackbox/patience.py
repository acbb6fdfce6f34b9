"""How long a console waits for a record: a small file that somebody sent may take minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

MOST_S: Final = 5.0
SHARE: Final = 0.25
"""Of the time that goes by: what was waited for is had again at this pace."""

IsOver = Callable[[], bool]


def never() -> bool:
    """Of whoever may wait: a signal ends a command at any moment."""
    return False


class Patience:
    """Seconds that the main thread waits for a record in all; others wait as long as it takes.

    A console draws and hears keys and signals on the thread that asks: one question after the
    other, each within bounds, would hold it up as well as one without.
    """

    def __init__(
        self, most_s: float = MOST_S, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_s, self._clock = most_s, clock
        self._left, self._at = most_s, clock()
        self._thread = threading.main_thread().ident

    @contextmanager
    def wait(self) -> Iterator[IsOver]:
        """Counts the time within; gives what says whether that is to end."""
        if threading.get_ident() != self._thread:
            yield never
            return
        began = self._clock()
        self._left = min(self._most_s, self._left + SHARE * (began - self._at))
        ends = began + self._left
        try:
            yield lambda: self._clock() >= ends
        finally:
            self._at = self._clock()
            self._left = max(0.0, self._left - (self._at - began))
