"""A check's outcome on a screen: progress, figures, cases, and the checks before it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specdeck.console.widgets.cells import Cell, Row, Tone, join_cells
from specdeck.engine.divergence.canary import Canary
from specdeck.engine.divergence.history import History, past_checks
from specdeck.engine.divergence.report import (
    case_line,
    excess_line,
    floors_line,
    session_line,
)
from specdeck.engine.text import format_duration, printable

if TYPE_CHECKING:
    from specdeck.console.widgets.format import KeyLabel, LocalTime
    from specdeck.engine.divergence.history import PastCheck
    from specdeck.engine.divergence.runner import CheckProgress
    from specdeck.engine.divergence.running import RunningFigures
    from specdeck.engine.store.checks import Run

Data = Mapping[str, Any]
_VERDICTS: dict[str, Tone] = {"pass": "good", "fail": "bad", "inconclusive": "warn"}


def percent(value: float | None) -> str:
    """A share for reading.

    >>> percent(0.012), percent(0.0), percent(1.0), percent(None)
    ('1.20%', '0%', '100%', '–')
    """
    if value is None:
        return "–"
    return f"{value:.0%}" if value in (0, 1) else f"{value:.2%}"


def interval(ci95: Sequence[float] | None) -> str:
    """An interval for reading.

    >>> interval([0.0055, 0.0259]), interval(None)
    ('95% in 0.55%–2.59%', '')
    """
    return "" if ci95 is None else f"95% in {percent(ci95[0])}–{percent(ci95[1])}"


def progress_row(
    progress: CheckProgress | None,
    *,
    running: bool,
    stopped: bool,
    what: str,
    key_label: KeyLabel,
    kept: bool = True,
) -> Row:
    """How far a run is; one that is not `kept` begins again after a stop."""
    if progress is None:
        return Row((Cell(f" {what} ", "strong"), Cell("starting …" if running else "", "muted")))
    words = [Cell(f"{progress.done} of {progress.of}", "plain")]
    tone: Tone = "warn" if progress.mismatches else "muted"
    words.append(Cell(f"{progress.mismatches} differ", tone))
    if progress.refused:
        words.append(Cell(f"{progress.refused} refused", "warn"))
    if running and progress.answers:
        words.append(Cell(f"{progress.answers} of {progress.answers_of} answers", "muted"))
    right: list[Cell] = []
    if running and progress.per_second is not None:
        right.append(Cell(f"{progress.per_second:.1f}/s", "muted"))
    if running and progress.step is not None:
        right.append(Cell(f"{progress.step} ", "plain"))
    if running and progress.seconds_left is not None:
        right.append(Cell(f"{format_duration(progress.seconds_left)} left ", "plain"))
    if stopped:
        then = "goes on" if kept else "begins again"
        right.append(Cell(f"stopped; {key_label('results.again')} {then} ", "warn"))
    return Row((Cell(f" {what} ", "strong"), *join_cells(tuple(words))), join_cells(tuple(right)))


def summary(data: Data, *, replay: bool) -> Iterator[Row]:
    """The figures, what an operator acts upon first."""
    tone = _VERDICTS[data["verdict"]]
    if replay:
        yield _line("replays", f"{data['mismatches']} of {data['prompts']} differ", tone)
    else:
        yield _line("verdict", f"{data['verdict']}: {data['reason']}", tone)
    exact, ci = data["exact_rate"], data["ci95"]
    flipped = None if ci is None else [1 - ci[1], 1 - ci[0]]
    yield _line("exact", f"{percent(exact)}  {interval(flipped)}")
    differ = f"{data['mismatches']} of {data['prompts']}, {percent(data['mismatch_rate'])}"
    limit = "" if replay else f", threshold {percent(data['max_mismatch'])}"
    yield _line("differ", f"{differ}{limit}")
    floor, serving = data["noise_floor"], data["noise_floor"]["serving"]
    against = f"reference {floor['mismatches']} of {floor['pairs']} against itself"
    steady = f"serving {percent(serving['rate'])} of {serving['pairs']}"
    yield _line("noise floor", f"{against}, {steady}")
    if "repeat" in floor:  # a check of another specdeck's may not have it
        yield _line("floors", floors_line(floor))
    if (excess := data.get("excess")) is not None and not replay:
        yield _line("excess", excess_line(excess))
    yield _line("classes", _classes(data))
    if data["first_divergence"]["min"] is not None:
        yield _line("first at", places(data))
    tools = data["tool_arguments"]
    if tools["prompts"]:
        text = f"{tools['mismatches']} of {tools['prompts']} differ in name or arguments"
        yield _line("tool calls", f"{text}, {percent(tools['rate'])}")
    structured = data.get("structured")  # a stored check may be older
    if structured and structured["prompts"]:
        text = f"{structured['invalid']} of {structured['prompts']} invalid in serving alone"
        yield _line("structure", text, "bad" if structured["invalid"] else "plain")
    if not replay:
        yield _line("session", session_line(data["per_session"]))
    for name, arm in data["arms"].items():
        yield _line(name, _arm(arm))
    near = data["near_tie"]
    margins = f"margins up to {near['threshold']:.3g}, resolution {near['resolution']:.3g}"
    yield _line("near tie", margins, "muted")
    refused = data["refused"]
    if refused["prompts"]:
        first = refused["first"][0] if refused["first"] else {"prompt": "–", "reason": "–"}
        text = f"{refused['prompts']}: prompt {first['prompt']}: {first['reason']}"
        yield _line("refused", text, "warn")
    if data.get("history"):
        past = History(**data["history"])
        yield _line("history", past.line(data["mismatch_rate"]))
    if data.get("canary"):
        canary = Canary.from_json(data["canary"])
        yield _line("canary", canary.line(), "bad" if canary.word == "changed" else "plain")
    for notice in data["notices"]:
        yield _line("note", notice, "muted")


def _classes(data: Data) -> str:
    named = [f"{name.replace('_', ' ')} {n}" for name, n in data["classes"].items() if n]
    return " · ".join(named) or "nothing differs"


def places(data: Data) -> str:
    """Where the cases begin: single places where they are few, else their range.

    >>> places({"cases": [{"index": 4}, {"index": 4}, {"index": 9}], "first_divergence": {}})
    'token 4 ×2, 9'
    """
    counted = Counter(int(c["index"]) for c in data["cases"] if not c.get("streamed_by"))
    if len(counted) <= 6:
        named = (f"{at} ×{n}" if n > 1 else str(at) for at, n in sorted(counted.items()))
        return f"token {', '.join(named)}"
    found = data["first_divergence"]
    return f"token {found['min']} to {found['max']}, median {found['median']:g}"


def _arm(arm: Data) -> str:
    speed = arm["tokens_per_second"]
    parts = [f"k={'–' if arm['k'] is None else arm['k']}", str(arm["grade"])]
    if speed is not None:
        parts.append(f"{speed:.0f} tokens/s a stream")
    if arm["drafted"] is not None:
        parts.append(f"{arm['drafted']} drafted")
    return ", ".join([*parts, arm["fingerprint"] or arm["system_fingerprint"] or "no fingerprint"])


def _line(name: str, text: str, tone: Tone = "plain") -> Row:
    return Row((Cell(f" {name:<12} ", "muted"), Cell(text, tone)))


def case_row(case: Data) -> str:
    """A case in a list.

    >>> case_row({"prompt": 17, "index": 42, "class": "near_tie", "reference_token": 309,
    ...   "serving_token": None, "margin_reference": 0.06, "margin_serving": 0.0,
    ...   "structure": [], "recheck": None})
    'near tie     prompt 17, token 42: 309 → end, margins 0.06 → 0'
    """
    named = str(case["class"]).replace("_", " ")
    said = case_line(case).replace(f", {named}", "", 1)
    return printable(f"{named:<12} {said}")


def panes(shown: str, counts: Mapping[str, int | None]) -> Row:
    """The names of the panes; the one that is shown stands out."""
    cells = [
        Cell(f"{name} {'' if n is None else n} ".replace("  ", " "),
             "strong" if name == shown else "muted", f"screen.show_pane('{name}')")
        for name, n in counts.items()
    ]  # fmt: skip
    return Row((Cell(" "), *join_cells(tuple(cells), "│ ")), fill="─")


def earlier_heading() -> Row:
    """The columns of the table of earlier checks."""
    columns = _columns("when", "method", "draft", "k", "differ", "of", "floor", "tok/s")
    return Row((Cell(f" {columns} verdict      grade fingerprint", "muted"),))


def _columns(
    when: str, method: str, draft: str, k: str, differ: str, of: str, floor: str, speed: str
) -> str:
    return f"{when:<12} {method:<6.6} {draft:<5.5} {k:>2} {differ:>7} {of:>5} {floor:>6} {speed:>9}"


def earlier(
    runs: Sequence[Run], local: LocalTime, key_label: KeyLabel, now: int | None = None
) -> tuple[Row, ...]:
    """The checks of this store, the newest first, whatever they drafted with.

    Those with other prompts or settings than run `now`, or the newest, are muted: their
    rates are no comparison.
    """
    told = [run for run in runs if run.summary is not None]
    if not told:
        text = f" no check is finished yet: {key_label('results.again')} starts one"
        return (Row((Cell(text, "muted"),)),)
    this = next((run for run in told if run.id == now), told[0])
    return tuple(
        _run(line, local, run.id == now, _conditions(run) == _conditions(this))
        for run, line in zip(told, past_checks(told), strict=True)
    )


def _conditions(run: Run) -> tuple[Any, ...]:
    return run.facts.get("prompts"), run.facts.get("settings")


def moment(t: float, local: LocalTime) -> str:
    """A Unix time as day and minute.

    >>> moment(0.0, time.gmtime)
    '01 Jan 00:00'
    """
    return time.strftime("%d %b %H:%M", local(t))


def _run(line: PastCheck, local: LocalTime, marked: bool, comparable: bool) -> Row:
    speeds = (line.serving_tokens_per_second, line.reference_tokens_per_second)
    ours, theirs = ("–" if speed is None else f"{speed:.0f}" for speed in speeds)
    columns = _columns(
        moment(line.t, local),
        (line.method or "–").removesuffix("_model"),
        line.draft or "–",
        "–" if line.k is None else str(line.k),
        percent(line.mismatch_rate),
        str(line.prompts),
        percent(line.floor_rate),
        f"{ours}/{theirs}",
    )
    return Row((
        Cell("▸" if marked else " ", "accent"),
        Cell(f"{columns} ", "plain" if comparable else "muted"),
        Cell(f"{line.verdict:<12} ", _VERDICTS[line.verdict] if comparable else "muted"),
        Cell(f"{line.grade:<5} {line.fingerprint or '–'}", "muted"),
    ))  # fmt: skip


def so_far(found: RunningFigures, *, running: bool) -> Iterator[Row]:
    """The figures of a run that has not come to its end."""
    count, of = found.differ.count, found.differ.of
    tone: Tone = "warn" if count else "plain"
    yield _line("so far", f"{count} of {of} differ, {found.rate_line()}", tone)
    yield _line("floors", found.floors_line())
    yield _line("classes", found.classes_line())
    if running:
        yield _line("verdict", "comes at the end: an interval that is watched is no 95%", "muted")


def empty(key_label: KeyLabel, *, running: bool) -> tuple[Row, ...]:
    """A summary of nothing."""
    idle = f"nothing is measured yet: {key_label('results.again')} starts a check"
    text = "figures come with the first prompts" if running else idle
    return (Row((Cell(f" {text}", "muted"),)),)


def remark(problem: str | None, note: str | None) -> Row:
    """Why a check has ended early, or what was written where; nothing when all is well."""
    if problem is not None:
        return Row((Cell(f" {problem}", "bad"),))
    return Row() if note is None else Row((Cell(" wrote ", "good"), Cell(note)))
