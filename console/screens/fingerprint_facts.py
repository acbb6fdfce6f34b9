"""Names, facts as a tree, and what differs: what the fingerprint screen shows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.events import Resize
from textual.widgets import Input
from textual.worker import Worker

from specdeck.console import keys, screenshots
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.engine_screen import DetailScreen
from specdeck.console.state.controller import Controller
from specdeck.console.view import fingerprint as view
from specdeck.console.view.fingerprint import Against
from specdeck.console.view.fingerprint_list import Listing, moves
from specdeck.console.view.fingerprint_tree import Node, Place, entries, opened, tree
from specdeck.console.widgets.cells import Cell, Row, heading
from specdeck.console.widgets.text import Line, Notice, Rows, wrap_rows
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.compare import Comparison, compare
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.operations.fingerprint import Fingerprints

POLL_S = 1.0
"""Between two looks at an engine that reads its weights."""


class FactsScreen(DetailScreen):
    """Follows one engine's fingerprint; what is done with it is a subclass's."""

    CSS_PATH = "fingerprint.tcss"
    AUTO_FOCUS = ""  # keys belong to the list until somebody searches
    PLACE: ClassVar[keys.Place] = "fingerprint"
    BINDINGS = [*keys.bindings(*keys.GROUPS[PLACE])]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium"), (34, "-tall")]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.flown = controller.engine
        self.seen: Fingerprint | None = None
        self.error: SpecdeckError | None = None
        self.against: Against | None = None
        self.follows_pin = True
        """Whether the pin is what it is compared with, whichever that is by then."""
        self.pinned: Fingerprint | None = None
        """What the engine's watch held as its pin when that was last looked at."""
        self.comparison: Comparison | None = None
        self.nodes: tuple[Node, ...] = ()
        self.unfolded: frozenset[Place] = frozenset()
        self.changes = False
        self.listing = Listing()
        self.asked: str | None = None
        """The path's name at the last look."""
        self.tried = 0
        """Readings of the engine when a look that had failed was last begun anew."""
        self.looker: Worker[None] | None = None
        self.probe: tuple[int, int] | None = None
        """Answers so far, and of how many, while the probe set is asked."""
        self.said: tuple[Row, ...] = ()
        """What the last key brought, until the next one."""

    def compose(self) -> ComposeResult:
        """Title, names, verdict, facts, search, keys."""
        yield Line(id="title")
        yield Rows(id="names")
        yield Notice(id="said", classes="-empty")
        yield Line(id="facts-heading")
        yield Rows(id="facts")
        yield Input(placeholder="part of a fact or of its value", id="search")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Look at the engine and at its pin."""
        self.show()
        self.begin()

    def on_resize(self, event: Resize) -> None:
        """Another number of facts fits."""
        self.call_after_refresh(self.paint)

    @property
    def fingerprints(self) -> Fingerprints | None:
        """Fingerprints and pins; None in a console that was given none."""
        return None if self.context.watches is None else self.context.watches.fingerprints

    def show(self) -> None:
        """Look again when the live screen's engine has another name."""
        track = self.track
        if track.up is False and track.reading is not None:
            self.error = track.reading.error
        elif self.asked is not None:
            name = track.state.fingerprint if track.state is not None else self.asked
            # Every engine's reading comes by here: a look that is on its way is let be.
            again = self.error is not None and track.total != self.tried
            if name != self.asked or (again and (self.looker is None or self.looker.is_finished)):
                self.asked, self.tried = name, track.total
                self.looker = self.look()
        self._follow_pin()
        self.paint()

    def _follow_pin(self) -> None:
        """Compare with the pin that the engine has by now, whoever wrote it."""
        watches = self.context.watches
        pinned = None if watches is None else watches.find_pinned(self.flown.url)
        if pinned is self.pinned:
            return
        self.pinned = pinned
        if self.follows_pin:
            self._compare_with_pin(pinned)

    def _compare_with_pin(self, pinned: Fingerprint | None) -> None:
        self.against = None
        if pinned is not None and self.fingerprints is not None:
            self.against = Against("pin", pinned, self.fingerprints.pin_place(self.flown.url))
        self.compare()

    @work(group="fingerprint")
    async def begin(self) -> None:
        """The pin, then the engine."""
        if self.fingerprints is None:
            self.error = self._nothing()
            self.paint()
            return
        try:
            pinned = await self.fingerprints.read_pin(self.flown.url)
        except SpecdeckError as error:
            self.say(error.line(), bad=True)
        else:
            self._compare_with_pin(pinned)
        self.look()

    def _nothing(self) -> SpecdeckError:
        """Why no facts can be asked for."""
        if self.track.recorded:
            why = "this is a recording: it has the path's name and no facts"
            return SpecdeckError(why, remedy="`specdeck attach URL` asks its engine")
        return SpecdeckError("this console keeps no fingerprints")

    @work(group="look", exclusive=True)
    async def look(self) -> None:
        """Ask the engine for its facts, again and again while it reads its weights."""
        if self.fingerprints is None:
            return
        while True:
            try:
                seen = await self.fingerprints.fetch(self.flown.url, ask_own=self.seen is None)
            except SpecdeckError as error:
                self.error = error
                self.asked = self.asked or ""
                self.paint()
                return
            self.took(seen)
            if seen.progress.finished:
                return
            await asyncio.sleep(POLL_S)

    def took(self, seen: Fingerprint) -> None:
        """Show a newer look; what was not asked this time stays known."""
        old = self.seen
        if old is not None and old.path == seen.path and old.instance == seen.instance:
            own = seen.system_fingerprint or old.system_fingerprint
            behaviour = seen.behaviour or old.behaviour
            seen = replace(seen, behaviour=behaviour, system_fingerprint=own)
        self.seen, self.error, self.asked = seen, None, seen.path
        self.compare()

    def compare(self) -> None:
        """The comparison anew; branches with a difference are unfolded."""
        if self.seen is None:
            return
        ready = self.against is not None and self.seen.progress.finished
        self.comparison = (
            compare(self.against.seen, self.seen) if self.against is not None and ready else None
        )
        self.nodes = tree(self.seen.facts, self.comparison)
        self.unfolded |= opened(self.nodes)
        self.refill()

    def refill(self) -> None:
        """The list of facts anew, after another fold or search."""
        found = entries(
            self.nodes,
            self.unfolded,
            search=self.query_one("#search", Input).value.strip(),
            changes=self.changes and self.comparison is not None,
            quiet=self.comparison is not None,
        )
        self.listing = self.listing.refilled(found, self.height)
        self.paint()

    @property
    def height(self) -> int:
        """Facts that can be seen at once."""
        return max(1, self.query_one("#facts").size.height)

    def say(self, text: str, *, bad: bool = False) -> None:
        """What a key brought, beneath the names."""
        self.said = (Row((Cell(" "), Cell(text, "bad" if bad else "accent"))),)
        self.paint()

    def paint(self) -> None:
        """Bring everything that is known onto the screen."""
        if not self.is_mounted:
            return
        label = self.against.label if self.against is not None else ""
        where = None
        if self.against is not None and self.against.place is not None:
            where = screenshots.spelt(self.against.place, Path.home())
        with self.app.batch_update():
            self.query_one("#footer", Line).row = self.context.footer(
                "fingerprint", self.size.width
            )
            self.query_one("#title", Line).row = view.title(
                self.flown.name, self.flown.url, self.against, where, self.spelt
            )
            self.query_one("#names", Rows).rows = view.names(
                self.seen, self.comparison, label, self.spelt, self.track
            )
            self.query_one("#said", Notice).rows = self._verdict()
            self.query_one("#facts-heading", Line).row = self._heading()
            self.listing = self.listing.moved(0, self.height)
            self.query_one("#facts", Rows).rows = self.listing.rows(self.height)

    def _verdict(self) -> tuple[Row, ...]:
        rows = list(self.said)
        if self.probe is not None:
            rows.append(view.probing(*self.probe))
        if self.error is not None:
            rows.append(view.trouble(self.error))
        elif self.seen is None:
            rows.append(Row((Cell(" asking the engine for its facts", "muted"),)))
        elif not self.seen.progress.finished:
            rows.append(view.reading(self.seen.progress))
        whole = [row for row in rows if row.right]
        text = [row for row in rows if not row.right]
        text += [*view.verdict(self.comparison), *view.unknown(self.seen)]
        most = max(2, self.size.height // 3)
        return (*whole, *wrap_rows(text, max(20, self.size.width - 1)))[:most]

    def _heading(self) -> Row:
        facts = sum(node.facts for node in self.nodes)
        differing = sum(node.differing for node in self.nodes)
        cells = [Cell(f"{facts} facts", "muted")]
        if self.comparison is not None:
            cells.append(Cell(f" · {differing} differ", "warn" if differing else "muted"))
        search = self.query_one("#search", Input).value.strip()
        kind = "changes" if self.changes and self.comparison is not None else "facts"
        return heading(f"{kind} with {search!r}" if search else kind, *cells)

    def action_move(self, key: str) -> None:
        """The cursor up or down."""
        self.listing = self.listing.moved(moves(self.height)[key], self.height)
        at = self.listing.at
        # A value that the list cuts short is read here.
        cut = at is not None and not at.branch and len(at.text) > self.size.width - 4
        self.said = (Row((Cell(" "), Cell(at.text, "plain"))),) if cut and at else ()
        self.paint()

    def action_fold(self) -> None:
        """Fold or unfold the branch under the cursor; from a fact, fold its branch."""
        at = self.listing.at
        if at is None:
            return
        place = at.place if at.branch else at.place[:-1]
        self.unfolded ^= {place}
        self.refill()
        self.listing = self.listing.found(place, self.height)
        self.paint()

    def action_unfold(self) -> None:
        """Everything unfolded, or everything folded."""
        every = opened(self.nodes, everything=True)
        self.unfolded = frozenset() if every <= self.unfolded else every
        self.refill()

    def action_changes(self) -> None:
        """What differs alone, or every fact."""
        if self.comparison is None:
            chooses, pins = self.spelt("fingerprint.against"), self.spelt("fingerprint.pin")
            self.say(f"nothing to compare with: {chooses} chooses, {pins} pins")
            return
        self.changes = not self.changes
        self.refill()

    def action_search(self) -> None:
        """Type what to look for."""
        self.query_one("#search", Input).add_class("-open").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Facts that match so far."""
        event.stop()
        self.refill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the list."""
        event.stop()
        self._leave_search()

    def action_back(self) -> None:
        """Out of a search, or back to the live screen."""
        search = self.query_one("#search", Input)
        if search.has_focus or search.value:
            search.value = ""
            self._leave_search()
        else:
            super().action_back()

    def _leave_search(self) -> None:
        search = self.query_one("#search", Input)
        self.set_focus(None)
        search.set_class(bool(search.value), "-open")
        self.refill()
