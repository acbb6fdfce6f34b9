"""Many prompts through both arms, or one prompt many times: progress, figures, cases."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import OptionList

from specdeck.console import keys
from specdeck.console.bench import Bench, Results
from specdeck.console.screens.divergence_writing import Writing
from specdeck.console.screens.engine_screen import DetailScreen
from specdeck.console.view import divergence as split_view
from specdeck.console.view import divergence_results as view
from specdeck.console.widgets.charts import ProgressBar
from specdeck.console.widgets.text import Flow, Line, Rows
from specdeck.engine.divergence.history import compare_with_history
from specdeck.engine.divergence.lab import run
from specdeck.engine.divergence.runner import Found, Progress
from specdeck.engine.errors import SpecdeckError

if TYPE_CHECKING:
    from specdeck.console.screens.divergence import DivergenceScreen
    from specdeck.engine.divergence.prompts import PromptSet
    from specdeck.engine.store.checks import Run

PANES: Final = ("summary", "cases", "earlier")
QUIET_S = 5.0
"""A run that has told of nothing for so long waits for an engine that is down."""


class ResultsScreen(Writing, DetailScreen):
    """Runs a check while it is open; returns a prompt to see side by side, its case and its set."""

    CSS_PATH = "divergence_results.tcss"
    PLACE: ClassVar[keys.Place] = "results"
    BINDINGS = [*keys.bindings(PLACE)]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium"), (30, "-tall")]

    def __init__(self, below: DivergenceScreen, wanted: PromptSet | None, *, replay: bool) -> None:
        super().__init__(below.controller, below.context)
        self.below = below
        self.wanted = wanted
        self.replay = replay
        self.pane = "summary"
        self.progress: Progress | None = None
        self.running = self.stopped = False
        self.problem: str | None = None
        self.note: str | None = None
        self.runs: tuple[Run, ...] = ()
        self.now: int | None = None
        self.trip = 0
        """Which run this is: one that was stopped may end after the next has begun."""
        self.heard = 0.0
        """When the run last told of anything, Unix time in seconds."""

    def compose(self) -> ComposeResult:
        """Who is compared, how far, three panes, keys."""
        yield Line(id="identity")
        yield Line(id="progress")
        yield ProgressBar(id="bar")
        yield Line(id="panes")
        yield Line(id="problem", classes="-empty")
        with Horizontal(id="body"):
            with VerticalScroll(id="summary"):
                yield Flow(id="figures")
            with Vertical(id="lists"):
                yield OptionList(id="cases", markup=False, compact=True)
                with VerticalScroll(id="earlier"):
                    yield Rows(id="runs")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Show what is known, and begin what was asked for."""
        self._remember()
        known = self._known()
        if self.wanted is None and known is not None:
            self._fill(known)
        self.show_pane("summary")
        if self.wanted is not None:
            self.check()

    @property
    def bench(self) -> Bench:
        """Where labs and the store come from."""
        return self.below.bench

    def _known(self) -> Results | None:
        return self.bench.session.results.get(self.controller.engine.url)

    def results(self) -> Results | None:
        """The outcome on the screen."""
        return None if self.case is None else self._known()

    def chosen_case(self) -> Any:
        """The case under the cursor, or the gravest."""
        from specdeck.engine.divergence.bundle import choose_case

        if self.case is None:
            return None
        at = self.query_one("#cases", OptionList).highlighted
        if self.pane == "cases" and at is not None and at < len(self.case["cases"]):
            return self.case["cases"][at]
        return choose_case(self.case, None)

    def show(self) -> None:
        """Bring the state onto the screen."""
        if not self.query("#footer"):  # a worker's last word may come after the widgets have gone
            return
        footer = self.context.footer("results", self.size.width)
        what = f"{self.below.wishes.replays} replays" if self.replay else "check"
        if self.wanted is None:
            what = "last results"
        with self.app.batch_update():
            self.query_one("#footer", Line).row = footer
            self.query_one("#identity", Line).row = split_view.identity(
                self.controller.engine.name, self.below.split, self.below.reference
            )
            self.query_one("#progress", Line).row = view.progress_row(
                self.progress,
                running=self.running,
                stopped=self.stopped,
                what=what,
                spelt=self.spelt,
                kept=not self.replay,
            )
            done = self.progress
            self.query_one("#bar", ProgressBar).share = (
                done.done / done.of if done is not None and done.of else None
            )
            self.query_one("#problem", Line).row = view.remark(
                self.problem or self._away(), self.note
            )
            met = 0 if done is None else done.mismatches
            cases = met if self.case is None else len(self.case["cases"])
            counts = {"summary": None, "cases": cases, "earlier": len(self.runs)}
            self.query_one("#panes", Line).row = view.panes(self.pane, counts)
            if self.case is None:
                self.query_one("#figures", Flow).rows = view.empty(self.spelt, running=self.running)

    def _fill(self, results: Results) -> None:
        """An outcome with its cases."""
        self.case, self.replay = results.data, results.replay
        rows = view.summary(results.data, replay=results.replay)
        self.query_one("#figures", Flow).rows = rows
        listing = self.query_one("#cases", OptionList)
        listing.clear_options()
        listing.add_options([view.case_row(case) for case in results.data["cases"]])
        if results.data["cases"]:
            listing.highlighted = 0

    def _remember(self) -> None:
        """The checks of this store, of whatever engine."""
        try:
            with self.bench.checks() as checks:
                self.runs = checks.recent()
        except SpecdeckError as error:
            self.problem = error.line()
        local = self.context.local
        rows = (view.earlier_heading(), *view.earlier(self.runs, local, self.spelt, self.now))
        self.query_one("#runs", Rows).rows = rows
        self.query_one("#runs").styles.height = len(rows)

    def on_resize(self) -> None:
        """The footer names as many keys as there is room for."""
        self.show()

    def say(self, text: str, *, bad: bool = False) -> None:
        """One line under the panes' names."""
        self.note, self.problem = (None, text) if bad else (text, None)
        self.show()

    def _away(self) -> str | None:
        """What a check waits for."""
        quiet = self.context.clock() - self.heard > QUIET_S
        if not (self.running and quiet) or self.track.up is not False:
            return None
        seconds = self.below.wishes.plan().patience_s
        key = self.spelt("results.stop")
        return f"the engine does not answer: waiting for it up to {seconds:.0f} s, {key} stops"

    @work(group="check", exclusive=True)
    async def check(self) -> None:
        """Run it to its end, or until it is stopped; what was done is kept."""
        assert self.wanted is not None
        self.case, self.progress, self.problem, self.note = None, None, None, None
        self.running, self.stopped = True, False
        self.trip += 1
        trip = self.trip
        self.show()
        memory = self.bench.scratch if self.replay else self.bench.checks
        try:
            # Statistics take a second to load, which would be a second without keys.
            await asyncio.to_thread(_statistics)
            async with self.below.lab() as lab:
                with memory() as checks:
                    outcome = await run(lab, self.wanted, checks, self._said)
                    data = outcome.as_json()
                    if not self.replay:
                        runs = checks.history(lab.arms[0].url)
                        self.now = runs[0].id
                        data["history"] = compare_with_history(runs).as_json()
            self._ended(data)
        except SpecdeckError as error:
            self.problem, self.stopped = error.line(), self.progress is not None
        finally:
            self.running = self.running and self.trip != trip
        self.show()

    def _said(self, event: Progress | Found) -> None:
        self.heard = self.context.clock()
        if isinstance(event, Progress):
            self.progress = event
            self.show()

    def _ended(self, data: dict[str, Any]) -> None:
        assert self.wanted is not None
        results = Results(data, self.wanted, self.below.wishes, self.replay)
        self.bench.session.results[self.controller.engine.url] = results
        self._fill(results)
        self._remember()

    def action_stop(self) -> None:
        """Stop; a check keeps what was done."""
        if self.running:
            self.workers.cancel_group(self, "check")
            self.running, self.stopped = False, True
            self.show()

    def action_again(self) -> None:
        """Go on, or begin anew; after a replay that was finished, check the set."""
        if self.running:
            return
        if self.wanted is None or (self.replay and self.case is not None):
            self.dismiss(None)
            self.below.call_later(self.below.action_batch)
            return
        self.check()

    def leave(self) -> None:
        """Both arms again; a check that runs is stopped, and that is said."""
        if self.running and self.progress is not None:
            done = f"{self.progress.done} of {self.progress.of}"
            kept = (
                "forgotten" if self.replay else f"kept: {self.spelt('check.batch')} goes on with it"
            )
            text = f"at {done}, {kept}"
            self.below.split.note = ("stopped", text)
            self.controller.tell(f"check stopped {text}", "warn")
        self.workers.cancel_group(self, "check")
        self.dismiss(None)

    def action_pane(self, by: int) -> None:
        """The next pane."""
        self.show_pane(PANES[(PANES.index(self.pane) + by) % len(PANES)])

    def action_show_pane(self, name: str) -> None:
        """One pane."""
        self.show_pane(name)

    def show_pane(self, name: str) -> None:
        """Bring a pane to the front and give it the arrows."""
        self.remove_class(*(f"-{pane}" for pane in PANES))
        self.pane = name
        self.add_class(f"-{name}")
        self.query_one(f"#{name}").focus()
        self.show()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """See a case side by side."""
        results, case = self.results(), self.chosen_case()
        if results is None or case is None:
            return
        if self.pane != "cases":
            self.show_pane("cases")
            return
        prompt = self.looked_up(results.prompts, case["prompt"])
        if prompt is not None:
            self.dismiss((prompt, case, results.prompts))


def _statistics() -> None:
    import scipy.stats  # noqa: F401
