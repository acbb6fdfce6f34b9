"""A check's outcome for people and for machines: text, Markdown, JUnit and Prometheus."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from specdeck.engine.divergence.compare import StructureChange
from specdeck.engine.divergence.history import (
    PAST_CHECKS_HEAD,
    History,
    PastCheck,
    SampledHistory,
    past_check_cells,
)
from specdeck.engine.errors import UsageError
from specdeck.engine.text import UNKNOWN, escape_markdown, format_percent, format_value, oneline

Data = Mapping[str, Any]
SHOWN = 10
"""Cases that a terminal is shown."""
FORMS = (".json", ".xml", ".md")
UNJUDGED = "could not be judged: "
SAMPLED_SHOWN = 5
"""Prompts that a terminal is shown, the least likely first."""


def check_lines(data: Data) -> list[str]:
    """What a terminal is shown."""
    lines = [*_lines(data), *(("case", case_line(case)) for case in data["cases"][:SHOWN])]
    more = len(data["cases"]) - SHOWN + data["cases_left_out"]
    if more > 0:
        lines.append(("", f"and {more} more: --json or --report lists them"))
    return _align(lines)


def check_markdown(data: Data) -> str:
    """A page to keep or to paste."""
    head = _markdown_head("specdeck check", data, _lines(data)) + _earlier(data)
    if not data["cases"]:
        return head
    titles = ("prompt", "index", "serving token", "reference token", "margin serving",
              "margin reference", "class", "target's gap", "structure")  # fmt: skip
    left = data["cases_left_out"]
    tail = f"\n{left} more cases are not listed.\n" if left else ""
    return f"{head}\n## Cases\n\n{_markdown_table(titles, map(_cells, data['cases']))}{tail}"


def _earlier(data: Data) -> str:
    """The checks with the same prompts and settings, whatever the draft or k."""
    past = [PastCheck(**line) for line in data.get("earlier", ())]
    if not past:
        return ""
    titles = [name.lower() for name in PAST_CHECKS_HEAD]
    table = _markdown_table(titles, map(past_check_cells, past))
    return f"\n## Earlier checks with these prompts and settings\n\n{table}"


def write_report(data: Data, path: Path) -> None:
    """Writes a report in the form that the file's ending names; raises UsageError for others."""
    form, is_sampled = report_form(path), "samples" in data
    if form == ".json":
        text = json.dumps(data, indent=1) + "\n"
    elif form == ".xml":
        text = sampled_junit(data) if is_sampled else check_junit(data)
    else:
        text = sampled_markdown(data) if is_sampled else check_markdown(data)
    save_file(path, text)


def save_file(path: Path, content: str) -> None:
    """Writes a file; raises UsageError where it cannot be."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise UsageError(f"{path}: {why}", remedy="give another file") from error


def refuse_place(path: Path, *, replaced: bool = False) -> None:
    """Raises UsageError where a file of this name can be seen to be impossible to write.

    One that is `replaced`, by another beside it, requires no leave to write but its folder's.
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


def report_form(path: Path) -> str:
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
        f"threshold {format_percent(data['max_mismatch'])}",
    )
    yield (
        "noise floor",
        f"{_rate(floor['mismatches'], floor['pairs'], floor)} of the reference against itself,"
        f" serving {format_percent(floor['serving']['rate'])}",
    )
    counts = data["classes"].items()
    yield "classes", " · ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts)
    noise = UNKNOWN if near["noise"] is None else f"{near['noise']:.2g}"
    yield (
        "near tie",
        f"margins up to {near['threshold']:.3g} (resolution {near['resolution']:.3g},"
        f" noise {noise})",
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
        f"{format_percent(session['p_any'])} that one of {session['calls']} calls differs",
    )
    for name, arm in data["arms"].items():
        yield name, _arm(arm)
    if data["refused"]["prompts"]:
        first = data["refused"]["first"][0] if data["refused"]["first"] else None
        why = f": prompt {first['prompt']}: {first['reason']}" if first else ""
        yield "refused", f"{data['refused']['prompts']} prompts{why}"
    if data.get("history"):
        yield "history", History(**data["history"]).line(data["mismatch_rate"])
    for notice in data["notices"]:
        yield "note", notice


