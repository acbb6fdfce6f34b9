"""The curve over k, the policy and its breaker, trials, the ledger."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from specdeck.console import keys
from specdeck.console.screens import head
from specdeck.console.screens.engine_screen import DetailScreen, SteeringScreen
from specdeck.console.screens.tuning import view
from specdeck.console.screens.tuning.curve import curve
from specdeck.console.state.engine_state import Track
from specdeck.console.widgets.cells import Cell, Row, heading
from specdeck.console.widgets.charts import CurveBars
from specdeck.console.widgets.text import Feed, Line, Notice

LOOK_S = 1.0
_NORMAL = 72
"""Cells from which on there is room for two columns."""
_BELOW = 8
"""Lines for everything but the curve, as long as the curve keeps a few."""
_LEAST = 5
"""Lines of the curve: title, heads, the k in force and one beside it, a note."""


class TuningScreen(DetailScreen, SteeringScreen):
    """Shows what k is worth and who chooses it; every steering key works here too."""

    CSS_PATH = "screen.tcss"
    PLACE: ClassVar[keys.Place] = "tuning"
    BINDINGS = [*keys.bindings(PLACE)]

    def compose(self) -> ComposeResult:
        """Who, what k is, the curve, how things stand, what happened, keys."""
        yield Line(id="identity")
        yield Line(id="engines", classes="-empty")
        yield Line(id="control")
        yield Notice(id="notice", classes="-empty")
        yield CurveBars(id="curve")
        with Horizontal(id="below"):
            with Vertical(id="left"):
                yield Line(id="status-heading")
                yield Feed(id="status")
            with Vertical(id="right"):
                yield Line(id="feed-heading")
                yield Feed(id="feed")
        yield Line(id="latest", classes="-empty")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Name the panels, and look at the engine as long as this screen is open."""
        self.query_one("#status-heading", Line).row = heading("policy and breaker")
        self.query_one("#feed-heading", Line).row = heading("what moved k")
        self.look()
        self.set_interval(LOOK_S, self.look)
        self.show()

    def look(self) -> None:
        """Ask for the tuning, unless another screen lies over this one."""
        if self.is_visible and self.timeline.when.is_now:
            self.controller.look(self.controller.selected)

    def show(self) -> None:
        """Bring what is known onto the screen."""
        if not self.has_widgets:
            return
        controller, local = self.controller, self.context.local
        track, armed = self.track, controller.engine.armed
        swept = view.sweep_curve(track.sweep, local, self.key_label)
        bars = self.query_one(CurveBars)
        narrow = self.size.width < _NORMAL  # its class comes after the first picture
        with self.app.batch_update():
            self.query_one("#footer", Line).row = self.context.footer(
                "tuning", self.size.width, armed=armed
            )
            title = head.title(track, armed=armed)
            self.query_one("#identity", Line).row = self.mark_title(title)
            self.query_one("#engines", Line).row = head.strip(
                self.timeline.tracks, controller.selected, self.key_label, self.size.width
            )
            self.query_one("#control", Line).row = (
                head.brief_control(track) if narrow else head.control(track)
            )
            about_time = self.time_rows()
            self.query_one("#notice", Notice).rows = (
                *about_time, *view.tell_age(track), *head.notice(track, local)
            )  # fmt: skip
            bars.curve = curve(track, swept, self.key_label)
            bars.styles.height = min(bars.lines, max(_LEAST, self.size.height - _BELOW))
            self.query_one("#status", Feed).rows = view.status(track, self.key_label)
            self.query_one("#feed", Feed).rows = view.feed(track, local, controller.who)
            self._show_latest(track, narrow=narrow)

    def _show_latest(self, track: Track, *, narrow: bool) -> None:
        """The latest event, where what moved k has no room: it may be why a key did nothing."""
        below, line = self.query_one("#below"), self.query_one("#latest", Line)
        latest = track.events[-1:] if narrow else ()
        line.row = Row(tuple(Cell(f" {one.text}", one.tone) for one in latest))
        # A heading over nothing is of no use.
        room = below.region.height + line.region.height
        self.query_one("#status-heading").display = room > 2 or not latest

    def action_select(self, index: int) -> None:
        """Show the engine at `index`."""
        super().action_select(index)
        self.look()
