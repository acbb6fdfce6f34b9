"""A check's outcome as JUnit XML, as CI systems show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from specdeck.engine.divergence.report import case_line

UNJUDGED = "could not be judged: "


def junit(data: Mapping[str, Any]) -> str:
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
