"""A check's outcome for people and for machines: text, Markdown, JUnit and Prometheus."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

from specdeck.engine.divergence.canary import Canary, Word
from specdeck.engine.divergence.compare import CLASSES, StructureChange
from specdeck.engine.divergence.conclusion import Conclusion
from specdeck.engine.divergence.history import (
    PAST_CHECKS_HEAD,
    History,
    PastCheck,
    SampledHistory,
    past_check_cells,
)
from specdeck.engine.divergence.likelihood import Visible
from specdeck.engine.divergence.structured import Violation
from specdeck.engine.errors import UsageError
from specdeck.engine.files import read_file, replace_file, write_stream
from specdeck.engine.metrics.exposition import Exposition
from specdeck.engine.protocol.codec import loads
from specdeck.engine.text import UNKNOWN, escape_markdown, format_percent, format_value, oneline

Data = Mapping[str, Any]
SHOWN = 10
"""Cases that a terminal is shown."""
FORMS = (".json", ".xml", ".md")
UNJUDGED = "could not be judged: "
_MOST_LINKS = 40
"""One after the other, as Linux has it."""
_LONGEST_REPORT = 256 << 20
_DETAILS = frozenset({"cases", "samples"})
"""In JSON one of these stands beside the verdict."""
_PAGE = re.compile(rb"# specdeck (?:check|gate)(?: --\w+)?: ")
"""What a page begins with."""
_MISFIT = 1e-4
"""So unlikely are the reference's own draws where it does not sample by what it says."""
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
    """Writes a file, whole or not at all; raises UsageError where it cannot be."""
    try:
        place = _follow_links(path)
        if place.exists() and not place.is_file():
            write_stream(place, content)
        elif place.exists() and not os.access(place.parent, os.W_OK):
            place.write_text(content, encoding="utf-8")  # nothing may come beside it
        else:
            replace_file(place, content)
    except OSError as error:
        why = (error.strerror or "cannot be written").lower()
        raise UsageError(f"{path}: {why}", remedy="give another file") from error


