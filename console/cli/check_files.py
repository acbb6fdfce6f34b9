"""The files that `specdeck check` is asked for beside what it prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdeck.console.cli.output import log
from specdeck.engine.divergence import report
from specdeck.engine.divergence.bundle import case_page, choose_case
from specdeck.engine.errors import UsageError

if TYPE_CHECKING:
    from specdeck.engine.divergence.prompts import PromptSet
    from specdeck.engine.divergence.requests import Settings

Data = Mapping[str, Any]
Options = dict[str, Any]


def refuse_places(options: Options) -> None:
    """UsageError for a file that could not be written, before anything is asked for it."""
    for path in options["reports"]:
        report.report_form(path)
    for path in (*options["reports"], options["bundle"]):
        if path is not None:
            report.refuse_place(path)
    if options["metrics_file"] is not None:
        report.refuse_place(options["metrics_file"], replaced=True)


def written(
    options: Options,
    data: Data,
    prompts: PromptSet,
    settings: Settings,
    *,
    form: Callable[[Data, Path], None] = report.write_report,
) -> int:
    """Writes reports and bundle, and says what could not be; 0, or the code of such an error.

    One that cannot be written costs none of the others.
    """
    asked = [partial(form, data, path) for path in options["reports"]]
    if options["bundle"]:
        asked.append(partial(_bundled, options, data, prompts, settings))
    codes = [tried(write) for write in asked]
    return max(codes, default=0)


def tried(write: Callable[[], None]) -> int:
    """Writes a file, or says why it cannot be; 0, or the code of the error."""
    try:
        write()
    except UsageError as error:
        log(f"specdeck: {error.line()}")
        return error.exit_code
    return 0


def _bundled(options: Options, data: Data, prompts: PromptSet, settings: Settings) -> None:
    try:
        case = choose_case(data, options["case"])
    except UsageError as error:  # the prompt did not differ, which is nobody's mistake
        log(f"specdeck: nothing is bundled: {error.line()}")
        return
    if case is None:
        log("specdeck: nothing differs, so there is no case to bundle")
        return
    prompt = prompts.find(case["prompt"])
    if prompt is None or prompt.hash() != case["prompt_hash"]:
        log(f"specdeck: {prompts.path} was edited, so there is no prompt to bundle")
        return
    keyed = bool(options["api_key_env"] or options["reference_api_key_env"])
    report.save_file(options["bundle"], case_page(data, case, prompt, settings, keyed=keyed))
