"""Writes down what a screen of the check shows: a report, or one case to reproduce."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from specdeck.console import screenshots
from specdeck.engine.errors import SpecdeckError

if TYPE_CHECKING:
    from specdeck.console.bench import Bench, Results
    from specdeck.engine.divergence.prompts import Prompt, PromptSet


class Writing(Screen[Any]):
    """For a screen that has results to write down."""

    case: dict[str, Any] | None = None
    """The outcome on the screen, as JSON has it."""

    @property
    def bench(self) -> Bench:
        """Knows the folders."""
        raise AssertionError("a screen that writes has a bench")

    def results(self) -> Results | None:
        """What there is to be written; None for nothing."""
        raise AssertionError("a screen that writes has results")

    def chosen_case(self) -> Any:
        """The case that a bundle is made of; None for none."""
        raise AssertionError("a screen that writes has a case")

    def action_report(self) -> None:
        """Write the outcome down in Markdown, and say where it is."""
        from specdeck.engine.divergence.report import check_markdown

        results = self.results()
        if results is None:
            self.say("nothing is measured yet, so there is no report", bad=True)
            return
        self._write("check", check_markdown(results.data))

    def action_bundle(self) -> None:
        """Write one case down so that others can see it, and say where that is."""
        from specdeck.engine.divergence.bundle import case_page
        from specdeck.engine.divergence.requests import Settings

        results, case = self.results(), self.chosen_case()
        if results is None:
            self.say("nothing is measured yet, so there is no case to bundle", bad=True)
            return
        if case is None:
            self.say("nothing differs, so there is no case to bundle", bad=True)
            return
        prompt = self.looked_up(results.prompts, case["prompt"])
        if prompt is None:
            return
        settings = Settings(max_tokens=results.wishes.tokens)
        keyed = self.bench.keyed
        self._write("case", case_page(results.data, case, prompt, settings, keyed=keyed))

    def looked_up(self, found: PromptSet, number: int) -> Prompt | None:
        """A prompt by its number; None, and the reason on the screen, where there is none."""
        try:
            prompt = found.find(number)
        except SpecdeckError as error:
            self.say(error.line(), bad=True)
            return None
        if prompt is None:
            self.say("the prompt is no longer in its file", bad=True)
        return prompt

    def _write(self, kind: str, content: str) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time()))

        def write(folder: Path) -> str:
            path = folder / f"specdeck-{kind}-{stamp}.md"
            with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(content)
            return str(path)

        try:
            path = screenshots.save(write, self.bench.folders())
        except (OSError, SpecdeckError) as error:
            self.say(f"not written: {error}", bad=True)
        else:
            self.say(screenshots.spelt(path, Path.home()))

    def say(self, text: str, *, bad: bool = False) -> None:
        """One line for the operator: where something was written, or why it was not."""
        raise AssertionError("a screen that writes says so")
