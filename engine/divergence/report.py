"""A check's outcome for people and for machines; each form is made from its JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specdeck.engine.errors import UsageError

Data = Mapping[str, Any]
SHOWN = 10
"""Cases that a terminal is shown."""
FORMS = (".json", ".xml", ".md")


def text(data: Data) -> str:
    """What a terminal is shown."""
    width = max(len(name) for name, _ in _lines(data))
    lines = [f"{name.ljust(width)}  {said}" for name, said in _lines(data)]
    lines += [f"{'case'.ljust(width)}  {case_line(case)}" for case in data["cases"][:SHOWN]]
    more = len(data["cases"]) - SHOWN + data["cases_left_out"]
    if more > 0:
        lines.append(f"{''.ljust(width)}  and {more} more: --json or --report lists them")
    return "\n".join(lines)


def markdown(data: Data) -> str:
    """A page to keep or to paste."""
    rows = "\n".join(f"| {name} | {_cell(said)} |" for name, said in _lines(data))
    head = f"# specdeck check: {data['verdict']}\n\n{data['reason']}.\n\n| | |\n|---|---|\n{rows}\n"
    head += _earlier(data)
    if not data["cases"]:
        return head
    titles = ("prompt", "index", "serving token", "reference token", "margin serving",
              "margin reference", "class", "target's gap", "structure")  # fmt: skip
    table = [_row(titles), _row("---" for _ in titles)]
    table += [_row(_cells(case)) for case in data["cases"]]
    left = data["cases_left_out"]
    tail = f"\n{left} more cases are not listed.\n" if left else ""
    return f"{head}\n## Cases\n\n" + "\n".join(table) + f"\n{tail}"


def _earlier(data: Data) -> str:
    """The checks with the same prompts and settings, whatever the draft or k."""
    from specdeck.engine.divergence import earlier

    past = [earlier.Line(**line) for line in data.get("earlier", ())]
    if not past:
        return ""
    head = [_row(name.lower() for name in earlier.HEAD), _row("---" for _ in earlier.HEAD)]
    rows = "\n".join([*head, *(_row(earlier.cells(line)) for line in past)])
    return f"\n## Earlier checks with these prompts and settings\n\n{rows}\n"


def written(data: Data, path: Path) -> None:
    """Writes a report in the form that the file's ending names; raises UsageError for others."""
    form = form_of(path)
    if form == ".xml":
        from specdeck.engine.divergence.junit import junit

        content = junit(data)
    else:
        content = markdown(data) if form == ".md" else json.dumps(data, indent=1) + "\n"
    save(path, content)