def case_line(case: Data) -> str:
    """One case on one line."""
    structure = structure_line(case)
    if case.get("streamed_by"):
        said = (
            f"prompt {case['prompt']}: {case['index']} equal tokens, streamed and non-streamed"
            f" output of the {case['streamed_by']} arm differ, stream only"
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


def structure_line(case: Data) -> str:
    """The structural differences of a case on one line."""
    return "; ".join(StructureChange(**change).line() for change in case["structure"])


def _arm(arm: Data) -> str:
    speed = arm["tokens_per_second"]
    parts = [arm["grade"], f"k={format_value(arm['k'])}", arm["url"]]
    if speed is not None:
        parts.append(f"{speed:.0f} tokens/s a stream")
    if arm["drafted"] is not None:
        parts.append(f"{arm['drafted']} drafted")
    parts.append(_fingerprint(arm))
    return ", ".join(parts)


def _fingerprint(arm: Data) -> str:
    return str(arm["fingerprint"] or arm["system_fingerprint"] or "no fingerprint")


def _rate(count: int, of: int, data: Data) -> str:
    if not of:
        return "0 of 0"
    low, high = data["ci95"]
    interval = f"two-sided 95% {format_percent(low)} to {format_percent(high)}"
    return f"{count} of {of} ({format_percent(count / of)}, {interval})"


def _cells(case: Data) -> Iterator[str]:
    for key in ("prompt", "index", "serving_token", "reference_token"):
        yield format_value(case[key])
    yield _number(case["margin_serving"])
    yield _number(case["margin_reference"])
    yield case["class"].replace("_", " ")
    yield _number(case["recheck"]["gap"]) if case["recheck"] else UNKNOWN
    yield structure_line(case) or UNKNOWN


def _align(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Names and what is said of them, in two columns."""
    width = max(len(name) for name, _ in lines)
    return [f"{name.ljust(width)}  {said}" for name, said in lines]


def _markdown_head(title: str, data: Data, lines: Iterable[tuple[str, str]]) -> str:
    head = (
        f"# {title}: {data['verdict']}\n\n{escape_markdown(data['reason'])}.\n\n| | |\n|---|---|\n"
    )
    return head + "".join(f"{_row(line)}\n" for line in lines)


def _markdown_table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    head = f"{_row(titles)}\n|{'---|' * len(titles)}\n"
    return head + "".join(f"{_row(row)}\n" for row in rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escape_markdown, cells))} |"


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


def _tokens(case: Data) -> str:
    """Both tokens; nothing where neither is kept, as an answer cannot end in both arms."""
    both = case["reference_token"], case["serving_token"]
    if both == (None, None):
        return ""
    old, new = ("end" if token is None else str(token) for token in both)
    return f"{old} → {new}, "


def check_junit(data: Data) -> str:
    """One test for the verdict, and one for each case that is no near tie.

    Only a fail has failures: a CI system counts them, whatever the first test says. What could
    not be judged is an error, as a gate must not open for it either.
    """
    cases = [
        (
            case["class"],
            f"prompt {case['prompt']} "
            + ("streamed" if case.get("streamed_by") else f"token {case['index']}"),
            case_line(case),
        )
        for case in data["cases"]
        if case["class"] != "near_tie"
    ]
    return _format_junit("specdeck check", "specdeck.check", data, cases)


def _format_junit(
    title: str, classname: str, data: Data, cases: Sequence[tuple[str, str, str]]
) -> str:
    """One test for the verdict and one for each of `cases`: its class, its name, what is said."""
    bad, unjudged = data["verdict"] == "fail", data["verdict"] == "inconclusive"
    suite = ET.Element(
        "testsuite",
        name=title,
        tests=str(1 + len(cases)),
        failures=str(1 + len(cases) if bad else 0),
        errors=str(int(unjudged)),
        skipped="0",
        time=f"{data['seconds']:.3f}",
    )
    main = ET.SubElement(suite, "testcase", classname=classname, name="verdict")
    if bad:
        ET.SubElement(main, "failure", message=_plain(data["reason"]), type="fail")
    elif unjudged:
        ET.SubElement(main, "error", message=_plain(UNJUDGED + data["reason"]), type="inconclusive")
    for kind, name, said in cases:
        one = ET.SubElement(suite, "testcase", classname=f"specdeck.{kind}", name=name)
        if bad:
            ET.SubElement(one, "failure", message=_plain(said), type=kind)
        else:
            ET.SubElement(one, "system-out").text = _plain(said)
    ET.indent(suite)
    written = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{written}\n'


def _plain(text: str) -> str:
    """On one line, without the characters that XML has no spelling for."""
    return oneline(text)


def sampled_lines(data: Data) -> list[str]:
    """What a terminal is shown."""
    worst = _sampled_worst(data)[:SAMPLED_SHOWN]
    return _align([*_sampled_lines(data), *(("prompt", _sampled_case(case)) for case in worst)])


def sampled_markdown(data: Data) -> str:
    """A page to keep or to paste."""
    head = _markdown_head("specdeck check --sampled", data, _sampled_lines(data))
    titles = ("prompt", "p", "corrected", "control")
    rows = (
        (str(case["prompt"]), *(f"{case[p]:.3g}" for p in ("p", "p_holm", "p_control")))
        for case in _sampled_worst(data)
    )
    return f"{head}\n## Prompts\n\n{_markdown_table(titles, rows)}"


def sampled_junit(data: Data) -> str:
    """One test for the verdict, and one for each prompt whose draws differ."""
    cases = [
        ("distribution", f"prompt {case['prompt']}", _sampled_case(case))
        for case in data["cases"]
        if data["verdict"] == "fail" and case["p_holm"] < data["alpha"]
    ]
    return _format_junit("specdeck check --sampled", "specdeck.check.sampled", data, cases)


def _sampled_lines(data: Data) -> Iterator[tuple[str, str]]:
    yield "verdict", f"{data['verdict']}: {data['reason']}"
    yield (
        "drawn",
        f"{data['samples']} continuations of {data['tokens']} tokens for each of"
        f" {data['prompts']} prompts and each arm, temperature {data['temperature']:g}",
    )
    control = data["control"]
    yield "pooled", f"p = {data['p_pooled']:.3g}, control p = {control['p_pooled']:.3g}"
    yield (
        "lowest",
        f"p = {data['p_lowest']:.3g} after correction, control p = {control['p_lowest']:.3g},"
        f" alpha {data['alpha']:g}",
    )
    for name, arm in data["arms"].items():
        k = format_value(arm["k"])
        yield name, f"{arm['grade']}, k={k}, {arm['url']}, {_fingerprint(arm)}"
    if data["refused"]:
        yield "refused", f"{data['refused']} prompts"
    if (past := data.get("history")) is not None:
        yield "history", SampledHistory(**past).line()


def _sampled_worst(data: Data) -> list[Data]:
    return sorted(data["cases"], key=lambda case: float(case["p"]))


def _sampled_case(case: Data) -> str:
    return (
        f"{case['prompt']}: p = {case['p']:.3g}, corrected {case['p_holm']:.3g},"
        f" control {case['p_control']:.3g}"
    )
