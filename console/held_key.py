"""A key that is held down, pressed twice, or comes in one go over a line that lags: once it has led
to another screen, it does no more there. It was pressed for the screen that it was seen on.
"""

from __future__ import annotations

from typing import Final

from textual.events import Key, MouseDown, MouseUp
from textual.screen import Screen

from specdeck.console.key_order import Sent

RELEASED_S: Final = 1.0
"""Without the key for so long, it was let go of. Longer than keyboards wait before they repeat one,
and than there is between two clicks of a double one."""
_LEAVING: Final = frozenset({"escape", "ctrl+c"})
"""Pressed once for each screen that is to be left, and never an answer."""


class HeldKey:
    """Which key, or click, has led to the screen that is there."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._at = float("-inf")
        """When the last one came, by the clock of Textual's events."""
        self._screen: Screen[object] | None = None
        """The screen that the last one was sent to."""
        self._spent: str | None = None
        """The one that has led to the screen that is there."""

    def is_spent(self, sent: Sent, screen: Screen[object]) -> bool:
        """Whether `sent` is the one that has led to `screen`, and not let go of since.

        To be asked of each once all that those before it have begun is done.
        """
        name = _name(sent)
        if name is None:
            return False
        if self._screen is not None and screen is not self._screen:
            self._spent = self._last
        is_spent = name == self._spent and sent.time - self._at < RELEASED_S
        if not is_spent:
            self._spent = None
        self._last, self._at, self._screen = name, sent.time, screen
        return is_spent


def _name(sent: Sent) -> str | None:
    """None for what leads nowhere, such as the mouse on its way, and what may be repeated."""
    if isinstance(sent, MouseDown | MouseUp):
        return "click"
    return sent.key if isinstance(sent, Key) and sent.key not in _LEAVING else None
