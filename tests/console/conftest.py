"""Consoles on engines that are lists of readings."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.listed_engine import ListedEngine
from tests.support.pilot import until as wait_until
from tests.support.pilot import watch_threads
from tests.support.readings import GPU, START, STATE, down, reading, readings, window

from specdeck.console.app import Console
from specdeck.console.settings import Settings

if TYPE_CHECKING:
    from textual.pilot import Pilot

MakeConsole = Callable[..., Console]


@pytest.fixture
def console() -> MakeConsole:
    """A console whose clock stands still and whose day is UTC."""

    def make(*engines: ListedEngine, theme: str = "dark", **settings: Any) -> Console:
        chosen: dict[str, Any] = {
            "settings": Settings(interval=1.0, theme=theme),
            "clock": lambda: START + 60,
            "local": time.gmtime,
            "who": "ann",
        }
        return Console(engines, **chosen | settings)

    return make


class Kit:
    """What the tests of this folder build engines from."""

    state = STATE
    gpu = GPU
    start = START
    engine = ListedEngine
    reading = staticmethod(reading)
    window = staticmethod(window)
    down = staticmethod(down)
    run = staticmethod(readings)


@pytest.fixture
def kit() -> type[Kit]:
    """Engines, readings and states."""
    return Kit


Until = Callable[["Pilot[str]", Callable[[], object]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Waits for what a worker brings."""
    return wait_until


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """`settle` waits for work in threads."""
    watch_threads(monkeypatch)
