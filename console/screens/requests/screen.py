"""The requests screen: what runs right now, sorted and searched; never a prompt."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens import head
from specdeck.console.screens.engine_screen import DetailScreen
from specdeck.console.screens.requests import view
from specdeck.console.state.controller import Controller
from specdeck.console.widgets.cells import beyond
from specdeck.console.widgets.search import SearchField
from specdeck.console.widgets.text import Line, Notice, Rows

LOOK_S = 1.0


class RequestsScreen(DetailScreen):
    """Lists the requests of the selected engine."""

    CSS_PATH = "screen.tcss"
    AUTO_FOCUS = ""  # keys belong to the list until somebody searches
    PLACE: ClassVar[keys.Place] = "requests"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.order: view.Order = "age"
        self.wanted = ""
        self.top = 0
        """Rows above the first one that is shown."""

    def compose(self) -> ComposeResult:
        """Who, how many, the list, what is searched, keys."""
        yield Line(id="identity")
        yield Notice(id="time", classes="-empty")
        yield Line(id="requests-heading")
        yield Line(id="requests-head")
        yield Rows(id="requests")
        yield SearchField(placeholder="json, greedy, k2, waiting, an adapter", id="search")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Look at the engine as long as this screen is open."""
        self.look()
        self.set_interval(LOOK_S, self.look)
        self.show()

    def on_resize(self) -> None:
        """Another number of requests fits, once the list has its height."""
        self.call_after_refresh(self.show)

    def look(self) -> None:
        """Ask for the requests, unless another screen lies over this one."""
        if self.is_visible and self.timeline.when.is_now:
            self.controller.list_requests(self.controller.selected)

    def show(self) -> None:
        """Bring what is known onto the screen."""
        if not self.has_widgets:
            return
        track, width = self.track, self.size.width
        listed = self.query_one("#requests", Rows)
        found = view.rows(track, self.order, self.wanted, width, self.key_label)
        height = max(1, listed.size.height)
        self.top = max(0, min(self.top, len(found) - height))
        with self.app.batch_update():
            title = head.title(track, armed=self.controller.engine.armed)
            self.query_one("#identity", Line).row = self.mark_title(title)
            self.query_one("#time", Notice).rows = self.time_rows()
            self.query_one("#requests-heading", Line).row = view.title(
                track.requests, self.order, self.wanted, beyond(self.top, height, len(found))
            )
            self.query_one("#requests-head", Line).row = view.head(width)
            listed.rows = found[self.top :][:height]
            self.query_one("#footer", Line).row = self.context.footer("requests", width)

    def action_order(self) -> None:
        """Sort by the next figure."""
        orders = view.ORDERS
        self.order = orders[(orders.index(self.order) + 1) % len(orders)]
        self.top = 0
        self.show()

    def action_scroll(self, key: str) -> None:
        """Up or down the list; `show` keeps it within."""
        page = max(1, self.query_one("#requests").size.height - 1)
        by = {
            "up": -1,
            "down": 1,
            "pageup": -page,
            "pagedown": page,
            "home": -self.top,
        }  # ctrl+end: the last one
        self.top = max(0, self.top + by.get(key, 1_000_000))
        self.show()

    def action_search(self) -> None:
        """Type what is searched."""
        self.query_one(SearchField).begin()

    @on(SearchField.Searched)
    def find(self, event: SearchField.Searched) -> None:
        """Requests that match so far."""
        self.top = self.top if event.wanted == self.wanted else 0
        self.wanted = event.wanted
        self.show()

    def action_back(self) -> None:
        """Out of a search, or back to the live screen."""
        if not self.query_one(SearchField).end():
            super().action_back()

    def action_next_load(self) -> None:
        """The next load profile."""
        self.controller.next_load()

    def action_step(self, by: int) -> None:
        """Show another engine."""
        self.action_select(self.controller.selected + by)

    def action_select(self, index: int) -> None:
        """Show the engine at `index`."""
        self.controller.select(index)
        self.top = 0
        self.look()
