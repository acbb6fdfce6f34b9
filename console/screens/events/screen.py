"""The list of events: every one that is kept, the newest first, searched as one types."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Label, OptionList

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.dialogs import Modal
from specdeck.console.state.controller import Controller
from specdeck.console.state.copies import Copyable
from specdeck.console.state.engine_state import EVENTS, Event
from specdeck.console.widgets.format import LocalTime, on_day
from specdeck.console.widgets.options import ItemOption, LineList, read_item
from specdeck.console.widgets.search import SearchField
from specdeck.engine.text import printable

_EDGE = 3
"""Columns of the list beside its words: the scrollbar, and one at either end."""
_LEAST_ROOM = 20
"""Columns for words, however narrow the list is."""


def find_events(events: tuple[Event, ...], wanted: str) -> tuple[Event, ...]:
    """Those that have every word of `wanted`, in whatever order and case; the newest first.

    >>> told = (Event(0.0, "k 5 → 3"), Event(1.0, "the engine was restarted"))
    >>> [one.text for one in find_events(told, "Engine was")], len(find_events(told, ""))
    (['the engine was restarted'], 2)
    """
    words = wanted.casefold().split()
    return tuple(
        one for one in reversed(events) if all(word in one.text.casefold() for word in words)
    )


def event_line(event: Event, local: LocalTime, today: float) -> str:
    """One event as text; with its day where that is not the one of `today`.

    >>> import time
    >>> event_line(Event(0.0, "k 5 → 3"), time.gmtime, 0.0)
    '00:00:00  k 5 → 3'
    """
    return f"{on_day(event.t, local, today)}  {printable(event.text)}"


def hang(when: str, said: str, width: int) -> str:
    """What was said then, in `width` columns, wrapped below itself and not below its time.

    >>> print(hang("12:00:00", "ann changed k from 5 to 3", 30))
    12:00:00  ann changed k from 5
              to 3
    """
    indent = " " * (len(when) + 2)
    room = max(_LEAST_ROOM, width - len(indent))
    return f"{when}  " + f"\n{indent}".join(textwrap.wrap(said, room) or [""])


class EventsScreen(Modal[None]):
    """Lists the events of the selected engine; `/` searches them."""

    CSS_PATH = "screen.tcss"
    PLACE: ClassVar[keys.Place] = "events"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__()
        self.controller = controller
        self.context = context
        self.listed: tuple[Event, ...] = ()
        self._drawn: tuple[Event, ...] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        """How many there are, the list, what is searched, keys."""
        with Vertical(id="dialog"):
            yield Label("", id="question", markup=False)
            yield LineList(markup=False, compact=True)
            yield SearchField(placeholder="words to search", id="wanted", list_type=OptionList)
            yield Label(
                "/ searches   ↑↓ pgup pgdn   enter goes there   C copies   esc closes",
                id="keys",
                markup=False,
            )

    def on_mount(self) -> None:
        """Fill the list, and go on with what comes."""
        self._unsubscribe = self.controller.subscribe(self._follow)
        self.query_one(OptionList).focus()
        self.show()

    def on_resize(self) -> None:
        """Lines wrap elsewhere: at first as well, when the list gets its size."""
        self._drawn = None
        self.call_after_refresh(self._follow)

    def on_unmount(self) -> None:
        """Follow no more."""
        self._unsubscribe()

    def _follow(self) -> None:
        if self in self.app.screen_stack:  # its widgets go before it is unmounted
            self.show()

    def show(self) -> None:
        """The events that are searched for; the cursor stays on the one that it is on."""
        track = self.context.timeline.track
        wanted = self.query_one(SearchField).value
        found = find_events(track.events, wanted)
        kept = f" of the last {EVENTS}" if len(track.events) >= EVENTS else ""
        named = f'"{wanted.strip()}": {len(found)} of ' if wanted.strip() else ""
        heading = f"events of {track.name}  {named}{len(track.events)}{kept}"
        self.query_one("#question", Label).update(printable(heading))
        if found == self._drawn:
            return
        options = self.query_one(OptionList)
        chosen = self._chosen()
        self.listed = self._drawn = found
        options.clear_options()
        options.add_options(ItemOption(self._draw(one), one) for one in found)
        if found:
            options.highlighted = next((n for n, one in enumerate(found) if one is chosen), 0)

    @property
    def _highlighted(self) -> int | None:
        """None as well before the list is there."""
        return next((one.highlighted for one in self.query(OptionList)), None)

    def _chosen(self) -> Event | None:
        """The event under the cursor, unless that is the newest: there it follows what comes."""
        at = self._highlighted
        return self.listed[at] if at and at < len(self.listed) else None

    def _draw(self, event: Event) -> Text:
        tone = self.app.get_component_styles(f"tone--{event.tone}").partial_rich_style
        muted = self.app.get_component_styles("tone--muted").partial_rich_style
        when, _, said = event_line(event, self.context.local, self.context.clock()).partition("  ")
        line = hang(when, said, self.query_one(OptionList).outer_size.width - _EDGE)
        return Text.assemble((line[: len(when)], muted), (line[len(when) :], tone))

    @on(OptionList.OptionSelected)
    def _go_to_event(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._go(read_item(event, Event))

    def action_go(self) -> None:
        """To the moment of the event under the cursor."""
        at = self._highlighted
        if at is not None and at < len(self.listed):
            self._go(self.listed[at])

    def _go(self, event: Event) -> None:
        self.dismiss()
        self.context.timeline.go(event.t)

    @on(SearchField.Searched)
    def _find(self) -> None:
        self.show()

    def list_copies(self) -> Sequence[Copyable]:
        """The event under the cursor, and all that are listed."""
        at = self._highlighted
        if at is None or at >= len(self.listed):
            return ()
        local, today = self.context.local, self.context.clock()
        lines = [event_line(one, local, today) for one in self.listed]
        return Copyable("event", lines[at]), Copyable("all listed", "\n".join(reversed(lines)))

    def action_search(self) -> None:
        """Type what is searched."""
        self.query_one(SearchField).begin()

    def action_leave(self) -> None:
        """Every event again, and after that close."""
        if not self.query_one(SearchField).end():
            self.dismiss()
