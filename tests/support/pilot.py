"""Waiting for a console: for what is under way to end, never for time to pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from textual.events import Event, Key

from specdeck.console.app import Console
from tests.support.listed_engine import ListedEngine

if TYPE_CHECKING:
    from textual.app import App
    from textual.pilot import Pilot

PATIENCE_S = 60.0
"""For what a worker brings on a busy machine."""
QUIET_ROUNDS = 3
"""A message leads to another one: so many times in a row nothing must be under way."""

_threads: set[object] = set()
"""Work that `asyncio.to_thread` has begun and not brought back."""


def watch_threads(patch: pytest.MonkeyPatch) -> None:
    """From here on `settle` waits for what runs in threads as well."""
    to_thread = asyncio.to_thread

    async def watched(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        one = object()
        _threads.add(one)
        try:
            return await to_thread(work, *args, **kwargs)
        finally:
            _threads.discard(one)

    patch.setattr(asyncio, "to_thread", watched)


async def settle(pilot: Pilot[str]) -> None:
    """Returns when the console has taken in all readings and what threads and messages bring."""
    async with asyncio.timeout(PATIENCE_S):
        quiet = 0
        while quiet < QUIET_ROUNDS:
            await pilot.pause()
            quiet = 0 if _threads or _has_more_to_read(pilot) else quiet + 1


async def press(pilot: Pilot[str], *keys: str) -> None:
    """Presses keys, and returns when the console has done all that they ask.

    As somebody does who has let go of what was pressed before.
    """
    if isinstance(pilot.app, Console):
        pilot.app.held_key.release()
    await pilot.press(*keys)
    await settle(pilot)


def type_at_once(app: App[str], *keys: str | Event, gap_s: float = 0.0) -> None:
    """Types as a terminal sends what was typed ahead: no key waits for what the last one did.

    What is no name of a key is sent as it is, such as a paste. `gap_s` is how far apart they were
    typed.
    """
    began = time.monotonic()
    for number, key in enumerate(keys):
        event = key if isinstance(key, Event) else _make_key(key)
        event.time = began + number * gap_s
        app.post_message(event)


def _make_key(name: str) -> Key:
    return Key("space" if name == " " else name, name if len(name) == 1 else None)


@asynccontextmanager
async def run(app: App[str], **options: Any) -> AsyncIterator[Pilot[str]]:
    """Runs a console, with the options of Textual's own test; it has taken in its readings."""
    async with app.run_test(**options) as pilot:
        await settle(pilot)
        yield pilot


def _has_more_to_read(pilot: Pilot[str]) -> bool:
    app = pilot.app
    if not isinstance(app, Console):
        return False
    engines = app.controller.engines
    # Readings are asked for after the first frame.
    return not app.shown.is_set() or any(
        isinstance(one, ListedEngine) and one.is_being_read for one in engines
    )


async def until(pilot: Pilot[str], done: Callable[[], object]) -> None:
    """Waits for what a worker brings."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                await pilot.pause(0.01)
    except TimeoutError:
        raise AssertionError(f"it does not come to an end on {pilot.app.screen}") from None
