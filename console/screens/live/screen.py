"""The live screen: follows every engine and shows one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.engine_screen import SteeringScreen
from specdeck.console.screens.live.view import Live, live
from specdeck.console.screens.timeline.view import describe_event, lane
from specdeck.console.state.controller import Controller
from specdeck.console.state.engine_state import Track
from specdeck.console.state.past import PastEvent, list_events
from specdeck.console.widgets import format
from specdeck.console.widgets.cells import Cell, Cells, Row, heading
from specdeck.console.widgets.charts import Bars, Chart
from specdeck.console.widgets.text import Feed, Line, Notice, Rows, wrap_rows

if TYPE_CHECKING:
    from specdeck.console.state.stretch import Stretch

_ONE_CHART: Final = ("", "-only-tokens", "-only-acceptance")
"""Classes that `m` goes through: both charts, one, the other."""
_SHOWN: Final = {
    "row": ("engines", "control", "gpu"),
    "rows": ("speculation", "traffic", "events"),
    "series": ("tokens", "acceptance"),
    "bars": ("positions",),
}
"""The fields of the view, by what a widget of that name shows them as."""


class LiveScreen(SteeringScreen):
    """Watches and steers."""

    PLACE: ClassVar[keys.Place] = "live"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.view = Live()

    def compose(self) -> ComposeResult:
        """Title, controls, charts, panels, events, keys."""
        moment = self._moment
        yield Line(id="identity")
        yield Line(id="engines", classes="-empty")
        yield Line(id="control")
        yield Notice(id="notice", classes="-empty")
        yield Rows(id="compact")
        with Horizontal(id="charts"):
            yield Chart("tokens/s", format.tick, id="tokens", moment=moment)
            yield Chart("acceptance", "{:.0%}".format, id="acceptance", top=1.0, moment=moment)
        yield Line(id="lane")
        with Horizontal(id="panels"):
            yield Bars("acceptance by position", id="positions")
            with Vertical():
                yield Line(id="spec-heading")
                yield Rows(id="speculation")
            with Vertical():
                yield Line(id="traffic-heading")
                yield Rows(id="traffic")
        yield Line(id="gpu", classes="-empty")
        yield Line(id="events-heading")
        yield Feed(id="events")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Name the panels and have every engine followed."""
        self.query_one("#spec-heading", Line).row = heading("speculation")
        self.query_one("#events-heading", Line).row = heading("events")
        self.show()
        self.controller.start()

    def on_chart_fitted(self) -> None:
        """Charts of a stretch of time, and the lane below, follow their width."""
        self.show()

    def _moment(self, t: float) -> str:
        return format.at(t, self.context.local)

    def show(self) -> None:
        """Bring the selected engine's state onto the screen."""
        if not self.has_widgets:
            return
        controller, context, track = self.controller, self.context, self.track
        stretch = self.timeline.stretch(self._chart.columns)
        profile = () if track.load is None else (Cell(f"load {track.load}", "accent"),)
        armed = controller.engine.armed
        self.view = view = live(
            track,
            self.timeline.tracks,
            controller.selected,
            armed=armed,
            stretch=stretch,
            local=context.local,
            key_label=context.key_label,
            width=self.size.width,
        )
        with self.app.batch_update():
            self.query_one("#traffic-heading", Line).row = heading("requests", *profile)
            self.query_one("#footer", Line).row = context.footer(
                "live", self.size.width, armed=armed
            )
            self.query_one("#identity", Line).row = self.mark_title(view.identity)
            told = self.time_rows()
            self.query_one("#notice", Notice).rows = (*told, *view.notice)
            self.set_class(track.up is False, "-down")
            self.set_class(len(view.positions) > 5, "-deep")
            for attribute, names in _SHOWN.items():
                for name in names:
                    setattr(self.query_one(f"#{name}"), attribute, getattr(view, name))
            self.query_one("#compact", Rows).rows = self._brief((*told, *view.compact))
            self.query_one("#lane", Line).row = self._lane(self._chart, stretch)
            self.query_one("#events-heading", Line).row = heading("events", *self._more_events())

    def _brief(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """The short lines with the newest events below them, where there is no room for panels.

        The latest one has a row in any case: it may be why a key did nothing.
        """
        width, height = self.query_one("#compact").size
        events, room = self.track.events, height - len(rows)
        if not events or height < 2:
            return rows
        if room <= 1:
            return (*rows[: height - 1], Row((Cell(" "), Cell(events[-1].text, events[-1].tone))))
        return (*rows, *wrap_rows(self.view.events[:room], width)[:room])

    @property
    def _chart(self) -> Chart:
        chart = self.query_one("#tokens", Chart)
        return chart if chart.display else self.query_one("#acceptance", Chart)

    def _lane(self, chart: Chart, stretch: Stretch | None) -> Row:
        """What happened in the time that the charts show."""
        t, track = self.timeline.view.t, self.track
        events = () if stretch is None else stretch.events
        is_held = self.timeline.when.kind == "frozen"
        if t is None or stretch is None or is_held:
            events = (*events, *list_events(track))
        start, seconds = _chart_span(chart, track)
        if stretch is not None:
            start, seconds = stretch.start, stretch.seconds
        width, local = self.size.width, self.context.local
        return lane(
            events, start, seconds, t, width, local, self.key_label, is_past=t is not None
            and not is_held,
        )  # fmt: skip

    def _more_events(self) -> Cells:
        """In the past, that the list has more than there is room for."""
        shown, total = self.query_one("#events", Feed).size.height, len(self.view.events)
        if self.timeline.when.is_now or not 0 < shown < total:
            return ()
        key = self.context.key_label("events.open")
        listed = Cell(f"{total} up to here · ", "muted")
        return listed, Cell(key, "key"), Cell(" lists them", "muted")

    @property
    def event(self) -> PastEvent | None:
        """The event that is looked at: the latest one at the moment that is shown."""
        shown = [one for one in list_events(self.track) if one.text]
        return shown[-1] if shown else None

    def action_open_event(self) -> None:
        """See the event that is looked at, with the figures around it."""
        from specdeck.console.screens.timeline.dialogs import EventDialog

        event = self.event
        if event is not None:
            around = self.timeline.compare(event.t)
            rows = describe_event(event, around, self.context.clock(), self.context.local)
            self.app.push_screen(EventDialog(event.text, rows))

    def action_maximise(self) -> None:
        """Both charts, the first alone, the second alone."""
        now = next((name for name in _ONE_CHART[1:] if self.has_class(name)), "")
        following = _ONE_CHART[(_ONE_CHART.index(now) + 1) % len(_ONE_CHART)]
        self.remove_class(*_ONE_CHART[1:])
        if following:
            self.add_class(following)


def _chart_span(chart: Chart, track: Track) -> tuple[float, float]:
    """The first moment of a chart with a column for each reading, and the seconds on it."""
    shown = track.points[chart.first - track.total + len(track.points) :] or track.points
    if not shown:
        return 0.0, 1.0
    # To a tenth of a second: the lane would move with every reading.
    apart = round((shown[-1].t - shown[0].t) / (len(shown) - 1), 1) if len(shown) > 1 else 1.0
    return shown[0].t, max(0.1, apart) * max(1, chart.columns)
