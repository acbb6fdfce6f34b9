"""Many prompts through both arms, or one prompt many times: progress, figures, cases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import OptionList

from specdeck.console import keys, screenshots
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.divergence import results_view as view
from specdeck.console.screens.divergence import view as split_view
from specdeck.console.screens.divergence.prompt_file import find_aside, is_large
from specdeck.console.screens.engine_screen import DetailScreen, now_only
from specdeck.console.screens.timeline.view import explain_check
from specdeck.console.state.check import CheckContext, CheckResults, SplitCheck
from specdeck.console.state.controller import Controller
from specdeck.console.state.copies import Copyable, copy_case, list_check_copies
from specdeck.console.widgets.cells import Tone
from specdeck.console.widgets.charts import ProgressBar
from specdeck.console.widgets.options import LineList
from specdeck.console.widgets.text import Flow, Line, Notice, Rows
from specdeck.engine.divergence import statistics
from specdeck.engine.divergence.bundle import case_page, choose_case
from specdeck.engine.divergence.history import keep_readable
from specdeck.engine.divergence.prompts import Prompt, PromptSet
from specdeck.engine.divergence.report import check_markdown
from specdeck.engine.divergence.runner import CheckProgress
from specdeck.engine.errors import SpecdeckError, UsageError
from specdeck.engine.operations.check import CheckEvent, CheckResult, run_check
from specdeck.engine.store.checks import open_or_spare
from specdeck.engine.text import printable

if TYPE_CHECKING:
    from specdeck.engine.divergence.running import RunningFigures
    from specdeck.engine.store.checks import Run

PANES: Final = ("summary", "cases", "earlier")
QUIET_S = 5.0
"""A run that has told of nothing for so long waits for an engine that is down."""


@dataclass(frozen=True, slots=True)
class OpenedCase:
    """A case that is to be seen side by side."""

    prompt: Prompt
    case: dict[str, Any]
    prompts: PromptSet


class ResultsScreen(DetailScreen):
    """Runs a check while it is open, and shows what it found."""

    CSS_PATH = "results.tcss"
    PLACE: ClassVar[keys.Place] = "results"
    BINDINGS = [*keys.bindings(PLACE)]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium"), (30, "-tall")]

    def __init__(
        self,
        controller: Controller,
        context: ConsoleContext,
        split: SplitCheck,
        wanted: PromptSet | None,
        *,
        replay: bool,
        on_open: Callable[[OpenedCase], None],
        on_check: Callable[[], None],
    ) -> None:
        """`split` has arms and choices; without `wanted` the last results are shown.

        Once this screen is gone, `on_open` takes a case to see, and `on_check` checks the set.
        """
        super().__init__(controller, context)
        self.split_check = split
        self.case: dict[str, Any] | None = None
        """The results on the screen, as `check --json` prints them."""
        self.wanted = wanted
        self._on_open = on_open
        self._on_check = on_check
        self.replay = replay
        self.pane = "summary"
        self.progress: CheckProgress | None = None
        self.figures: RunningFigures | None = None
        """What the run under way has found so far."""
        self.running = self.stopped = False
        self.problem: str | None = None
        self.note: str | None = None
        self.runs: tuple[Run, ...] = ()
        self.now: int | None = None
        self.trip = 0
        """Which run this is: one that was stopped may end after the next has begun."""
        self.told_at = 0.0
        """When the run last told of anything, Unix time in seconds."""

    def compose(self) -> ComposeResult:
        """Who is compared, how far, three panes, keys."""
        yield Line(id="identity")
        yield Notice(id="time", classes="-empty")
        yield Line(id="progress")
        yield ProgressBar(id="bar")
        yield Line(id="panes")
        yield Line(id="problem", classes="-empty")
        with Horizontal(id="body"):
            with VerticalScroll(id="summary"):
                yield Flow(id="figures")
            with Vertical(id="lists"):
                yield LineList(id="cases", markup=False, compact=True)
                with VerticalScroll(id="earlier"):
                    yield Rows(id="runs")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Show what is known, and begin what was asked for."""
        self._remember()
        last = self._last_results
        if self.wanted is None and last is not None:
            self._fill(last)
        self.action_show_pane("summary")
        if self.wanted is not None:
            self.check()

    @property
    def _last_results(self) -> CheckResults | None:
        return self.split_check.session.results.get(self.controller.engine.url)

    def results(self) -> CheckResults | None:
        """The outcome on the screen."""
        return None if self.case is None else self._last_results

    def chosen_case(self) -> Any:
        """The case under the cursor, or the gravest."""
        if self.case is None:
            return None
        at = self.query_one("#cases", OptionList).highlighted
        if self.pane == "cases" and at is not None and at < len(self.case["cases"]):
            return self.case["cases"][at]
        return choose_case(self.case, None)

    def show(self) -> None:
        """Bring the state onto the screen."""
        if not self.has_widgets:
            return
        what = f"{self.split_check.session.options.replays} replays" if self.replay else "check"
        if self.wanted is None:
            last = self._last_results
            ended = "" if last is None else f" · {view.moment(last.ended, self.context.local)}"
            what = f"last results{ended}"
        with self.app.batch_update():
            self.query_one("#footer", Line).row = self.context.footer("results", self.size.width)
            title = split_view.identity(
                self.controller.engine.name, self.split_check.split, self.split_check.reference
            )
            self.query_one("#identity", Line).row = self.mark_title(title)
            about = (explain_check(self.key_label),) if self.is_past else ()
            self.query_one("#time", Notice).rows = (*self.time_rows(), *about)
            self.set_class(self.is_past, "-past")
            done = self.progress
            self.query_one("#progress", Line).row = view.progress_row(
                done, running=self.running, stopped=self.stopped, what=what,
                key_label=self.key_label, kept=not self.replay,
            )  # fmt: skip
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
                self.query_one("#figures", Flow).rows = (
                    tuple(view.so_far(self.figures, running=self.running))
                    if self.figures is not None and self.figures.differ.of
                    else view.empty(self.key_label, running=self.running)
                )

    def _fill(self, results: CheckResults) -> None:
        """An outcome with its cases."""
        self.case, self.replay = results.data, results.replay
        rows = view.summary(results.data, replay=results.replay)
        self.query_one("#figures", Flow).rows = tuple(rows)
        listing = self.query_one("#cases", OptionList)
        listing.clear_options()
        listing.add_options(map(view.case_row, results.data["cases"]))
        if results.data["cases"]:
            listing.highlighted = 0

    def _remember(self) -> None:
        """The checks of this store, of whatever engine."""
        try:
            with self.split_check.context.open_checks() as checks:
                self.runs, unread = keep_readable(checks.history(limit=20))
                if left_out := (*checks.left_out, *unread):
                    self.problem = "; ".join(left_out)
        except SpecdeckError as error:
            self.problem = error.line()
        local = self.context.local
        rows = (view.earlier_heading(), *view.earlier(self.runs, local, self.key_label, self.now))
        self.query_one("#runs", Rows).rows = rows
        self.query_one("#runs").styles.height = len(rows)

    async def find_copies(self) -> Sequence[Copyable]:
        """The case under the cursor with its requests as curl, the figures, the command."""
        case, results = self.chosen_case(), self.results()
        prompt: Prompt | None = None
        if case is not None and results is not None:
            with self.say_errors(), self._say_search(results, case):
                prompt = await find_aside(results.prompts, case["prompt"])
        context = self.split_check.context
        # It may have been left while the file was searched.
        rows = [row for one in self.query("#figures").results(Flow) for row in one.rows]
        told = "\n".join(printable("".join(cell.text for cell in row.left).strip()) for row in rows)
        return [
            *([] if case is None else [copy_case(case)]),
            Copyable("figures", told),
            *list_check_copies(
                self.split_check, self.controller.engine.url, prompt, keyed=context.keyed
            ),
        ]

    def say(self, text: str, *, bad: bool = False) -> None:
        """One line under the panes' names."""
        self.note, self.problem = (None, text) if bad else (text, None)
        self.show()

    @contextmanager
    def _say_search(self, results: CheckResults, case: Mapping[str, Any]) -> Iterator[None]:
        """Says what is looked for in a large file until it is found, or not looked for any more."""
        before, searching = self.note, None
        if is_large(results.prompts.path):
            searching = f"looking for prompt {case['prompt']} in {results.prompts.path.name}"
            self.say(searching)
        try:
            yield
        finally:
            if searching is not None and self.note == searching:
                self.note = before
                self.show()

    def _away(self) -> str | None:
        """What a check waits for."""
        quiet = self.context.clock() - self.told_at > QUIET_S
        if not (self.running and quiet) or self.track.up is not False:
            return None
        seconds = self.split_check.session.options.retry_s
        key = self.key_label("results.stop")
        return f"the engine does not answer: waiting for it up to {seconds:.0f} s, {key} stops"

    @work(group="check", exclusive=True)
    async def check(self) -> None:
        """Run it to its end, or until it is stopped; what was done is kept."""
        assert self.wanted is not None
        self.case, self.progress, self.problem, self.note = None, None, None, None
        self.figures = None
        self.running, self.stopped = True, False
        self.trip += 1
        trip = self.trip
        self.show()
        context = self.split_check.context
        memory = context.open_scratch if self.replay else context.open_checks
        unstored: SpecdeckError | None = None
        result: CheckResult | None = None
        try:
            await asyncio.to_thread(statistics.load)  # a second without keys, else
            async with self.split_check.open_arms() as pair:
                with open_or_spare(memory, context.open_scratch) as (checks, unstored):
                    async with aclosing(run_check(pair, self.wanted, checks)) as events:
                        async for event in events:
                            self._take(event)
                            result = event if isinstance(event, CheckResult) else result
            assert result is not None  # it ends so, or raises
            self._finish(result, unstored=unstored or result.unstored)
        except SpecdeckError as error:
            self.problem, self.stopped = error.line(), self.progress is not None
        finally:
            self.running = self.running and self.trip != trip
        self.show()

    def _take(self, event: CheckEvent) -> None:
        self.told_at = self.context.clock()
        if isinstance(event, CheckProgress):
            self.progress = event
            self.figures = event.figures or self.figures
            self.show()

    def _finish(self, result: CheckResult, *, unstored: SpecdeckError | None) -> None:
        assert self.wanted is not None
        data = result.as_json()
        if self.replay:  # in a store of its own, it has no history
            data = {**data, "history": None}
        else:
            self.now = result.run if unstored is None else None
            tones: dict[str, Tone] = {"pass": "good", "fail": "bad"}
            said = f"check {data['verdict']}: {data['reason']}"
            self.controller.tell(said, tones.get(data["verdict"], "warn"), kind="check")
        options = self.split_check.session.options
        results = CheckResults(data, self.wanted, options, self.replay, self.context.clock())
        self.split_check.session.results[self.controller.engine.url] = results
        self._fill(results)
        self._remember()
        if unstored is not None:
            self.problem = f"this check is not stored: {unstored.line()}"

    def action_stop(self) -> None:
        """Stop; a check keeps what was done."""
        if self.running:
            self.workers.cancel_group(self, "check")
            self.running, self.stopped = False, True
            self.show()

    @now_only
    def action_again(self) -> None:
        """Go on, or begin anew; after a replay that was finished, check the set."""
        if self.running:
            return
        if self.wanted is None or (self.replay and self.case is not None):
            self.dismiss()
            self.app.call_later(self._on_check)
            return
        self.check()

    def leave(self) -> None:
        """Both arms again; a check that runs is stopped, and that is said."""
        if self.running and self.progress is not None:
            done = f"{self.progress.done} of {self.progress.of}"
            resumes = f"kept: {self.key_label('check.batch')} goes on with it"
            text = f"at {done}, {'forgotten' if self.replay else resumes}"
            self.split_check.split.note = ("stopped", text)
            self.controller.tell(f"check stopped {text}", "warn", kind="check")
        self.workers.cancel_group(self, "check")
        self.dismiss(None)

    @now_only
    def action_pane(self, by: int) -> None:
        """The next pane."""
        self.action_show_pane(PANES[(PANES.index(self.pane) + by) % len(PANES)])

    def action_show_pane(self, name: str) -> None:
        """Bring a pane to the front and give it the arrows."""
        self.remove_class(*(f"-{pane}" for pane in PANES))
        self.pane = name
        self.add_class(f"-{name}")
        self.query_one(f"#{name}").focus()
        self.show()

    @on(OptionList.OptionSelected)
    def _open_selected(self) -> None:
        self.action_open()

    @now_only
    def action_open(self) -> None:
        """See a case side by side."""
        results, case = self.results(), self.chosen_case()
        if results is None or case is None:
            return
        if self.pane != "cases":
            self.action_show_pane("cases")
            return
        self._open_case(results, case)

    @work(group="seek", exclusive=True)
    async def _open_case(self, results: CheckResults, case: dict[str, Any]) -> None:
        """Once its prompt is found; another screen that was opened meanwhile stays."""
        with self.say_errors(), self._say_search(results, case):
            prompt = require_prompt(await find_aside(results.prompts, case["prompt"]))
            if self.is_active:
                self.dismiss()
                self.app.call_later(self._on_open, OpenedCase(prompt, case, results.prompts))

    def action_report(self) -> None:
        """Write the results down in Markdown, and say where they are."""
        with self.say_errors():
            self.say(save_report(self.split_check.context, self.results()))

    @work(group="seek", exclusive=True)
    async def action_bundle(self) -> None:
        """Write one case down so that others can see it, and say where that is."""
        with self.say_errors():
            results, case = require_case(self.results(), self.chosen_case())
            with self._say_search(results, case):
                path = await save_case(self.split_check.context, results, case)
            self.say(path)


