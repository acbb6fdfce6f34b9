"""What was read from the terminal and is still to be handled, which has a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from textual.app import App
    from textual.message_pump import MessagePump

AT_ONCE: Final = 8
"""Messages from one look at the app to the next; nobody types so many."""
_FEW: Final = AT_ONCE // 2
_LOOK_S: Final = 0.01
_PATIENCE_S: Final = 0.1


class Backlog:
    """Holds the input thread back while the app has too much to handle.

    A paste that comes as keys, or a wheel that spins, is faster than any screen. What the console
    does not read stays with the terminal, which waits in its turn.
    """

    def __init__(
        self, app: App[object], loop: AbstractEventLoop, is_over: Callable[[], bool]
    ) -> None:
        """`loop` runs `app`. `is_over`: whether the input thread is to end, whatever is left."""
        self._app = app
        self._is_over = is_over
        self._loop = loop
        self._sent = 0

    def wait_for_room(self) -> None:
        """To be called in the input thread, after each message that it sends."""
        self._sent += 1
        if self._sent < AT_ONCE:
            return
        self._sent = 0
        # The loop takes its turn at this after all that was sent to it before.
        handled = asyncio.run_coroutine_threadsafe(self._handle_most(), self._loop)
        while not self._is_over():
            try:
                handled.result(_PATIENCE_S)
            except TimeoutError:
                continue
            except CancelledError:  # the loop has ended
                pass
            return
        handled.cancel()

    async def _handle_most(self) -> None:
        while self._unhandled() > _FEW:  # noqa: ASYNC110  # no queue tells that it got shorter
            await asyncio.sleep(_LOOK_S)

    def _unhandled(self) -> int:
        return sum(one.message_queue_size for one in self._handlers())

    def _handlers(self) -> Iterator[MessagePump]:
        """Whoever a key or a move of the mouse comes to, one after the other."""
        yield self._app
        for screen in self._app.screen_stack[-1:]:  # empty while the app begins
            yield screen
            yield from filter(None, {screen.focused, self._app.mouse_over})
