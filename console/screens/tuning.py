"""The curve over k, the policy and its breaker, trials, the ledger."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from specdeck.console import keys
from specdeck.console.screens.over import OverScreen
from specdeck.console.screens.piloting import PilotingScreen
from specdeck.console.screens.steering import SteeringScreen
from specdeck.console.view import panels, sweeping, tuning
from specdeck.console.view.tuning_curve import curve
from specdeck.console.widgets.cells import heading
from specdeck.console.widgets.charts import CurveBars
from specdeck.console.widgets.text import Feed, Line, Notice

LOOK_S = 1.0
_NORMAL = 72
"""Cells from which on there is room for two columns."""
_BELOW = 8
"""Lines for everything but the curve, as long as the curve keeps a few."""
_LEAST = 5
"""Lines of the curve: title, heads, the k in force and one beside it, a note."""


class TuningScreen(OverScreen):
    """Shows what k is worth and who chooses it; every steering key works here too."""

    CSS_PATH = "tuning.tcss"
    PLACE: ClassVar[keys.Place] = "tuning"
    BINDINGS = [*keys.bindings(*keys.GROUPS[PLACE])]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_NORMAL, "-normal"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium"), (34, "-tall")]

    def __init__(self, live: SteeringScreen) -> None:
        super().__init__(live)
        assert isinstance(live, PilotingScreen)  # the only one that opens screens
        self.pilot = live

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
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Name the panels, and look at the engine as long as this screen is open."""
        self.query_one("#status-heading", Line).row = heading("policy and breaker")
        self.query_one("#feed-heading", Line).row = heading("what moved k")
        self.look()
        self.set_interval(LOOK_S, self.look)
        self.show()

    def on_resize(self) -> None:
        """The curve takes as many lines as are left for it."""
        self.show()

    def look(self) -> None:
        """Ask for the tuning, unless another screen lies over this one."""
        if self.is_current:
            self.pilot.look(self.pilot.selected)

    def show(self) -> None:
        """Bring what is known onto the screen."""
        if not self.is_mounted:
            return
        live = self.pilot
        track, local = live.tracks[live.selected], live.desk.local
        swept = sweeping.swept(live.runs.get(live.selected), local, self.spelt)
        bars = self.query_one(CurveBars)
        narrow = self.size.width < _NORMAL  # its class comes after the first picture
        footer = self.console.footer("tuning", self.size.width, armed=live.engine.armed)
        with self.app.batch_update():
            self.query_one("#footer", Line).row = footer
            self.query_one("#identity", Line).row = panels.title(track, armed=live.engine.armed)
            self.query_one("#engines", Line).row = panels.strip(
                tuple(live.tracks), live.selected, self.spelt
            )
            self.query_one("#control", Line).row = (
                panels.brief_control(track) if narrow else panels.control(track)
            )
            self.query_one("#notice", Notice).rows = panels.notice(track, None, local, self.spelt)
            bars.curve = curve(track, swept, self.spelt)
            bars.styles.height = min(bars.lines, max(_LEAST, self.size.height - _BELOW))
            self.query_one("#status", Feed).rows = tuning.status(track, self.spelt)
            self.query_one("#feed", Feed).rows = tuning.feed(track, local, live.desk.who)

    # Whatever steers is the live screen's to do: its workers outlive this one.

    def action_change_k(self, by: int) -> None:
        """k up or down."""
        self.pilot.action_change_k(by)

    def action_set_k(self, k: int) -> None:
        """k at once."""
        self.pilot.action_set_k(k)

    def action_toggle_mode(self) -> None:
        """From speculation to target-only, or back."""
        self.pilot.action_toggle_mode()

    def action_toggle_policy(self) -> None:
        """Have the goodput policy choose k, or take k back."""
        self.pilot.action_toggle_policy()

    def action_undo(self) -> None:
        """Take the last change back."""
        self.pilot.action_undo()

    def action_arm(self) -> None:
        """Allow changes."""
        self.pilot.action_arm()

    def action_breaker(self) -> None:
        """Open the breaker, or reset it."""
        self.pilot.action_breaker()

    def action_trial(self) -> None:
        """Try something."""
        self.pilot.action_trial()

    def action_sweep(self) -> None:
        """Sweep k, or stop the sweep."""
        self.pilot.action_sweep()

    def action_parameters(self) -> None:
        """Edit parameters."""
        self.pilot.action_parameters()

    def action_next_load(self) -> None:
        """The next load profile."""
        self.pilot.action_next_load()

    def action_step(self, by: int) -> None:
        """Another engine."""
        self.action_select((self.pilot.selected + by) % len(self.pilot.tracks))

    def action_select(self, index: int) -> None:
        """The engine at `index`."""
        self.pilot.selected = index
        self.look()
        self.pilot.show()