def save_report(context: CheckContext, results: CheckResults | None) -> str:
    """Writes the results down in Markdown; where they are. Raises UsageError where it cannot."""
    if results is None:
        raise UsageError("nothing is measured yet, so there is no report")
    return _write_page(context, "check", check_markdown(results.data))


def require_case(
    results: CheckResults | None, case: Mapping[str, Any] | None
) -> tuple[CheckResults, Mapping[str, Any]]:
    """Results and a case of them to write down; raises UsageError where there is none."""
    if results is None:
        raise UsageError("nothing is measured yet, so there is no case to bundle")
    if case is None:
        raise UsageError("nothing differs, so there is no case to bundle")
    return results, case


async def save_case(context: CheckContext, results: CheckResults, case: Mapping[str, Any]) -> str:
    """Writes one case down so that others can see it; where it is. Raises SpecdeckError.

    The file of prompts is searched in a thread where it is large.
    """
    prompt = require_prompt(await find_aside(results.prompts, case["prompt"]))
    settings = results.options.settings
    page = case_page(results.data, case, prompt, settings, keyed=context.keyed)
    return _write_page(context, "case", page)


def require_prompt(prompt: Prompt | None) -> Prompt:
    """A prompt that was looked for; raises UsageError where it is in its file no longer."""
    if prompt is None:
        raise UsageError("the prompt is no longer in its file")
    return prompt


def _write_page(context: CheckContext, kind: str, content: str) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())

    def write(folder: Path) -> str:
        path = folder / f"specdeck-{kind}-{stamp}.md"
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
        return str(path)

    try:
        return screenshots.save(write, context.folders())
    except OSError as error:
        raise UsageError(f"not written: {error}") from error