def _follow_links(path: Path) -> Path:
    """Where the links of a path lead; raises UsageError for one of another user.

    In a folder that all may write to, such as /tmp, anybody could lead a report to a file of its
    writer's. Linux does not follow such links there (`fs.protected_symlinks`), but is not asked
    where a link is read.
    """
    place = path.absolute()
    for _ in range(_MOST_LINKS):
        parts = [*reversed(place.parents), place]
        link = next((one for one in parts if one.is_symlink()), None)
        if link is None:
            return place
        if link.lstat().st_uid not in (0, os.geteuid()):
            raise UsageError(f"{link}: a link of another user", remedy="give another file")
        target = link.parent / os.readlink(link)
        if link.is_relative_to("/proc") and not os.path.lexists(target):
            return place  # a pipe that this process has open, which has no name of its own
        place = target / place.relative_to(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


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
    elif there and replaced and not path.is_file():
        why = "not a regular file"
    else:
        return
    raise UsageError(f"{path}: {why}", remedy="give another file")


def refuse_overwriting(places: Iterable[Path], read: Sequence[Path]) -> None:
    """Raises UsageError where one of `places` is a file that is `read`."""
    for path in filter(os.path.exists, places):
        if any(path.samefile(one) for one in filter(os.path.exists, read)):
            message = f"{path}: is read, and would be written over"
            raise UsageError(message, remedy="give another file")


def is_report(path: Path) -> bool:
    """Whether a file is a report of a check or a gate; False where it cannot be read."""
    try:
        data = read_file(path, most=_LONGEST_REPORT)
    except OSError:
        return False
    if data.startswith(b"{"):
        with suppress(ValueError):
            held = loads(data, most_values=_LONGEST_REPORT)
            return isinstance(held, dict) and "verdict" in held and bool(_DETAILS & held.keys())
        return False
    is_page = _PAGE.match(data) is not None and b"\n|---|---|" in data
    return is_page or b'<testsuite name="specdeck ' in data[:200]


def report_form(path: Path) -> str:
    """The form of a report: `.json`, `.xml` for JUnit, or `.md`."""
    form = path.suffix.lower()
    if form not in FORMS:
        raise UsageError(f"{path} has no form", remedy="end it in .json, .xml (JUnit) or .md")
    return form


def _lines(data: Data) -> Iterator[tuple[str, str]]:
    floor, near = data["noise_floor"], data["near_tie"]
    yield "verdict", f"{data['verdict']}: {data['reason']}"
    if data.get("canary"):  # beside the verdict, as it has the last word
        yield "canary", Canary.from_json(data["canary"]).line()
    yield (
        "mismatches",
        f"{_rate(data['mismatches'], data['prompts'], data)}, "
        f"threshold {format_percent(data['max_mismatch'])}",
    )
    if (streamed := data["streamed"])["mismatches"]:
        said = _rate(streamed["mismatches"], streamed["pairs"], streamed)
        yield "streamed", f"{said}, asked for without log-probabilities"
    yield (
        "noise floor",
        f"{_rate(floor['mismatches'], floor['pairs'], floor)} of the reference against itself,"
        f" serving {format_percent(floor['serving']['rate'])}",
    )
    yield "floors", floors_line(floor)
    if (excess := data["excess"]) is not None:
        yield "excess", excess_line(excess)
    yield "in 1,000 tokens", per_1000_line(data["per_1000_tokens"])
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
    structured = data["structured"]
    if structured["prompts"]:
        yield (
            "structure",
            f"invalid where the reference is valid: {structured['invalid']} of"
            f" {structured['prompts']} (serving {structured['serving_invalid']} invalid,"
            f" reference {structured['reference_invalid']})",
        )
    yield "per session", session_line(data["per_session"])
    if data["prompts"]:
        yield "asked", asks_line(data["asks"], data["prompts"])
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


def floors_line(floor: Data) -> str:
    """The floors side by side: from ask to ask, alone or among others, one row or several.

    >>> rate = {"pairs": 500, "mismatches": 25, "rate": 0.05}
    >>> floors_line({"repeat": rate, "batch": {"pairs": 0, "rate": None}, "shape": rate})
    'repeat 5.00% of 500 · batch – · shape 5.00% of 500'
    """
    said = (
        f"{name} {format_percent(one['rate'])}" + (f" of {one['pairs']}" if one["pairs"] else "")
        for name, one in ((name, floor[name]) for name in ("repeat", "batch", "shape"))
    )
    return " · ".join(said)


def excess_line(excess: Data) -> str:
    """How much more often the arms differ than the floors explain, and what would have shown.

    >>> excess_line({"rate": 0.002, "ci95": [-0.004, 0.008], "p": 0.3, "detectable80": 0.012})
    '0.20% beyond the floors (two-sided 95% -0.40% to 0.80%), p = 0.3; at 1.20% 8 of 10 fail'
    """
    low, high = excess["ci95"]
    return (
        f"{format_percent(excess['rate'])} beyond the floors (two-sided 95% {format_percent(low)}"
        f" to {format_percent(high)}), p = {excess['p']:.1g};"
        f" at {format_percent(excess['detectable80'])} 8 of 10 fail"
    )


def session_line(session: Data) -> str:
    """The risk that adds up over the calls of a session.

    >>> session_line({"p_any": 0.058, "calls": 5, "ci95": [0.0044, 0.13]})
    '5.80% that one of 5 calls differs (two-sided 95% 0.44% to 13.00%, whatever the calls share)'
    """
    said = f"{format_percent(session['p_any'])} that one of {session['calls']} calls differs"
    if (ends := session.get("ci95")) is None:
        return said
    low, high = map(format_percent, ends)
    return f"{said} (two-sided 95% {low} to {high}, whatever the calls share)"


def asks_line(asks: Data, prompts: int) -> str:
    """What a check costs, by prompt.

    >>> asks_line({"answers": 850, "more": 50, "looks": 230}, 200)
    '4.25 answers a prompt, and 1.15 passes over one'
    """
    return (
        f"{asks['answers'] / prompts:.2f} answers a prompt,"
        f" and {asks['looks'] / prompts:.2f} passes over one"
    )


def per_1000_line(rates: Data) -> str:
    """How often answers part in a thousand tokens.

    >>> per_1000_line({"mismatches": 0.25, "repeat": 0.0, "batch": None, "shape": 1.0})
    'arms 0.25 · repeat 0 · batch – · shape 1'
    """
    names = {"mismatches": "arms"}
    return " · ".join(f"{names.get(name, name)} {_number(rate)}" for name, rate in rates.items())


def case_line(case: Data) -> str:
    """One case on one line."""
    structure = structure_line(case)
    if case.get("streamed_by"):
        said = (
            f"prompt {case['prompt']}: {case['index']} equal tokens, streamed and non-streamed"
            f" output of the {case['streamed_by']} arm differ, stream only"
        )
        return f"{said} ({structure})" if structure else said
    if case["class"] == "stream_only":
        where = "the serving arm's stream" if case["pair"] == "streamed" else "the serving arm"
        said = (
            f"prompt {case['prompt']}: {case['index']} equal tokens became another text or end in"
            f" {where}"
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
    """What a case breaks of its prompt's rules, or its structural differences, on one line."""
    if case.get("violation"):
        return Violation(**case["violation"]).line()
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
    last = Conclusion.from_json(data)
    asked = f"{title} --canary" if last.by == "canary" else title
    head = f"# {asked}: {last.word}\n\n{escape_markdown(last.reason)}.\n\n| | |\n|---|---|\n"
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
    """One test for what the exit code goes by, and one for each case that is no near tie.

    Only a fail has failures: a CI system counts them, whatever the first test says. What could
    not be judged is an error, as a gate must not open for it either. A night of a canary that is
    as before has neither, even where its verdict by rate is a fail.
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
    """A test of what the exit code goes by, and one for each of `cases`: its class, its name, what
    is said. A canary has one more, without a say: the verdict."""
    last = Conclusion.from_json(data)
    bad, unjudged, beside = last.word == "fail", last.word == "inconclusive", last.by != "verdict"
    suite = ET.Element(
        "testsuite",
        name=title,
        tests=str(1 + beside + len(cases)),
        failures=str(1 + len(cases) if bad else 0),
        errors=str(int(unjudged)),
        skipped="0",
        time=f"{data['seconds']:.3f}",
    )
    main = ET.SubElement(suite, "testcase", classname=classname, name=last.by)
    if bad:
        ET.SubElement(main, "failure", message=_plain(last.reason), type="fail")
    elif unjudged:
        ET.SubElement(main, "error", message=_plain(UNJUDGED + last.reason), type="inconclusive")
    if beside:
        one = ET.SubElement(suite, "testcase", classname=classname, name="verdict")
        ET.SubElement(one, "system-out").text = _plain(f"{data['verdict']}: {data['reason']}")
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
    yield (
        "lowest",
        f"p = {data['p_lowest']:.3g} after correction, control p = {control['p_lowest']:.3g},"
        f" alpha {data['alpha']:g}",
    )
    yield from _likelihood_lines(data)
    yield "G-test", f"pooled p = {data['p_pooled']:.3g}, control p = {control['p_pooled']:.3g}"
    for name, arm in data["arms"].items():
        k = format_value(arm["k"])
        yield name, f"{arm['grade']}, k={k}, {arm['url']}, {_fingerprint(arm)}"
    if data["refused"]:
        yield "refused", f"{data['refused']} prompts"
    if (past := data.get("history")) is not None:
        yield "history", SampledHistory(**past).line()


def _likelihood_lines(data: Data) -> Iterator[tuple[str, str]]:
    """The tokens' scores by the reference's probabilities, and what they would have shown."""
    seen, found = data["visible"], data["likelihood"]
    if found is None:
        why = data["unscored"] or "no continuation has a second token"
        yield "likelihood", f"not known: {why}"
        return
    scores = found["scores"].items()
    said = ", ".join(f"{name.replace('_', ' ')} z = {one['z']:+.1f}" for name, one in scores)
    yield (
        "likelihood",
        f"p = {found['p_lowest']:.3g}, control p = {found['control']['p_lowest']:.3g},"
        f" {found['tokens']} tokens: {said}",
    )
    yield "visible", f"{Visible.from_json(seen).line()}: found with {seen['power']:.0%} power"
    if found["reference_fit"]["p_lowest"] < _MISFIT:
        yield (
            "note",
            "the reference's own draws do not follow its log-probabilities: the server's defaults"
            " sample otherwise (top-p, penalties), in both arms alike",
        )


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
        self._engine = self.label(engine)

        def gauge(name: str, help_: str, *labels: str) -> Gauge:
            return Gauge(
                f"specdeck_check_{name}", help_, ("engine", *labels), registry=self.registry
            )

        self._rate = gauge("mismatch_rate", "Share of prompts whose outputs differ.")
        self._streamed = gauge("streamed_mismatch_rate", "The same of streamed outputs.")
        self._floor = gauge("noise_floor_rate", "The same of an arm against itself.", "arm")
        self._prompts = gauge("prompts", "Prompts that both arms answered.")
        self._cases = gauge("cases", "Differing outputs by class.", "kind")
        self._floors = gauge("floor_rate", "Share of prompts by the kind of floor.", "floor")
        self._excess = gauge("excess_rate", "Share of prompts that differ beyond the floors.")
        self._canary = gauge("canary", "1 for the canary's latest word, 0 for others.", "word")
        self._verdict = gauge("verdict", "1 for the last verdict, 0 for others.", "verdict")
        self._conclusion = gauge(
            "conclusion", "1 for what the exit code goes by, 0 for others.", "conclusion"
        )
        self._ended = gauge("last_run_timestamp_seconds", "Unix time of the last finished check.")
        self._up = gauge("up", "Whether the last check could be done.")

    def mark_failed(self) -> None:
        """The check could not be done; the last figures stay."""
        self._up.labels(self._engine).set(0)

    def show(self, data: Mapping[str, Any], t: float) -> None:
        """The outcome of a check that ended at Unix time `t`."""
        name, floor = self._engine, data["noise_floor"]
        self._up.labels(name).set(1)
        self._ended.labels(name).set(t)
        self._prompts.labels(name).set(data["prompts"])
        if data["mismatch_rate"] is not None:
            self._rate.labels(name).set(data["mismatch_rate"])
            self._streamed.labels(name).set(data["streamed"]["rate"])
            self._floor.labels(name, "reference").set(floor["rate"])
            self._floor.labels(name, "serving").set(floor["serving"]["rate"])
        for kind in ("repeat", "batch", "shape"):
            if (rate := floor[kind]["rate"]) is not None:
                self._floors.labels(name, kind).set(rate)
        if data["excess"] is not None:
            self._excess.labels(name).set(data["excess"]["rate"])
        if (canary := data.get("canary")) is not None:
            for word in get_args(Word):
                self._canary.labels(name, word).set(canary["word"] == word)
        for kind in CLASSES:
            self._cases.labels(name, kind).set(data["classes"][kind])
        last = Conclusion.from_json(data)
        for word in ("pass", "fail", "inconclusive"):
            self._verdict.labels(name, word).set(data["verdict"] == word)
            self._conclusion.labels(name, word).set(last.word == word)
