"""The live screen: follows every engine and shows one."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.engine_screen import SteeringScreen
from specdeck.console.screens.live.view import Live, live
from specdeck.console.state.controller import Controller
from specdeck.console.state.engine_state import Track
from specdeck.console.widgets import format
from specdeck.console.widgets.cells import Cell, heading
from specdeck.console.widgets.charts import Bars, Chart
from specdeck.console.widgets.text import Feed, Line, Notice, Rows

_ONE_CHART: Final = ("", "-only-tokens", "-only-acceptance")
"""Classes that `m` goes through: both charts, one, the other."""
_SHOWN: Final = {
    "row": ("identity", "engines", "control", "gpu"),
    "rows": ("notice", "compact", "speculation", "traffic", "events"),
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
        self.frozen: tuple[int, Track, float] | None = None
        """The engine that is held still, as it was, and since when in Unix time."""

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

    def _moment(self, t: float) -> str:
        return format.at(t, self.context.local)

    def show(self) -> None:
        """Bring the selected engine's state onto the screen."""
        if not self.has_widgets:
            return
        controller, context = self.controller, self.context
        track, frozen_for = controller.track, None
        if self.frozen is not None and self.frozen[0] == controller.selected:
            _, track, since = self.frozen
            frozen_for = context.clock() - since
        profile = () if controller.load is None else (_load(controller.load.profile),)
        armed = controller.engine.armed
        self.view = view = live(
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
            for attribute, names in _SHOWN.items():
                for name in names:
                    setattr(self.query_one(f"#{name}"), attribute, getattr(view, name))

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
