"""What a check of distributions says, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from specdeck.engine.divergence.junit import UNJUDGED
from specdeck.engine.divergence.report import form_of, save
from specdeck.engine.divergence.sampled_memory import SampledHistory

Data = Mapping[str, Any]
SHOWN = 5
"""Prompts that a terminal is shown, the least likely first."""


def text(data: Data) -> str:
    """What a terminal is shown."""
    lines = [*_lines(data), *(("prompt", _case(case)) for case in _worst(data)[:SHOWN])]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name.ljust(width)}  {said}" for name, said in lines)


def markdown(data: Data) -> str:
    """A page to keep or to paste."""
    head = (
        f"# specdeck check --sampled: {data['verdict']}\n\n{data['reason']}.\n\n| | |\n|---|---|\n"
    )
    rows = "".join(f"| {name} | {said} |\n" for name, said in _lines(data))
    table = "".join(
        f"| {c['prompt']} | {c['p']:.3g} | {c['p_holm']:.3g} | {c['p_control']:.3g} |\n"
        for c in _worst(data)
    )
    titles = "| prompt | p | corrected | control |\n|---|---|---|---|\n"
    return f"{head}{rows}\n## Prompts\n\n{titles}{table}"


def junit(data: Data) -> str:
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
        ET.SubElement(one, "failure", message=_case(case), type="distribution")
    ET.indent(suite)
    written = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{written}\n'


def written(data: Data, path: Path) -> None:
    """Writes a report in the form that the file's ending names; raises UsageError for others."""
    form = form_of(path)
    if form == ".xml":
        save(path, junit(data))
    else:
        save(path, markdown(data) if form == ".md" else json.dumps(data, indent=1) + "\n")


def _lines(data: Data) -> Iterator[tuple[str, str]]:
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


def _worst(data: Data) -> list[Data]:
    return sorted(data["cases"], key=lambda case: float(case["p"]))


def _case(case: Data) -> str:
    return (
        f"{case['prompt']}: p = {case['p']:.3g}, corrected {case['p_holm']:.3g},"
        f" control {case['p_control']:.3g}"
    )
