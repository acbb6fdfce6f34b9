"""Both arms side by side, up to the first token that differs."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from specdeck.console import keys
from specdeck.console.bench import Results
from specdeck.console.context import ConsoleContext
from specdeck.console.screens.divergence_race import RacingScreen
from specdeck.console.screens.divergence_writing import Writing
from specdeck.console.state.controller import Controller
from specdeck.console.view import divergence as view
from specdeck.console.view.divergence import Split
from specdeck.console.widgets.charts import Candidates
from specdeck.console.widgets.text import Flow, Line, Passage
from specdeck.engine.divergence.prompts import (
    Copies,
    PromptSet,
    load_prompts,
    repeat_prompt,
    source_name,
)
from specdeck.engine.divergence.race import NAMES
from specdeck.engine.divergence.report import case_line
from specdeck.engine.errors import SpecdeckError


class DivergenceScreen(RacingScreen, Writing):
    """Asks both arms the same, and stops where they part."""

    CSS_PATH = "divergence.tcss"
    PLACE: ClassVar[keys.Place] = "check"
    BINDINGS = [*keys.bindings(PLACE)]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (110, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-medium"), (34, "-tall")]

    def __init__(self, controller: Controller, context: ConsoleContext) -> None:
        super().__init__(controller, context)
        self.found: PromptSet | None = None
        """The set that the prompt is of."""

    def compose(self) -> ComposeResult:
        """Who is compared, the prompt, the two arms, what was found, keys."""
        yield Line(id="identity")
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
        self.ready()
        self._load(self.session.source)
        self.show()
        self.describe()

    def show(self) -> None:
        """Bring the state onto the screen."""
        if not self.query("#footer"):  # a worker's last word may come after the widgets have gone
            return
        split, session = self.split, self.session
        prompt, found = session.prompt, self.found
        count = found.count if found is not None and not session.typed else None
        source = "typed" if session.typed else session.source.rpartition("/")[2]
        name = self.controller.engine.name
        footer = self.context.footer("check", self.size.width)
        with self.app.batch_update():
            self.query_one("#footer", Line).row = footer
            self.query_one("#identity", Line).row = view.identity(name, split, self.reference)
            self.query_one("#asked", Line).row = view.prompt_row(prompt, source, count, self.spelt)
            for arm in NAMES:
                self.query_one(f"#{arm}-heading", Line).row = view.arm_heading(split, arm)
                self.query_one(f"#{arm}-says", Passage).cells = view.passage(split, arm)
                self.query_one(f"#{arm}-token", Line).row = view.candidates_heading(split, arm)
                bars = self.query_one(f"#{arm}-candidates", Candidates)
                bars.bars = view.candidates(split, arm)
                bars.display = bool(bars.bars)
            self.query_one("#findings", Flow).rows = view.findings(
                split, self.spelt, elsewhere=self.context.bench is not None
            )

    def on_resize(self) -> None:
        """The footer names as many keys as there is room for."""
        self.show()

    def say(self, text: str, *, bad: bool = False) -> None:
        """One line below the arms."""
        split = self.split
        if bad and (split.arms is not None or split.problem is None):
            split.note, split.problem = None, text
        else:  # why nothing can be compared outlives what a key could not do
            split.note = ("not done" if bad else "wrote", text)
        self.show()

    def _load(self, source: str) -> None:
        """Take the prompts of a set or a file; the first one where none is chosen."""
        try:
            self.found = load_prompts(source)
        except SpecdeckError as error:
            self.split.problem = error.line()
            return
        if self.session.prompt is None:
            self.session.prompt = self.found.find(1)

    def action_next(self, by: int) -> None:
        """Another prompt of the set."""
        if self.found is None or self.session.prompt is None:
            return
        number = 1 if self.session.typed else self.session.prompt.number + by
        prompt = self.looked_up(self.found, (number - 1) % self.found.count + 1)
        if prompt is not None:
            self.choose(prompt)

    def choose(self, prompt: Any, *, typed: bool = False, recorded: str | None = None) -> None:
        """Take a prompt; what is known of another one goes."""
        self.workers.cancel_group(self, "race")
        self.session.prompt, self.session.typed = prompt, typed
        problem = self.split.problem if self.split.arms is None else None
        self.split = Split(arms=self.split.arms, recorded=recorded, problem=problem)
        self.case = None
        self.show()

    @work(group="ask", exclusive=True)
    async def action_prompt(self) -> None:
        """Type a prompt, or choose one."""
        from specdeck.console.screens.divergence_prompt import Picker

        picked = await self.app.push_screen_wait(
            Picker(self.session.source, self.spelt("prompt.chat"))
        )
        if picked is None:
            return
        if picked.source is not None:
            self.session.source, self.found = picked.source, picked.found
        self.choose(picked.prompt, typed=picked.source is None)
        self.action_race()

    @work(group="ask", exclusive=True)
    async def action_edit(self) -> None:
        """Change the wishes."""
        from specdeck.console.screens.divergence_form import Form

        wishes = await self.app.push_screen_wait(Form(self.wishes))
        if wishes is None:
            return
        if wishes.reference != self.wishes.reference:
            self.workers.cancel_group(self, "race")
            self.split = Split()
        self.session.wishes = wishes
        self.show()
        self.describe()

    def action_replay(self) -> None:
        """The prompt of the screen, many times over."""
        if self.session.prompt is not None:
            self._results(repeat_prompt(self.session.prompt, self.wishes.replays), replay=True)

    def action_batch(self) -> None:
        """The prompts of the set."""
        try:
            self._results(load_prompts(self.session.source, self.wishes.prompts), replay=False)
        except SpecdeckError as error:
            self.split.problem = error.line()
            self.show()

    def action_results(self) -> None:
        """What was found last, and before."""
        self._results(None, replay=False)

    def _results(self, wanted: PromptSet | None, *, replay: bool) -> None:
        from specdeck.console.screens.divergence_results import ResultsScreen

        if self.context.bench is not None:
            self.app.push_screen(ResultsScreen(self, wanted, replay=replay), self._opened)

    def _opened(self, picked: Any) -> None:
        """See a case of a check again, with both arms."""
        if picked is None:
            return
        prompt, case, found = picked
        if isinstance(found, Copies):
            same = found.prompt == self.session.prompt
            typed = self.session.typed or not same
            self.choose(found.prompt, typed=typed, recorded=case_line(case))
        else:
            self.session.source, self.found = source_name(found.path), load_prompts(found.path)
            self.choose(prompt, recorded=case_line(case))
        self.action_race()

    def results(self) -> Results | None:
        """The prompt that was asked last, as a check of one."""
        if self.case is None or self.session.prompt is None:
            return None
        return Results(self.case, repeat_prompt(self.session.prompt, 1), self.wishes, False)

    def chosen_case(self) -> Any:
        """The only case that there is."""
        cases = [] if self.case is None else self.case["cases"]
        return cases[0] if cases else None
