"""A check's outcome for people and for machines: text, Markdown, JUnit and Prometheus."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from specdeck.engine.divergence.compare import CLASSES, Change
from specdeck.engine.divergence.history import (
    PAST_CHECKS_HEAD,
    History,
    PastCheck,
    SampledHistory,
    past_check_cells,
)
from specdeck.engine.errors import UsageError
from specdeck.engine.metrics.exposition import Exposition
from specdeck.engine.text import format_percent, format_value

Data = Mapping[str, Any]
SHOWN = 10
"""Cases that a terminal is shown."""
FORMS = (".json", ".xml", ".md")
UNJUDGED = "could not be judged: "
SAMPLED_SHOWN = 5
"""Prompts that a terminal is shown, the least likely first."""


def check_text(data: Data) -> str:
    """What a terminal is shown."""
    width = max(len(name) for name, _ in _lines(data))
    lines = [f"{name.ljust(width)}  {said}" for name, said in _lines(data)]
    lines += [f"{'case'.ljust(width)}  {case_line(case)}" for case in data["cases"][:SHOWN]]
    more = len(data["cases"]) - SHOWN + data["cases_left_out"]
    if more > 0:
        lines.append(f"{''.ljust(width)}  and {more} more: --json or --report lists them")
    return "\n".join(lines)


def check_markdown(data: Data) -> str:
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
    past = [PastCheck(**line) for line in data.get("earlier", ())]
    if not past:
        return ""
    head = [
        _row(name.lower() for name in PAST_CHECKS_HEAD),
        _row("---" for _ in PAST_CHECKS_HEAD),
    ]
    rows = "\n".join([*head, *(_row(past_check_cells(line)) for line in past)])
    return f"\n## Earlier checks with these prompts and settings\n\n{rows}\n"


def write_report(data: Data, path: Path) -> None:
    """Writes a report in the form that the file's ending names; raises UsageError for others."""
    form = report_form(path)
    if form == ".xml":
        pass

        content = check_junit(data)
    else:
        content = check_markdown(data) if form == ".md" else json.dumps(data, indent=1) + "\n"
    save_file(path, content)


def save_file(path: Path, content: str) -> None:
    """Writes a file; raises UsageError where it cannot be."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise UsageError(f"{path}: {why}", remedy="give another file") from error


def refuse_place(path: Path, *, replaced: bool = False) -> None:
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
        + (f"threshold {format_percent(data['max_mismatch'])}"),
    )
    yield (
        "noise floor",
        (
            f"{_rate(floor['mismatches'], floor['pairs'], floor)} of the reference against itself,"
            f" serving {format_percent(floor['serving']['rate'])}"
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
        f"{format_percent(session['p_any'])} that one of {session['calls']} calls differs",
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
    past = data["history"]
    return History(**{**past, "changed": tuple(past["changed"])}).line(data["mismatch_rate"])


def case_line(case: Data) -> str:
    """One case on one line."""
    structure = "; ".join(change_line(change) for change in case["structure"])
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


def change_line(change: Data) -> str:
    """A structural difference on one line."""
    return Change(**change).line()


def _arm(arm: Data) -> str:
    speed = arm["tokens_per_second"]
    parts = [arm["grade"], f"k={format_value(arm['k'])}", arm["url"]]
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
    interval = f"two-sided 95% {format_percent(low)} to {format_percent(high)}"
    return f"{count} of {of} ({format_percent(count / of)}, {interval})"


def _cells(case: Data) -> Iterator[str]:
    for key in ("prompt", "index", "serving_token", "reference_token"):
        yield format_value(case[key])
    yield _number(case["margin_serving"])
    yield _number(case["margin_reference"])
    yield case["class"].replace("_", " ")
    yield _number(case["recheck"]["gap"]) if case["recheck"] else "–"
    yield "; ".join(change_line(change) for change in case["structure"]) or "–"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(said: str) -> str:
    return said.replace("|", "\\|").replace("\n", " ")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _tokens(case: Data) -> str:
    """Both tokens; nothing where neither is kept, as an answer cannot end in both arms."""
    both = case["reference_token"], case["serving_token"]
    if both == (None, None):
        return ""
    old, new = ("end" if token is None else str(token) for token in both)
    return f"{old} → {new}, "


def check_junit(data: Mapping[str, Any]) -> str:
    """One test for the verdict, and one for each case that is no near tie.

    Only a fail has failures: a CI system counts them, whatever the first test says. What could
    not be judged is an error, as a gate must not open for it either.
    """
    cases = [case for case in data["cases"] if case["class"] != "near_tie"]
    bad, unjudged = data["verdict"] == "fail", data["verdict"] == "inconclusive"
    suite = ET.Element(
        "testsuite",
        name="specdeck check",
        tests=str(1 + len(cases)),
        failures=str(1 + len(cases) if bad else 0),
        errors=str(int(unjudged)),
        skipped="0",
        time=f"{data['seconds']:.3f}",
    )
    main = ET.SubElement(suite, "testcase", classname="specdeck.check", name="verdict")
    if bad:
        ET.SubElement(main, "failure", message=_plain(data["reason"]), type="fail")
    elif unjudged:
        ET.SubElement(main, "error", message=_plain(UNJUDGED + data["reason"]), type="inconclusive")
    for case in cases:
        where = "streamed" if case.get("streamed_by") else f"token {case['index']}"
        name = f"prompt {case['prompt']} {where}"
        one = ET.SubElement(suite, "testcase", classname=f"specdeck.{case['class']}", name=name)
        said = _plain(case_line(case))
        if bad:
            ET.SubElement(one, "failure", message=said, type=case["class"])
        else:
            ET.SubElement(one, "system-out").text = said
    ET.indent(suite)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"
    )


def _plain(text: str) -> str:
    """Without the characters that XML has no spelling for."""
    return "".join(c for c in text if c.isprintable())


def sampled_text(data: Data) -> str:
    """What a terminal is shown."""
    lines = [
        *_sampled_lines(data),
        *(("prompt", _sampled_case(case)) for case in _sampled_worst(data)[:SAMPLED_SHOWN]),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name.ljust(width)}  {said}" for name, said in lines)


def sampled_markdown(data: Data) -> str:
    """A page to keep or to paste."""
    head = (
        f"# specdeck check --sampled: {data['verdict']}\n\n{data['reason']}.\n\n| | |\n|---|---|\n"
    )
    rows = "".join(f"| {name} | {said} |\n" for name, said in _sampled_lines(data))
    table = "".join(
        f"| {c['prompt']} | {c['p']:.3g} | {c['p_holm']:.3g} | {c['p_control']:.3g} |\n"
        for c in _sampled_worst(data)
    )
    titles = "| prompt | p | corrected | control |\n|---|---|---|---|\n"
    return f"{head}{rows}\n## Prompts\n\n{titles}{table}"


def sampled_junit(data: Data) -> str:
    """One test for the verdict, and one for each prompt whose draws differ."""
    bad = [case for case in data["cases"] if case["p_holm"] < data["alpha"]]
    failed = data["verdict"] == "fail"
    cases = bad if failed else []
    suite = ET.Element(
        "testsuite",
        name="specdeck check --sampled",
        tests=str(1 + len(cases)),
        failures=str(int(failed) + len(cases)),
        errors=str(int(data["verdict"] == "inconclusive")),
        skipped="0",
        time=f"{data['seconds']:.3f}",
    )
    main = ET.SubElement(suite, "testcase", classname="specdeck.check.sampled", name="verdict")
    if failed:
        ET.SubElement(main, "failure", message=data["reason"], type="fail")
    elif data["verdict"] == "inconclusive":
        said = f"{UNJUDGED}{data['reason']}"
        ET.SubElement(main, "error", message=said, type="inconclusive")
    for case in cases:
        name = f"prompt {case['prompt']}"
        one = ET.SubElement(suite, "testcase", classname="specdeck.distribution", name=name)
        ET.SubElement(one, "failure", message=_sampled_case(case), type="distribution")
    ET.indent(suite)
    written = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{written}\n'


def write_sampled_report(data: Data, path: Path) -> None:
    """Writes a report in the form that the file's ending names; raises UsageError for others."""
    form = report_form(path)
    if form == ".xml":
        save_file(path, sampled_junit(data))
    else:
        save_file(
            path, sampled_markdown(data) if form == ".md" else json.dumps(data, indent=1) + "\n"
        )


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
        k = "–" if arm["k"] is None else arm["k"]
        print_ = arm["fingerprint"] or arm["system_fingerprint"] or "no fingerprint"
        yield name, f"{arm['grade']}, k={k}, {arm['url']}, {print_}"
    if data["refused"]:
        yield "refused", f"{data['refused']} prompts"
    if (past := data.get("history")) is not None:
        yield "history", SampledHistory(**{**past, "changed": tuple(past["changed"])}).line()


