"""A key that is held down, pressed twice, or comes in one go over a line that lags: once it has led
to another screen, it does no more there. It was pressed for the screen that it was seen on.
"""

from __future__ import annotations

from typing import Final

from textual.events import Key, MouseDown, MouseEvent, MouseUp
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

    def is_spent(self, sent: Sent, screen: Screen[object], *, is_typed: bool) -> bool:
        """Whether `sent` is the one that has led to `screen`, and was not let go of since.

        To be asked of each once all that those before it have begun is done. What `is_typed` onto
        a line is none.
        """
        if isinstance(sent, MouseEvent) and not isinstance(sent, MouseDown | MouseUp):
            return False  # it leads nowhere, and comes between two clicks
        name = _name(sent)
        if self._screen is not None and screen is not self._screen:
            self._spent = self._last
        is_held = name is not None and sent.time - self._at < RELEASED_S
        is_spent = is_held and name == self._spent and not is_typed
        if not is_spent:
            self._spent = None
        self._last, self._at, self._screen = name, sent.time, screen
        return is_spent

    def release(self) -> None:
        """Whatever was held is let go of."""
        self._at = float("-inf")


def _name(sent: Sent) -> str | None:
    """None for what may come again and again."""
    if isinstance(sent, MouseDown | MouseUp):
        return "click"
    return sent.key if isinstance(sent, Key) and sent.key not in _LEAVING else None
