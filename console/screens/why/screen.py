"""The why screen: watches the engine at once, and shows causes as soon as there are some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens import head
from specdeck.console.screens.engine_screen import DetailScreen, now_only
from specdeck.console.screens.timeline.view import explain_why
from specdeck.console.screens.why import view
from specdeck.console.state.controller import Controller
from specdeck.console.state.why import WhyLook
from specdeck.console.widgets.cells import Cell, beyond
from specdeck.console.widgets.text import Line, Notice, Rows, wrap_rows
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.text import oneline

if TYPE_CHECKING:
    from specdeck.console.state.copies import Copyable

LOOK_S = 30.0


class WhyScreen(DetailScreen):
    """Ranks what makes the selected engine accept less or work slower."""

    CSS_PATH = "screen.tcss"
    PLACE: ClassVar[keys.Place] = "why"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(
        self, controller: Controller, context: ConsoleContext, *, seconds: float = LOOK_S
    ) -> None:
        super().__init__(controller, context)
        self.seconds = seconds
        self.found: WhyLook | None = None
        """None where there is no engine to ask."""
        self.top = 0
        """Rows above the first one that is shown."""
        self._said: Cell | None = None
        self._suggested: tuple[str, str] | None = None
        """The URL of the engine that causes were shown of last, and what they suggest to try."""
        self._moment: float | None = None
        """The moment of the past that `found` is of; None of an engine as it is."""

    def compose(self) -> ComposeResult:
        """Who, how many causes, the causes, keys."""
        yield Line(id="identity")
        yield Notice(id="time", classes="-empty")
        yield Line(id="why-heading")
        yield Rows(id="why")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Look at once."""
        self.action_again()

    def on_resize(self) -> None:
        """Words wrap elsewhere, once the list has its size."""
        self.call_after_refresh(self.show)

    @property
    def _past_moment(self) -> float | None:
        """The moment of what was recorded that is shown; None for an engine as it is."""
        return self.timeline.view.t if self.timeline.when.kind != "frozen" else None

    def action_again(self) -> None:
        """Watch the engine anew; in the past, judge what was recorded around this moment."""
        index, url = self.controller.selected, self.controller.engine.url
        if self.found is not None and not self.found.is_open:
            suggested = view.suggest_trial(self.found)
            self._suggested = None if suggested is None else (self.found.url, suggested)
        self.top, self._said, self._moment = 0, None, self._past_moment
        if self._moment is not None:
            self.found = WhyLook(url, 0.0, self.context.options(url))
            self._recall()
            self.show()
            return
        client = self.controller.find_client(index)
        self.found = (
            None
            if client is None
            else WhyLook(client.url, self.seconds, self.context.options(client.url))
        )
        self._watch()
        self.show()

    @work(group="why", exclusive=True)
    async def _watch(self) -> None:
        look, client = self.found, self.controller.find_client(self.controller.selected)
        if look is not None and client is not None:
            await look.run(client, self.show, self.timeline.find_box())

    @work(group="why", exclusive=True)
    async def _recall(self) -> None:
        look = self.found
        assert look is not None
        try:
            recorded = self.timeline.find_recorded()
        except SpecdeckError as error:
            look.error = error
        else:
            await look.recall(*recorded)
        self.show()

    def show(self) -> None:
        """Bring what is known onto the screen."""
        if not self.has_widgets:
            return
        moment = self._past_moment
        if moment != self._moment and moment is None:
            self.action_again()
            return
        width, listed = self.size.width, self.query_one("#why", Rows)
        found = view.rows(self.track, self.found, self.context.local)
        # Causes of one moment are not shown as those of another.
        stale = moment != self._moment
        if stale or (moment is not None and self.found is not None and self.found.is_open):
            found = (explain_why(self.key_label, stale=stale),)
        height = max(1, listed.size.height)
        lines = wrap_rows(found, max(20, width - 2))
        self.top = max(0, min(self.top, len(lines) - height))
        with self.app.batch_update():
            title = head.title(self.track, armed=self.controller.engine.armed)
            self.query_one("#identity", Line).row = self.mark_title(title)
            self.query_one("#time", Notice).rows = self.time_rows()
            more = beyond(self.top, height, len(lines))
            heading = view.title(None if stale else self.found, self._said, more)
            self.query_one("#why-heading", Line).row = heading
            listed.rows = tuple(lines[self.top : self.top + height])
            self.query_one("#footer", Line).row = self.context.footer("why", width)

    @now_only
    def action_trial(self) -> None:
        """Ask whether to try what was suggested, and have the engine judge it."""
        suggested, state = view.suggest_trial(self.found), self.track.known
        self._said = None
        if suggested is None and (earlier := self._find_earlier()) is not None:
            # Out of the past one comes here to try what was found there, and not to wait for it.
            self.say("the causes that were shown before suggest it")
            suggested = earlier
        elif suggested is None and state is not None:
            # A k that no cause suggests would look like one that they do.
            self.say("no cause suggests a trial: the k that is set is filled in")
            suggested = f"k={state.k_set}"
        self.show()

        def watch_it() -> None:
            self.call_later(self.run_action, "app.open_screen('tuning')")

        self.ask_trial(suggested, watch_it)

    def _find_earlier(self) -> str | None:
        """What the causes that were shown before suggest, while this engine is watched anew."""
        found, last = self.found, self._suggested
        if found is None or last is None or not found.is_open or last[0] != found.url:
            return None
        return last[1]

    def say(self, text: str, *, bad: bool = False) -> None:
        """In the heading, until the next look."""
        self._said = Cell(oneline(text), "warn" if bad else "muted")
        self.show()

    def list_copies(self) -> Sequence[Copyable]:
        """The commands to try, and what each is for."""
        return [*view.list_copies(self.found, self.context.local), *super().list_copies()]

    def action_scroll(self, key: str) -> None:
        """Up or down; `show` keeps it within."""
        page = max(1, self.query_one("#why").size.height - 1)
        by = {"up": -1, "down": 1, "pageup": -page, "pagedown": page, "home": -self.top}
        self.top = max(0, self.top + by.get(key, 1_000_000))
        self.show()

    def action_next_load(self) -> None:
        """The next load profile."""
        self.controller.next_load()

    def action_step(self, by: int) -> None:
        """Show another engine."""
        self.action_select(self.controller.selected + by)

    def action_select(self, index: int) -> None:
        """Look at the engine at `index`."""
        self.controller.select(index)
        self.action_again()
