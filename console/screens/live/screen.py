"""The live screen: follows every engine and shows one."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.reactive import reactive

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.engine_screen import SteeringScreen
from specdeck.console.screens.live.view import Live, live
from specdeck.console.state.controller import Controller
from specdeck.console.state.engine_state import Track
from specdeck.console.widgets import format
from specdeck.console.widgets.blocks import Series
from specdeck.console.widgets.cells import Bar, Cell, Row, heading
from specdeck.console.widgets.charts import Bars, Chart
from specdeck.console.widgets.text import Feed, Line, Notice, Rows

_ONE_CHART: Final = ("", "-only-tokens", "-only-acceptance")
"""Classes that `m` goes through: both charts, one, the other."""


class LiveScreen(SteeringScreen):
    """Watches and steers."""

    PLACE: ClassVar[keys.Place] = "live"
    BINDINGS = [*keys.bindings(PLACE)]

    identity: reactive[Row] = reactive(Row(), repaint=False)
    engines: reactive[Row] = reactive(Row(), repaint=False)
    control: reactive[Row] = reactive(Row(), repaint=False)
    notice: reactive[tuple[Row, ...]] = reactive((), repaint=False)
    tokens: reactive[Series] = reactive(Series(), repaint=False)
    acceptance: reactive[Series] = reactive(Series(), repaint=False)
    positions: reactive[tuple[Bar, ...]] = reactive((), repaint=False)
    speculation: reactive[tuple[Row, ...]] = reactive((), repaint=False)
    traffic: reactive[tuple[Row, ...]] = reactive((), repaint=False)
    gpu: reactive[Row] = reactive(Row(), repaint=False)
    events: reactive[tuple[Row, ...]] = reactive((), repaint=False)
    compact: reactive[tuple[Row, ...]] = reactive((), repaint=False)

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.frozen: tuple[int, Track, float] | None = None
        """The engine that is held still, as it was, and since when in Unix time."""

    def compose(self) -> ComposeResult:
        """Title, controls, charts, panels, events, keys."""
        moment = self._moment
        yield Line(id="identity").data_bind(row=LiveScreen.identity)
        yield Line(id="engines", classes="-empty").data_bind(row=LiveScreen.engines)
        yield Line(id="control").data_bind(row=LiveScreen.control)
        yield Notice(id="notice", classes="-empty").data_bind(rows=LiveScreen.notice)
        yield Rows(id="compact").data_bind(rows=LiveScreen.compact)
        with Horizontal(id="charts"):
            yield Chart("tokens/s", format.tick, id="tokens", moment=moment).data_bind(
                series=LiveScreen.tokens
            )
            yield Chart(
                "acceptance", "{:.0%}".format, id="acceptance", top=1.0, moment=moment
            ).data_bind(series=LiveScreen.acceptance)
        with Horizontal(id="panels"):
            yield Bars("acceptance by position", id="positions").data_bind(
                bars=LiveScreen.positions
            )
            with Vertical():
                yield Line(id="spec-heading")
                yield Rows(id="speculation").data_bind(rows=LiveScreen.speculation)
            with Vertical():
                yield Line(id="traffic-heading")
                yield Rows(id="traffic").data_bind(rows=LiveScreen.traffic)
        yield Line(id="gpu", classes="-empty").data_bind(row=LiveScreen.gpu)
        yield Line(id="events-heading")
        yield Feed(id="events").data_bind(rows=LiveScreen.events)
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Name the panels and have every engine followed."""
        self.query_one("#spec-heading", Line).row = heading("speculation")
        self.query_one("#events-heading", Line).row = heading("events")
        self.show()
        self.controller.start()

    def _moment(self, t: float) -> str:
        return format.at(t, self.context.local)

    def show(self) -> None:
        """Bring the selected engine's state onto the screen."""
        controller, context = self.controller, self.context
        track, frozen_for = controller.track, None
        if self.frozen is not None and self.frozen[0] == controller.selected:
            _, track, since = self.frozen
            frozen_for = context.clock() - since
        profile = () if controller.load is None else (_load(controller.load.profile),)
        armed = controller.engine.armed
        view = live(
            track,
            tuple(controller.tracks),
            controller.selected,
            armed=armed,
            frozen_for=frozen_for,
            local=context.local,
            key_label=context.key_label,
        )
        with self.app.batch_update():
            self.query_one("#traffic-heading", Line).row = heading("requests", *profile)
            self.query_one("#footer", Line).row = context.footer(
                "live", self.size.width, armed=armed
            )
            self.set_class(track.up is False, "-down")
            self.set_class(len(view.positions) > 5, "-deep")
            for field in fields(Live):
                setattr(self, field.name, getattr(view, field.name))

    def action_freeze(self) -> None:
        """Hold the view still, or let it go on."""
        controller = self.controller
        if self.frozen is not None and self.frozen[0] == controller.selected:
            self.frozen = None
        else:
            self.frozen = (controller.selected, controller.track, self.context.clock())
        self.show()

    def action_select(self, index: int) -> None:
        """Show the engine at `index`, as it is at this moment."""
        self.frozen = None
        super().action_select(index)

    def action_maximise(self) -> None:
        """Both charts, the first alone, the second alone."""
        now = next((name for name in _ONE_CHART[1:] if self.has_class(name)), "")
        following = _ONE_CHART[(_ONE_CHART.index(now) + 1) % len(_ONE_CHART)]
        self.remove_class(*_ONE_CHART[1:])
        if following:
            self.add_class(following)


def _load(profile: str) -> Cell:
    return Cell(f"load {profile}", "accent")
