"""Both arms side by side, up to the first token that differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.timer import Timer

from specdeck.console import keys
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.divergence import view
from specdeck.console.screens.divergence.dialogs import CheckForm, PickedPrompt, PromptPicker
from specdeck.console.screens.divergence.prompt_file import find_aside, load_aside
from specdeck.console.screens.divergence.results import (
    OpenedCase,
    ResultsScreen,
    require_case,
    require_prompt,
    save_case,
    save_report,
)
from specdeck.console.screens.engine_screen import DetailScreen, now_only
from specdeck.console.screens.timeline.view import explain_check
from specdeck.console.state.check import CheckResults, Split, SplitCheck
from specdeck.console.state.controller import Controller
from specdeck.console.state.copies import Copyable, list_check_copies
from specdeck.console.widgets.charts import Candidates
from specdeck.console.widgets.text import Flow, Line, Notice, Passage
from specdeck.engine.divergence.prompts import (
    Copies,
    Prompt,
    PromptSet,
    repeat_prompt,
    source_name,
)
from specdeck.engine.divergence.race import NAMES
from specdeck.engine.divergence.report import case_line
from specdeck.engine.errors import SpecdeckError
from specdeck.engine.operations.check import CheckOptions

REDRAW_S = 0.1
"""Between two pictures of a stream: a link is slow, and so are eyes."""
SLOW_REDRAW_S = 2.0
"""The same on a poor line."""


class DivergenceScreen(DetailScreen):
    """Asks both arms the same, and stops where they part."""

    CSS_PATH = "screen.tcss"
    PLACE: ClassVar[keys.Place] = "check"
    BINDINGS = [*keys.bindings(PLACE)]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.check = SplitCheck(controller, context.check, self.show)
        self.session = self.check.session
        self.found: PromptSet | None = None
        """The set that the prompt is of."""
        self._sought: int | None = None
        """The number of a prompt that is looked for."""
        self._redraw: Timer | None = None
        self._version: int | None = None
        """Of the engine's knobs when it was last said who is compared; None before."""

    @property
    def split(self) -> Split:
        """What is known of the prompt on the screen."""
        return self.check.split

    def compose(self) -> ComposeResult:
        """Who is compared, the prompt, the two arms, what was found, keys."""
        yield Line(id="identity")
        yield Notice(id="time", classes="-empty")
        yield Line(id="asked")
        with Horizontal(id="arms"):
            for name in NAMES:
                with Vertical(id=name):
                    yield Line(id=f"{name}-heading")
                    yield Passage(id=f"{name}-says")
                    yield Line(id=f"{name}-token", classes="-empty")
                    yield Candidates(id=f"{name}-candidates")
        yield Flow(id="findings")
        yield Line(id="footer")

    def on_mount(self) -> None:
        """Find out what can be compared with what."""
        ours, theirs = (self.query_one(f"#{arm}-says", Passage) for arm in NAMES)
        ours.beside, theirs.beside = theirs, ours
        apart_s = SLOW_REDRAW_S if self.context.slow else REDRAW_S
        self._redraw = self.set_interval(apart_s, self.show, pause=True)
        self.show()
        self._begin()

    def show(self) -> None:
        """Bring the state onto the screen."""
        if not self.has_widgets:
            return
        self._follow_knobs()
        split, session = self.split, self.session
        found = self.found
        count = found.count if found is not None and not session.typed else None
        source = "typed" if session.typed else session.source.rpartition("/")[2]
        name = self.controller.engine.name
        with self.app.batch_update():
            self.query_one("#footer", Line).row = self.context.footer("check", self.size.width)
            title = view.identity(name, split, self.check.reference)
            self.query_one("#identity", Line).row = self.mark_title(title)
            self.query_one("#time", Notice).rows = self.time_rows()
            self.set_class(self.is_past, "-past")
            asked = view.prompt_row(session.prompt, source, count, self.key_label)
            self.query_one("#asked", Line).row = asked
            for arm in NAMES:
                self.query_one(f"#{arm}-heading", Line).row = view.arm_heading(split, arm)
                self.query_one(f"#{arm}-says", Passage).cells = view.passage(split, arm)
                self.query_one(f"#{arm}-token", Line).row = view.candidates_heading(split, arm)
                bars = self.query_one(f"#{arm}-candidates", Candidates)
                bars.bars = view.candidates(split, arm)
                bars.display = bool(bars.bars)
            elsewhere = self.context.check is not None
            findings = view.findings(split, self.key_label, elsewhere=elsewhere)
            told = (explain_check(self.key_label),) if self.is_past else tuple(findings)
            self.query_one("#findings", Flow).rows = told

    def _follow_knobs(self) -> None:
        """Say anew who is compared where the engine was changed since, unless both were asked: then
        their headings are of the time at which they were."""
        state, split = self.track.state, self.split
        version = None if state is None or self.is_past else state.version
        was, self._version = self._version, self._version if version is None else version
        asked = split.running or split.verdict is not None or any(
            side.tokens for side in split.sides.values()
        )  # fmt: skip
        if was is not None and was != self._version and not asked:
            self.describe()

    def list_copies(self) -> Sequence[Copyable]:
        """Both requests of the prompt as curl, the check as a command, and the prompt."""
        keyed = self.context.check is not None and self.context.check.keyed
        url, prompt = self.controller.engine.url, self.session.prompt
        return [*list_check_copies(self.check, url, prompt, keyed=keyed), *super().list_copies()]

    def say(self, text: str, *, bad: bool = False) -> None:
        """One line below the arms."""
        split = self.split
        if bad and (split.arms is not None or split.problem is None):
            split.note, split.problem = None, text
        else:  # why nothing can be compared outlives what a key could not do
            split.note = ("not done" if bad else "wrote", text)
        self.show()

    @work(group="begin", exclusive=True)
    async def _begin(self) -> None:
        """Take the prompts of the set or file, the first one where none is chosen, and find out
        what can be compared with what."""
        try:
            self.found = await load_aside(self.session.source)
            if self.session.prompt is None:
                self.session.prompt = self.found.find(1)
        except SpecdeckError as error:
            self.split.problem = error.line()
        self.show()
        self.describe()

    @now_only
    def action_next(self, by: int) -> None:
        """Another prompt of the set."""
        if self.found is None or self.session.prompt is None:
            return
        if self._sought is not None:  # whoever holds a key down goes on from there
            number = self._sought + by
        else:
            number = 1 if self.session.typed else self.session.prompt.number + by
        self._sought = (number - 1) % self.found.count + 1
        self._seek(self.found, self._sought)

    @work(group="seek", exclusive=True)
    async def _seek(self, prompts: PromptSet, number: int) -> None:
        """Take a prompt by its number, unless another one was chosen until it is found."""
        found: Prompt | None = None
        with self.say_errors():
            found = require_prompt(await find_aside(prompts, number))
        if self._sought == number:
            self._sought = None
            if found is not None:
                self.choose(found)

    def choose(self, prompt: Prompt, *, typed: bool = False, recorded: str | None = None) -> None:
        """Take a prompt; what is known of another one goes."""
        self.workers.cancel_group(self, "race")
        self._sought = None
        self.check.choose(prompt, typed=typed, recorded=recorded)
        self.show()

    @work(group="describe", exclusive=True)
    async def describe(self) -> None:
        """Say who is compared with whom before anything is asked."""
        await self.check.describe()
        self.show()

    @now_only
    @work(group="race", exclusive=True)
    async def action_race(self) -> None:
        """Ask both arms, and show what they say as they say it."""
        assert self._redraw is not None
        self._redraw.resume()
        try:
            await self.check.ask()
        finally:
            if not self.split.running:
                self._redraw.pause()
        self.show()

    def action_stop(self) -> None:
        """Ask no further."""
        if self.split.running:
            self.workers.cancel_group(self, "race")
            self.split.running = False
            self.split.note = ("stopped", f"{self.key_label('check.run')} asks both arms again")
            self.show()

    @now_only
    def action_prompt(self) -> None:
        """Type a prompt, or choose one."""
        dialog = PromptPicker(self.session.source, self.key_label("prompt.chat"))
        self.app.push_screen(dialog, self._take_prompt)

    def _take_prompt(self, picked: PickedPrompt | None) -> None:
        if picked is None:
            return
        if picked.source is not None:
            self.session.source, self.found = picked.source, picked.found
        self.choose(picked.prompt, typed=picked.source is None)
        self.action_race()

    @now_only
    def action_edit(self) -> None:
        """Change the options."""
        self.app.push_screen(CheckForm(self.session.options), self._take_options)

    def _take_options(self, options: CheckOptions | None) -> None:
        if options is None:
            return
        if options.reference != self.session.options.reference:
            self.workers.cancel_group(self, "race")
            self.check.split = Split()
        self.session.options = options
        self.show()
        self.describe()

    @now_only
    def action_replay(self) -> None:
        """The prompt of the screen, many times over."""
        if self.session.prompt is not None:
            count = self.session.options.replays
            self._show_results(repeat_prompt(self.session.prompt, count), replay=True)

    @now_only
    @work(group="ask", exclusive=True)
    async def action_batch(self) -> None:
        """The prompts of the set."""
        try:
            prompts = await load_aside(self.session.source, self.session.options.prompts)
        except SpecdeckError as error:
            self.split.problem = error.line()
            self.show()
        else:
            if self.is_active:  # another screen that was opened meanwhile stays, with its keys
                self._show_results(prompts, replay=False)

    @now_only
    def action_results(self) -> None:
        """What was found last, and before."""
        self._show_results(None, replay=False)

    def _show_results(self, wanted: PromptSet | None, *, replay: bool) -> None:
        if self.context.check is not None:
            screen = ResultsScreen(
                self.controller, self.context, self.check, wanted,
                replay=replay, on_open=self._open, on_check=self.action_batch,
            )  # fmt: skip
            self.app.push_screen(screen)

    def _open(self, opened: OpenedCase) -> None:
        """See a case of a check again, with both arms."""
        line, found = case_line(opened.case), opened.prompts
        if isinstance(found, Copies):
            same = found.prompt == self.session.prompt
            self.choose(found.prompt, typed=self.session.typed or not same, recorded=line)
        else:
            source = source_name(found.path)
            if self.found is None or self.session.source != source:
                self.session.source, self.found = source, found
            self.choose(opened.prompt, recorded=line)
        self.action_race()

    def results(self) -> CheckResults | None:
        """The prompt that was asked last, as a check of one."""
        if self.check.data is None or self.session.prompt is None:
            return None
        copies = repeat_prompt(self.session.prompt, 1)
        return CheckResults(
            self.check.data, copies, self.session.options, False, self.context.clock()
        )

    def action_report(self) -> None:
        """Write the outcome down in Markdown, and say where it is."""
        with self.say_errors():
            self.say(save_report(self.check.context, self.results()))

    @work(group="bundle", exclusive=True)
    async def action_bundle(self) -> None:
        """Write the case down so that others can see it, and say where that is."""
        cases = [] if self.check.data is None else self.check.data["cases"]
        with self.say_errors():
            results, case = require_case(self.results(), next(iter(cases), None))
            self.say(await save_case(self.check.context, results, case))
