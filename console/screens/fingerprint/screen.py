"""The fingerprint screen: follows one engine's names and facts, compares, pins and probes."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.worker import Worker

from specdeck.console import keys, screenshots
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.engine_screen import DetailScreen, now_only
from specdeck.console.screens.fingerprint import view
from specdeck.console.screens.fingerprint.dialogs import AgainstScreen, Side, overwrite_dialog
from specdeck.console.screens.fingerprint.facts import FactsList
from specdeck.console.screens.fingerprint.view import Against
from specdeck.console.state.controller import Controller
from specdeck.console.state.copies import Copyable
from specdeck.console.state.timeline import RecordedEngine
from specdeck.console.state.watches import EngineWatches
from specdeck.console.widgets.cells import Cell, Row
from specdeck.console.widgets.search import SearchField
from specdeck.console.widgets.text import Line, Notice, Rows, wrap_rows
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.fingerprint.compare import Comparison, compare
from specdeck.engine.fingerprint.fingerprint import Fingerprint
from specdeck.engine.operations.fingerprint import Fingerprints
from specdeck.engine.text import oneline, printable

POLL_S = 1.0
"""Between two fetches from an engine that reads its weights."""

MOMENTS = 100
"""Earlier fingerprints that can be chosen to compare with."""


class FingerprintScreen(DetailScreen):
    """Shows one engine's fingerprint, and what differs from its pin or from another one."""

    CSS_PATH = "screen.tcss"
    AUTO_FOCUS = ""  # keys belong to the list until somebody searches
    PLACE: ClassVar[keys.Place] = "fingerprint"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.engine = controller.engine
        self.facts = FactsList()
        self.fingerprint: Fingerprint | None = None
        self.error: SpecdeckError | None = None
        """Why the last fetch brought nothing."""
        self.against: Against | None = None
        self.comparison: Comparison | None = None
        self._follows_pin = True
        """Whether it is compared with the engine's pin, whoever writes another one."""
        self._pinned: Fingerprint | None = None
        """What the engine's watch held as its pin at the last reading."""
        self._path: str | None = None
        """The path's name at the last fetch; None before the first one."""
        self._readings = 0
        """Readings of the engine when a fetch that had failed was last begun again."""
        self._fetching: Worker[None] | None = None
        self._probe: tuple[int, int] | None = None
        """Answers so far, and of how many, while the probe set is asked."""
        self._notice: tuple[Row, ...] = ()
        """What the last key brought, until the next one."""

    def compose(self) -> ComposeResult:
        """Title, names, verdict, facts, search, keys."""
        yield Line(id="title")
        yield Notice(id="time", classes="-empty")
        yield Rows(id="names")
        yield Notice(id="said", classes="-empty")
        yield Line(id="facts-heading")
        yield Rows(id="facts")
        yield SearchField(placeholder="part of a fact or of its value", id="search")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Look at the engine and at its pin."""
        self.show()
        self.begin()

    def on_resize(self) -> None:
        """Another number of facts fits, once the list has its height."""
        self.call_after_refresh(self.paint)

    def list_copies(self) -> Sequence[Copyable]:
        """The fact under the cursor, the engine's names, and the commands of this screen."""
        url = shlex.quote(self.engine.url)
        at = None if self.is_past else self.facts.at
        chosen = [] if at is None else [Copyable("fact", oneline(at.text))]
        commands = (("show", "show"), ("pin", "pin"), ("verify", "verify"))
        return [
            *chosen,
            *super().list_copies(),
            *(
                Copyable(name, printable(f"specdeck fingerprint {word} {url}"))
                for name, word in commands
            ),
        ]

    @property
    def fingerprints(self) -> Fingerprints | None:
        """Fingerprints and pins; None in a console that was given none."""
        return None if self.context.watches is None else self.context.watches.fingerprints

    def show(self) -> None:
        """Fetch again when the engine has another name, compare again when it has another pin."""
        track = self.controller.track
        if track.up is False and track.reading is not None:
            self.error = track.reading.error
        elif self._path is not None:
            path = track.state.fingerprint if track.state is not None else self._path
            # Every engine's reading comes by here: a fetch that is on its way is let be.
            is_idle = self._fetching is None or self._fetching.is_finished
            is_retry = self.error is not None and track.total != self._readings and is_idle
            if path != self._path or is_retry:
                self._path, self._readings = path, track.total
                self._fetching = self.fetch()
        watches = self.context.watches
        pinned = None if watches is None else watches.find_pinned(self.engine.url)
        if pinned is not self._pinned:
            self._pinned = pinned
            if self._follows_pin:
                self._compare(self._against_pin(pinned))
        self.paint()

    @work(group="fingerprint")
    async def begin(self) -> None:
        """The pin, then the engine."""
        if self.fingerprints is None:
            found = self.engine.fingerprint if isinstance(self.engine, RecordedEngine) else None
            if found is not None:
                self._take(found)
            else:
                self.error = self._explain_missing()
            self.paint()
            return
        with self.say_errors():
            self._compare(self._against_pin(await self.fingerprints.read_pin(self.engine.url)))
        self.fetch()

    def _explain_missing(self) -> SpecdeckError:
        """Why no facts can be asked for."""
        if self.track.recorded:
            why = "this is a recording: it has names and no facts"
            remedy = "an incident file has them; `specdeck attach URL` asks its engine"
            return SpecdeckError(why, remedy=remedy)
        return SpecdeckError("this console keeps no fingerprints")

    @work(group="fetch", exclusive=True)
    async def fetch(self) -> None:
        """Ask the engine for its facts, again and again while it reads its weights."""
        if self.fingerprints is None:
            return
        while True:
            try:
                found = await self.fingerprints.fetch(
                    self.engine.url, ask_own=self.fingerprint is None
                )
            except SpecdeckError as error:
                self.error = error
                self._path = self._path or ""
                self.paint()
                return
            self._take(found)
            if found.progress.finished:
                return
            await asyncio.sleep(POLL_S)

    def _take(self, found: Fingerprint) -> None:
        """Show a newer fingerprint; what was not asked this time stays known."""
        old = self.fingerprint
        if old is not None and old.path == found.path and old.instance == found.instance:
            own = found.system_fingerprint or old.system_fingerprint
            behaviour = found.behaviour or old.behaviour
            found = replace(found, behaviour=behaviour, system_fingerprint=own)
        self.fingerprint, self.error, self._path = found, None, found.path
        self._compare(self.against)

    def _against_pin(self, pinned: Fingerprint | None) -> Against | None:
        if pinned is None or self.fingerprints is None:
            return None
        return Against("pin", pinned, self.fingerprints.pin_place(self.engine.url))

    def _compare(self, against: Against | None) -> None:
        """Compare with something, or with nothing."""
        self.against, self.comparison, found = against, None, self.fingerprint
        if found is not None:
            if against is not None and found.progress.finished:
                self.comparison = compare(against.fingerprint, found)
            self.facts.show(found.facts, self.comparison)
        self.paint()

    @property
    def newer_name(self) -> str | None:
        """The path's name by a reading after the facts that are shown, where it is another one:
        of another model after a restart, or of another k."""
        found, reading = self.fingerprint, self.controller.track.reading
        if found is None or reading is None or reading.state is None or reading.t < found.t:
            return None
        name = reading.state.fingerprint
        return None if name == found.path else name

    def say(self, text: str, *, bad: bool = False) -> None:
        """What a key brought, beneath the names."""
        self._notice = (Row((Cell(" "), Cell(text, "bad" if bad else "accent"))),)
        self.paint()

    def paint(self) -> None:
        """Bring everything that is known onto the screen."""
        if not self.has_widgets:
            return
        name, url, width = self.engine.name, self.engine.url, self.size.width
        label, where = "", None
        if self.against is not None:
            label, place = self.against.label, self.against.place
            where = None if place is None else screenshots.abbreviate_home(place)
        self.facts.height = max(1, self.query_one("#facts").size.height)
        with self.app.batch_update():
            self.query_one("#footer", Line).row = self.context.footer("fingerprint", width)
            past = self.is_past
            is_lone = past or self.fingerprints is None  # nothing to compare with, and no pin
            title = view.title(name, url, self.against, where, self.key_label, past=is_lone)
            self.query_one("#title", Line).row = self.mark_title(title)
            self.query_one("#time", Notice).rows = self.time_rows()
            seen, compared = self.fingerprint, self.comparison
            if past:
                seen = None
            if past or self.newer_name is not None:
                compared = None
            self.query_one("#names", Rows).rows = view.names(
                seen, compared, label, self.key_label, self.track
            )
            self.query_one("#said", Notice).rows = view.facts_unknown() if past else self._verdict()
            # A count of none would say that there are none.
            is_empty = past or (self.fingerprints is None and seen is None)
            self.query_one("#facts-heading", Line).row = Row() if is_empty else self.facts.heading()
            self.query_one("#facts", Rows).rows = () if past else self.facts.rows()

    def _verdict(self) -> tuple[Row, ...]:
        rows = [*self._notice, *view.status(self.fingerprint, self.error, self._probe)]
        newer, compared = self.newer_name, self.comparison
        if newer is not None:
            rows.append(view.older_names(newer))
            compared = None
        whole = [row for row in rows if row.right]
        text = [row for row in rows if not row.right]
        if self.fingerprints is None and self.fingerprint is not None:
            text = [*view.as_of(self.fingerprint, self.context.local), *text]
        text += [*view.verdict(compared), *view.unknown(self.fingerprint)]
        most = max(2, self.size.height // 3)
        return (*whole, *wrap_rows(text, max(20, self.size.width - 1)))[:most]

    def action_move(self, key: str) -> None:
        """The cursor up or down."""
        self.facts.move(key)
        at = self.facts.at
        # A value that the list cuts short is read here.
        is_cut = at is not None and not at.branch and len(at.text) > self.size.width - 4
        self._notice = (Row((Cell(" "), Cell(at.text, "plain"))),) if is_cut and at else ()
        self.paint()

    def action_fold(self) -> None:
        """Fold or unfold the branch under the cursor; from a fact, fold its branch."""
        self.facts.fold()
        self.paint()

    def action_unfold(self) -> None:
        """Everything unfolded, or everything folded."""
        self.facts.unfold()
        self.paint()

    def action_changes(self) -> None:
        """Only what differs, or every fact."""
        if self.comparison is None:
            chooses, pins = self.key_label("fingerprint.against"), self.key_label("fingerprint.pin")
            self.say(f"nothing to compare with: {chooses} chooses, {pins} pins")
            return
        self.facts.toggle_changes()
        self.paint()

    def action_search(self) -> None:
        """Type what to look for."""
        self.query_one(SearchField).begin()

    @on(SearchField.Searched)
    def find(self, event: SearchField.Searched) -> None:
        """Facts that match so far."""
        self.facts.search_for(event.wanted)
        self.paint()

    def action_back(self) -> None:
        """Out of a search, or back to the live screen."""
        if not self.query_one(SearchField).end():
            super().action_back()

    @now_only
    def action_against(self) -> None:
        """Choose what to compare with: a dialog that is filled once it is known what there is."""
        fingerprints = self.fingerprints
        if fingerprints is None:
            self.say("nothing to compare: the engine's facts are not known", bad=True)
            self.drop_what_is_typed()
            return

        def begin(side: Side | None) -> None:
            if side is not None:
                self._notice = ()
                self._compare_with(fingerprints, side)

        dialog = AgainstScreen()
        self.app.push_screen(dialog, begin)
        self._list_sides(fingerprints, dialog)

    @work(group="sides", exclusive=True)
    async def _list_sides(self, fingerprints: Fingerprints, dialog: AgainstScreen) -> None:
        dialog.fill(await self._find_sides(fingerprints))

    @work(group="against", exclusive=True)
    async def _compare_with(self, fingerprints: Fingerprints, side: Side) -> None:
        with self.say_errors():
            against = await self._fetch_side(fingerprints, side)
            self._follows_pin = side.kind == "pin"
            self._compare(against)

    async def _find_sides(self, fingerprints: Fingerprints) -> tuple[Side, ...]:
        """What there is to compare with."""
        sides, url = [], self.engine.url
        place = fingerprints.pin_place(url)
        if _is_there(place):
            sides.append(Side("pin", f"the pin  {place.name}"))
        for engine in self.controller.engines:
            if engine.url != url:
                sides.append(Side("engine", f"{engine.name}  {engine.url}", engine.url))
        with self.say_errors():
            for one in await fingerprints.moments(url, limit=MOMENTS):
                label = view.moment(one, self.context.local, self.context.clock())
                sides.append(Side("moment", label, str(one.number)))
        return (*sides, Side("nothing", "nothing: facts alone"))

    async def _fetch_side(self, fingerprints: Fingerprints, side: Side) -> Against | None:
        """What was chosen, as it is now; None for nothing."""
        if side.kind == "pin":
            return self._against_pin(await fingerprints.read_pin(self.engine.url))
        if side.kind == "engine":
            names = {engine.url: engine.name for engine in self.controller.engines}
            label = names.get(side.value, side.value)
            return Against(label, await fingerprints.fetch(side.value))
        if side.kind == "moment":
            found = await fingerprints.moments(number=int(side.value))
            return next((Against(f"@{one.number}", one.fingerprint) for one in found), None)
        return None

    @now_only
    def action_pin(self) -> None:
        """Keep what is shown as what is expected of this engine, after a question where something
        is kept already."""
        found, watches = self.fingerprint, self.context.watches
        if watches is None or found is None or self.error is not None:
            self.say("nothing to pin: the engine's facts are not known", bad=True)
            self.drop_what_is_typed()
            return
        if not found.progress.finished:
            self.say("not yet: the engine still reads its weights", bad=True)
            self.drop_what_is_typed()
            return
        if self.newer_name is not None:
            self.say("not pinned: the engine has another fingerprint by now", bad=True)
            self.drop_what_is_typed()
            return
        place = watches.fingerprints.new_pin_place(self.engine.url)
        if not _is_there(place):
            self._pin(found, watches)
            return

        def overwrite(choice: str | None) -> None:
            now = self.fingerprint
            if not choice:
                return
            is_same = now is not None and (now.path, now.instance) == (found.path, found.instance)
            if not is_same or self.newer_name is not None:
                self.say("not pinned: the engine has another fingerprint by now", bad=True)
            else:
                self._pin(found, watches)

        opened_by = self.context.key_names("fingerprint.pin")
        self.app.push_screen(overwrite_dialog(place, opened_by), overwrite)

    @work(group="pin", exclusive=True)
    async def _pin(self, found: Fingerprint, watches: EngineWatches) -> None:
        with self.say_errors():
            written = await watches.fingerprints.pin(found)
            watches.adopt(written)
            self._follows_pin = True
            self._compare(Against("pin", found, written.place))
            self.say(f"pinned {found.path} in {screenshots.abbreviate_home(written.place)}")

    @now_only
    @work(group="probe")
    async def action_probe(self) -> None:
        """Ask the probe set; the answers are the third name."""
        if self._probe is not None:
            return
        found, watches = self.fingerprint, self.context.watches
        if watches is None or found is None or self.error is not None:
            self.say("nothing to probe: the engine's facts are not known", bad=True)
            return
        self._notice = ()
        self._show_probe(0, 1)
        try:
            with self.say_errors():
                pinned = watches.find_pinned(found.url)
                found = await watches.fingerprints.fetch_with_behaviour(
                    found.url,
                    beside=None if pinned is None else pinned.behaviour,
                    on_answer=self._show_probe,
                )
                self._take(found)
                watches.judge(found)
        finally:
            self._probe = None
        self.paint()

    def _show_probe(self, done: int, of: int) -> None:
        self._probe = (done, of)
        self.paint()

    @now_only
    def action_save(self) -> None:
        """Save the diff as text."""
        if self.comparison is None or self.against is None:
            key = self.key_label("fingerprint.against")
            self.say(f"nothing to save: {key} chooses what to compare with")
            return
        text = view.diff(self.comparison, self.against.label)
        engine, now = self.engine.name.replace("/", "-"), int(self.context.clock())
        name = f"specdeck-fingerprint-{engine}-{now}.diff".replace(":", "-")

        def write(folder: Path) -> str:
            # Never through what lies there: the folder may be one that others write in.
            with (folder / name).open("x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return str(folder / name)

        try:
            path = screenshots.save(write, self.context.folders())
        except OSError as error:
            self.say(f"not saved: {error}", bad=True)
        else:
            self.say(f"saved {path}")


def _is_there(place: Path) -> bool:
    """Whether something lies there; also where that cannot be told, which the next step says."""
    try:
        return place.exists()
    except OSError:
        return True