def _sampled_worst(data: Data) -> list[Data]:
    return sorted(data["cases"], key=lambda case: float(case["p"]))


def _sampled_case(case: Data) -> str:
    return (
        f"{case['prompt']}: p = {case['p']:.3g}, corrected {case['p_holm']:.3g},"
        f" control {case['p_control']:.3g}"
    )


class CheckGauges(Exposition):
    """The last check as Prometheus gauges; None is no sample, not 0."""

    def __init__(self, engine: str) -> None:
        from prometheus_client import Gauge

        super().__init__()
        self._engine = engine

        def gauge(name: str, help_: str, *labels: str) -> Gauge:
            return Gauge(
                f"specdeck_check_{name}", help_, ("engine", *labels), registry=self.registry
            )

        self._rate = gauge("mismatch_rate", "Share of prompts whose outputs differ.")
        self._floor = gauge("noise_floor_rate", "The same of an arm against itself.", "arm")
        self._prompts = gauge("prompts", "Prompts that both arms answered.")
        self._cases = gauge("cases", "Differing outputs by class.", "kind")
        self._verdict = gauge("verdict", "1 for the last verdict, 0 for others.", "verdict")
        self._ended = gauge("last_run_timestamp_seconds", "Unix time of the last finished check.")
        self._up = gauge("up", "Whether the last check could be done.")

    def failed(self) -> None:
        """The check could not be done; the last figures stay."""
        self._up.labels(self._engine).set(0)

    def show(self, data: Data, t: float) -> None:
        """The outcome of a check that ended at Unix time `t`."""
        name, floor = self._engine, data["noise_floor"]
        self._up.labels(name).set(1)
        self._ended.labels(name).set(t)
        self._prompts.labels(name).set(data["prompts"])
        if data["mismatch_rate"] is not None:
            self._rate.labels(name).set(data["mismatch_rate"])
            self._floor.labels(name, "reference").set(floor["rate"])
            self._floor.labels(name, "serving").set(floor["serving"]["rate"])
        for kind in CLASSES:
            self._cases.labels(name, kind).set(data["classes"][kind])
        for word in ("pass", "fail", "inconclusive"):
            self._verdict.labels(name, word).set(data["verdict"] == word)