def save(path: Path, content: str) -> None:
    """Writes a file; raises UsageError where it cannot be."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise UsageError(f"{path}: {why}", remedy="give another file") from error


def place(path: Path, *, replaced: bool = False) -> None:
    """Raises UsageError where a file of this name can be seen to be impossible to write.

    One that is `replaced`, by another beside it, wants no leave to write but its folder's.
    """
    folder, there = path.parent, os.path.exists(path)
    if there and path.is_dir():
        why = "is a folder"
    elif not there and not os.path.isdir(folder):
        why = "no such folder"
    elif not os.access(path if there and not replaced else folder, os.W_OK):
        why = "permission denied"
    else:
        return
    raise UsageError(f"{path}: {why}", remedy="give another file")


def form_of(path: Path) -> str:
    """The form of a report: `.json`, `.xml` for JUnit, or `.md`."""
    form = path.suffix.lower()
    if form not in FORMS:
        raise UsageError(f"{path} has no form", remedy="end it in .json, .xml (JUnit) or .md")
    return form


def _lines(data: Data) -> Iterator[tuple[str, str]]:
    floor, near = data["noise_floor"], data["near_tie"]
    yield "verdict", f"{data['verdict']}: {data['reason']}"
    yield (
        "mismatches",
        f"{_rate(data['mismatches'], data['prompts'], data)}, "
        + (f"threshold {_percent(data['max_mismatch'])}"),
    )
    yield (
        "noise floor",
        (
            f"{_rate(floor['mismatches'], floor['pairs'], floor)} of the reference against itself,"
            f" serving {_percent(floor['serving']['rate'])}"
        ),
    )
    counts = data["classes"].items()
    yield "classes", " · ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts)
    noise = "–" if near["noise"] is None else f"{near['noise']:.2g}"
    yield (
        "near tie",
        (
            f"margins up to {near['threshold']:.3g} (resolution {near['resolution']:.3g},"
            f" noise {noise})"
        ),
    )
    places = data["first_divergence"]
    if places["min"] is not None:
        yield "first at", f"token {places['min']} to {places['max']}, median {places['median']:g}"
    tools = data["tool_arguments"]
    if tools["prompts"]:
        yield "tool calls", _rate(tools["mismatches"], tools["prompts"], tools)
    session = data["per_session"]
    yield (
        "per session",
        f"{_percent(session['p_any'])} that one of {session['calls']} calls differs",
    )
    for name, arm in data["arms"].items():
        yield name, _arm(arm)
    if data["refused"]["prompts"]:
        first = data["refused"]["first"][0] if data["refused"]["first"] else None
        why = f": prompt {first['prompt']}: {first['reason']}" if first else ""
        yield "refused", f"{data['refused']['prompts']} prompts{why}"
    if data.get("history"):
        yield "history", _history(data)
    for notice in data["notices"]:
        yield "note", notice


def _history(data: Data) -> str:
    from specdeck.engine.divergence.canary import History

    past = data["history"]
    return History(**{**past, "changed": tuple(past["changed"])}).line(data["mismatch_rate"])


def case_line(case: Data) -> str:
    """One case on one line."""
    structure = "; ".join(change_line(change) for change in case["structure"])
    if case.get("streamed_by"):
        said = (
            f"prompt {case['prompt']}: {case['index']} equal tokens, streamed otherwise than told"
            f" in one piece by the {case['streamed_by']} arm, stream only"
        )
        return f"{said} ({structure})" if structure else said
    said = (
        f"prompt {case['prompt']}, token {case['index']}: {_tokens(case)}margins "
        f"{_number(case['margin_reference'])} → {_number(case['margin_serving'])}, "
        f"{case['class'].replace('_', ' ')}"
    )
    if case["recheck"] and case["recheck"]["confirmed"] is not None:
        said += ", confirmed" if case["recheck"]["confirmed"] else ", the target would have agreed"
    return f"{said} ({structure})" if structure else said


def change_line(change: Data) -> str:
    """A structural difference on one line."""
    from specdeck.engine.divergence.structure import Change

    return Change(**change).line()


def _arm(arm: Data) -> str:
    speed = arm["tokens_per_second"]
    parts = [arm["grade"], f"k={_text(arm['k'])}", arm["url"]]
    if speed is not None:
        parts.append(f"{speed:.0f} tokens/s a stream")
    if arm["drafted"] is not None:
        parts.append(f"{arm['drafted']} drafted")
    parts.append(arm["fingerprint"] or arm["system_fingerprint"] or "no fingerprint")
    return ", ".join(parts)


def _rate(count: int, of: int, data: Data) -> str:
    if not of:
        return "0 of 0"
    low, high = data["ci95"]
    interval = f"two-sided 95% {_percent(low)} to {_percent(high)}"
    return f"{count} of {of} ({_percent(count / of)}, {interval})"


def _cells(case: Data) -> Iterator[str]:
    for key in ("prompt", "index", "serving_token", "reference_token"):
        yield _text(case[key])
    yield _number(case["margin_serving"])
    yield _number(case["margin_reference"])
    yield case["class"].replace("_", " ")
    yield _number(case["recheck"]["gap"]) if case["recheck"] else "–"
    yield "; ".join(change_line(change) for change in case["structure"]) or "–"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(said: str) -> str:
    return said.replace("|", "\\|").replace("\n", " ")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _text(value: object) -> str:
    return "–" if value is None else str(value)


def _tokens(case: Data) -> str:
    """Both tokens; nothing where neither is kept, as an answer cannot end in both arms."""
    both = case["reference_token"], case["serving_token"]
    if both == (None, None):
        return ""
    old, new = ("end" if token is None else str(token) for token in both)
    return f"{old} → {new}, "
