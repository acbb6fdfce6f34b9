"""What the console's screens share beside the engines: clock, calendar, keys, stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from specdeck.console.footer import footer
from specdeck.console.keys import KEYS, Key, Place, key_label, key_names
from specdeck.console.widgets.cells import Row
from specdeck.console.widgets.format import LocalTime
from specdeck.engine.client.command_options import NO_OPTIONS, CommandOptions

if TYPE_CHECKING:
    from specdeck.console.state.check import CheckContext
    from specdeck.console.state.timeline import Timeline
    from specdeck.console.state.watches import EngineWatches


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """What a screen works with beside the controller."""

    timeline: Timeline
    """The moment that all screens show."""
    owned: bool = False
    """Whether this console started the engine, so that control needs no question."""
    clock: Callable[[], float] = time.time
    """Unix time, seconds."""
    local: LocalTime = time.localtime
    """Unix time to the operator's calendar."""
    keys: tuple[Key, ...] = KEYS
    """Those that mean something in this session."""
    keymap: Mapping[str, str] = field(default_factory=dict)
    """The keys that the user has moved, by the ids of their actions."""
    folders: Callable[[], Iterable[Path]] = tuple
    """Where something may be saved, the best place first."""
    check: CheckContext | None = None
    """Lends both arms of an engine; None where there is no live engine to ask."""
    watches: EngineWatches | None = None
    """Fingerprints, drift and alerts of the engines; None where there is nothing to ask."""
    command_options: Mapping[str, CommandOptions] = field(default_factory=dict)
    """What commands have to be given for engines, by their URLs."""
    slow: bool = False
    """Whether little is drawn, for a poor line."""

    def key_label(self, name: str) -> str:
        """The key of an action, for a hint."""
        return key_label(name, self.keymap)

    def key_names(self, name: str) -> tuple[str, ...]:
        """Every key of an action, as Textual calls them."""
        return key_names(name, self.keymap)

    def options(self, url: str) -> CommandOptions:
        """What commands have to be given for an engine; nothing where its URL alone does."""
        return self.command_options.get(url, NO_OPTIONS)

    def footer(self, place: Place, width: int, *, armed: bool = False) -> Row:
        """The footer of a screen that is `width` cells wide, at the moment that is shown."""
        now = self.timeline.when.is_now
        return footer(place, self.keys, self.keymap, width, armed=armed, now=now)
