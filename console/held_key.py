"""A key that is held down, pressed twice, or comes in one go over a line that lags: once it has led
to another screen, it does no more there. It was pressed for the screen that it was seen on.
"""

from __future__ import annotations

from typing import Final

from textual.events import Key, MouseDown, MouseEvent, MouseUp
from textual.screen import ModalScreen, Screen

from specdeck.console.key_order import Sent

SPENT_S: Final = 1.0
"""For so long after it, the same key is not meant for the screen that it has led to. Longer than
keyboards wait before they repeat one, and than there is between two clicks of a double one."""
HELD_S: Final = 3.0
"""A key that is held for longer acts: whoever presses on and on is not left without an answer."""
_ANSWERED_S: Final = 0.4
"""In a dialog it is held as long as it comes again within so long, however a line lags."""
_REPEATED_S: Final = 0.12
"""On any other screen: keyboards repeat a key faster, and no hand does. What steers an engine, or
stops something there, acts for whoever presses it again."""
_LEAVING: Final = frozenset({"escape", "ctrl+c", "q"})
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
        self._led_at = float("-inf")
        """When that was."""

    def is_spent(self, sent: Sent, screen: Screen[object], *, is_typed: bool) -> bool:
        """Whether `sent` is the one that has led to `screen`, a moment ago or held since.

        To be asked of each once all that those before it have begun is done. What `is_typed` onto
        a line is none.
        """
        if isinstance(sent, MouseEvent) and not isinstance(sent, MouseDown | MouseUp):
            return False  # it leads nowhere, and comes between two clicks
        name = _name(sent)
        if self._screen is not None and screen is not self._screen:
            self._spent, self._led_at = self._last, self._at
        again_s = _ANSWERED_S if isinstance(screen, ModalScreen) else _REPEATED_S
        led_ago, is_again = sent.time - self._led_at, sent.time - self._at < again_s
        is_held = led_ago < SPENT_S or (is_again and led_ago < HELD_S)
        is_spent = is_held and name is not None and name == self._spent and not is_typed
        if not is_spent:
            self._spent = None
        self._last, self._at, self._screen = name, sent.time, screen
        return is_spent

    def release(self) -> None:
        """Whatever was held is let go of."""
        self._at = self._led_at = float("-inf")


def _name(sent: Sent) -> str | None:
    """None for what may come again and again."""
    if isinstance(sent, MouseDown | MouseUp):
        return "click"
    return sent.key if isinstance(sent, Key) and sent.key not in _LEAVING else None
