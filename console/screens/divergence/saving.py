"""Writes down what a screen of the check shows: a report, or one case to reproduce."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdeck.console import screenshots
from specdeck.console.state.check import CheckContext, CheckResults
from specdeck.engine.divergence.bundle import case_page
from specdeck.engine.divergence.prompts import Prompt, PromptSet
from specdeck.engine.divergence.report import check_markdown
from specdeck.engine.errors import UsageError


def save_report(context: CheckContext, results: CheckResults | None) -> str:
    """Writes the results down in Markdown; where they are. Raises UsageError where it cannot."""
    if results is None:
        raise UsageError("nothing is measured yet, so there is no report")
    return _write_page(context, "check", check_markdown(results.data))


def save_case(
    context: CheckContext, results: CheckResults | None, case: Mapping[str, Any] | None
) -> str:
    """Writes one case down so that others can see it; where it is. Raises SpecdeckError."""
    if results is None:
        raise UsageError("nothing is measured yet, so there is no case to bundle")
    if case is None:
        raise UsageError("nothing differs, so there is no case to bundle")
    prompt = find_prompt(results.prompts, case["prompt"])
    settings = results.options.settings
    page = case_page(results.data, case, prompt, settings, keyed=context.keyed)
    return _write_page(context, "case", page)


def find_prompt(prompts: PromptSet, number: int) -> Prompt:
    """A prompt by its number; raises SpecdeckError where it is in its file no longer."""
    prompt = prompts.find(number)
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
