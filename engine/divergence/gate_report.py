"""A gate's outcome for people and for machines: text, one Markdown page, JUnit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from specdeck.engine.text import escape_markdown, format_value, oneline

Data = Mapping[str, Any]


def gate_lines(data: Data) -> list[str]:
    """What a terminal is shown."""
    rows = [("verdict", f"{data['verdict']}: {data['reason']}"), *_rows(data)]
    width = max(len(name) for name, _ in rows)
    return [f"{name.ljust(width)}  {said}" for name, said in rows]


def _rows(data: Data) -> Iterator[tuple[str, str]]:
    for line in data["lines"]:
        yield line["name"], f"{line['word']}: {line['said']}"
    for fact in data["changed"]:
        yield "changed", fact
    yield "baseline", _baseline(data)


def _baseline(data: Data) -> str:
    written = datetime.fromtimestamp(data["baseline"]["t"], UTC)
    against = f", in turn with {data['against']}" if data["against"] else ""
    return f"{data['baseline']['engine']}, {written:%Y-%m-%d %H:%M} UTC{against}"


def gate_markdown(data: Data) -> str:
    """One page to keep or to paste."""
    work = data["workload"]
    rows = "".join(
        f"| {line['name']} | {line['word']} | {escape_markdown(line['said'])} |\n"
        for line in data["lines"]
    )
    changed = "".join(f"- {escape_markdown(fact)}\n" for fact in data["changed"])
    facts = f"\n## What changed\n\n{changed}" if changed else ""
    return f"""# specdeck gate: {data["verdict"]}

{escape_markdown(data["reason"])}.

{escape_markdown(data["engine"])} against {escape_markdown(_baseline(data))}: \
{work["prompts"]} prompts of {escape_markdown(work["source"])}, {work["max_tokens"]} tokens, \
{work["streams"]} at once.

| | | |
|---|---|---|
{rows}{facts}"""


def gate_junit(data: Data) -> str:
    """One test for each line; what could not be judged is an error, as no gate may open for it."""
    lines = data["lines"]
    words = [line["word"] for line in lines]
    suite = ET.Element(
        "testsuite",
        name="specdeck gate",
        tests=str(len(lines)),
        failures=str(words.count("fail")),
        errors=str(words.count("inconclusive")),
        skipped="0",
    )
    for line in lines:
        case = ET.SubElement(suite, "testcase", classname="specdeck.gate", name=line["name"])
        said = oneline(line["said"])
        if line["word"] == "fail":
            ET.SubElement(case, "failure", message=said, type="fail")
        elif line["word"] == "inconclusive":
            ET.SubElement(case, "error", message=said, type="inconclusive")
        else:
            ET.SubElement(case, "system-out").text = said
        ratio = line["ci95"]
        if ratio is not None:
            low, high = (format_value(round(bound, 4)) for bound in ratio)
            properties = ET.SubElement(case, "properties")
            ET.SubElement(properties, "property", name="ratio", value=f"{low} to {high}")
    ET.indent(suite)
    written = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{written}\n'
