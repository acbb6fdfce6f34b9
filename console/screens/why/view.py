"""Causes as rows: ranked, what was ruled out and what cannot be told below; pure, no Textual.

The last cell of a row is wrapped below itself by whoever draws it.
"""

from __future__ import annotations

from collections.abc import Iterator

from specdeck.console.state.copies import Copyable
from specdeck.console.state.engine_state import Track
from specdeck.console.state.why import WhyLook, format_recall
from specdeck.console.widgets.cells import Cell, Cells, Row, heading
from specdeck.console.widgets.format import LocalTime
from specdeck.engine.text import format_duration, oneline
from specdeck.engine.why.causes import Cause, trial_of
from specdeck.engine.why.ranking import Diagnosis
from specdeck.engine.why.words import (
    describe_baseline,
    describe_cause,
    describe_look,
    describe_ruled_out,
    describe_together,
    list_commands,
    list_untold,
)

_BAR = 24


def title(look: WhyLook | None, said: Cell | None = None, more: Cells = ()) -> Row:
    """What was found, or how far the look is; `said` is what a key brought, `more` tells of lines
    that are not shown."""
    if said is not None:
        return heading("why", said)
    if look is None or look.error is not None:
        return heading("why")
    if look.diagnosis is not None:
        number = len(look.diagnosis.causes)
        found = "no cause found" if not number else f"{number} cause{'s' * (number > 1)} found"
        return heading(f"why: {found}", *more)
    return heading("why: watching")


def rows(track: Track, look: WhyLook | None, local: LocalTime) -> tuple[Row, ...]:
    """The diagnosis, or the progress of the look, or why there is neither.

    What keys do here stands in the footer.
    """
    if look is None:
        text = "a recording has no engine to ask" if track.recorded else "no engine to ask"
        return (Row((Cell(" "), Cell(text, "muted"))),)
    if look.error is not None:
        return (Row((Cell(" "), Cell(oneline(look.error.line()), "warn"))),)
    if look.diagnosis is None:
        return tuple(_watching(look))
    recall = () if track.recorded else tuple(_list_recall(look, local))
    return (*recall, *_diagnosis(look.diagnosis, local))


def _list_recall(look: WhyLook, local: LocalTime) -> Iterator[Row]:
    """The command that says the same elsewhere."""
    if look.recalled is not None:
        command = format_recall(look.url, *look.recalled, local)
        yield Row((Cell(" $ ", "muted"), Cell(command, "muted")))


def _watching(look: WhyLook) -> Iterator[Row]:
    progress = look.progress
    done = 0.0 if progress is None else min(1.0, progress.seconds / max(1e-9, progress.of))
    full = round(done * _BAR)
    bar = (Cell(" "), Cell("█" * full, "accent"), Cell("░" * (_BAR - full), "muted"))
    if progress is None:
        yield Row((*bar, Cell("  asking the engine", "muted")))
    else:
        seconds = f"{progress.seconds:.0f} of {format_duration(progress.of)}"
        yield Row((*bar, Cell(f"  {seconds}, {progress.requests} requests finished", "muted")))
    yield Row()
    yield Row((Cell(" "), Cell(
        "Compares kinds of requests (prompt length, cached share, structured output, adapter, "
        "temperature) with each other and with the engine's life before; step times, prompts, "
        "preemptions, the draft and k.", "muted",
    )))  # fmt: skip


def _diagnosis(diagnosis: Diagnosis, local: LocalTime) -> Iterator[Row]:
    yield Row((Cell(" "), Cell(describe_look(diagnosis.looked, local), "muted")))
    if (baseline := describe_baseline(diagnosis, local)) is not None:
        yield Row((Cell(" "), Cell(baseline, "muted")))
    yield Row()
    commands = list_commands(diagnosis)
    for number, cause in enumerate(diagnosis.causes, start=1):
        yield from _cause(number, cause, commands[number - 1], local)
        yield Row()
    if (together := describe_together(diagnosis.causes)) is not None:
        yield Row((Cell(" "), Cell(together, "muted")))
        yield Row()
    if not diagnosis.causes:
        yield Row((Cell(" "), Cell("no cause found", "good")))
        yield Row()
    if diagnosis.ruled_out:
        yield heading("ruled out")
        for out in diagnosis.ruled_out:
            yield Row((Cell(" ✓ ", "good"), Cell(describe_ruled_out(out))))
    if diagnosis.untold:
        yield heading("cannot be told")
        for untold in list_untold(diagnosis.untold):
            yield Row((Cell(" ? ", "muted"), Cell(untold, "muted")))
    for what, reason in diagnosis.missing:
        yield Row((Cell(" ! ", "warn"), Cell(oneline(f"{what}: {reason}"), "muted")))


def _cause(number: int, cause: Cause, command: str | None, local: LocalTime) -> Iterator[Row]:
    name, *rest = describe_cause(cause, local)
    yield Row((Cell(f" {number}. ", "strong"), Cell(name, "bad" if number == 1 else "warn")))
    for line in rest:
        yield Row((Cell("    "), Cell(line)))
    if command is not None:
        yield Row((Cell("    $ ", "muted"), Cell(command, "accent")))


def suggest_trial(look: WhyLook | None) -> str | None:
    """What the first cause that a trial can mend suggests, as `specdeck set` takes it."""
    causes = () if look is None or look.diagnosis is None else look.diagnosis.causes
    return next((words for cause in causes if (words := trial_of(cause)) is not None), None)


def list_copies(look: WhyLook | None, local: LocalTime) -> Iterator[Copyable]:
    """The command of each cause, each cause in a line, and what judges the same past."""
    if look is None or look.diagnosis is None:
        return
    for cause in look.diagnosis.causes:
        name, *rest = describe_cause(cause)
        yield Copyable(f"try: {name}", oneline(look.diagnosis.command(cause)))
        yield Copyable(name, oneline("; ".join((name, *rest))))
    if look.recalled is not None:
        yield Copyable("these causes", oneline(format_recall(look.url, *look.recalled, local)))
