"""What a person sends, one after the other: each waits for what the one before it began.

Textual sends a key, a paste or a click to the widget that is there as it is read. Of what comes in
one write, all that is after the key of a dialog would be the screen's below, where a digit is a k.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from textual.events import InputEvent, MouseMove, Paste
from textual.message import Message

if TYPE_CHECKING:
    from textual.message_pump import MessagePump

Sent = InputEvent | Paste
"""What a person sends with the keyboard or the mouse; Textual counts a paste among neither."""

_ROUNDS: Final = 2
"""A key's action is done once the app has the follower behind the key. What the action has sent to
the widget with the focus, as a choice in a list, is done once the app has the next one. So it is
of a paste and of a click."""
_LOST_S: Final = 1.0
"""For a follower to come back, which none does from a widget that goes."""
_PAUSE_S: Final = 2.0
"""For what a widget does once it has looked something up."""


class KeyFollower(Message):
    """Goes the way of a key, behind it, through the queues of the widgets up to the app."""

    def __init__(self, number: int, left: int) -> None:
        """`number` is that of the key, paste or click; `left` is how many are to follow it."""
        super().__init__()
        self.number = number
        self.left = left


class KeyOrder:
    """Which key, paste or click is under way, and the input behind it."""

    def __init__(self, app: MessagePump, find_target: Callable[[], MessagePump]) -> None:
        """`find_target` is the widget that keys go to at that time."""
        self._app = app
        self._find_target = find_target
        self._number = 0
        self._is_busy = False
        self._waiting: deque[Sent] = deque()
        self._watchdog: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        """Ends the pause that there is."""

    @property
    def size(self) -> int:
        """Input that waits."""
        return len(self._waiting)

    def hold(self, event: Sent) -> bool:
        """Whether it has to wait for what is under way."""
        if self._is_busy:
            self._waiting.append(event)
        return self._is_busy

    def begin(self, event: Sent, target: MessagePump) -> None:
        """It was sent to `target`. Nothing waits for a move of the mouse, which does nothing."""
        if isinstance(event, MouseMove):
            return
        self._number += 1
        self._is_busy = True
        lost = KeyFollower(self._number, 0)
        self._watchdog = asyncio.get_running_loop().call_later(
            _LOST_S, self._app.post_message, lost
        )
        self._send(target, _ROUNDS - 1)

    def _send(self, target: MessagePump, left: int) -> None:
        if not target.post_message(KeyFollower(self._number, left)):  # it is going
            self._app.post_message(KeyFollower(self._number, left))

    def take(self, follower: KeyFollower) -> bool:
        """Whether what it follows is done, as the app has it."""
        if follower.number != self._number or not self._is_busy:
            return False
        if follower.left:
            self._send(self._find_target(), follower.left - 1)
            return False
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._pause is not None:
            return False
        self._is_busy = False
        return True

    def pause(self) -> None:
        """Has all that is behind the key under way wait until `resume`, but not for long: what the
        key has begun goes on after the key is done."""
        self.resume()
        self._is_busy = True
        self._pause = asyncio.get_running_loop().call_later(_PAUSE_S, self.resume)

    def resume(self) -> None:
        """What the key had begun is done."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._app.post_message(KeyFollower(self._number, _ROUNDS - 1))

    def next(self) -> Sent | None:
        """The input that is to be handled now; None while some is under way, and without any."""
        return self._waiting.popleft() if self._waiting and not self._is_busy else None
